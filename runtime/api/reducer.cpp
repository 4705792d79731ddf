// SPDX-License-Identifier: BSD-3-Clause
// Exported functions on reducers and their communication hooks.
#include <cstdint>
#include <memory>
#include <string>

#include "ddp/ddp.h"
#include "runtime/api/arguments.hpp"
#include "runtime/api/c_guard.hpp"
#include "runtime/api/live_sessions.hpp"
#include "runtime/training/ddp/reducer.hpp"
#include "runtime/training/hooks/builtin_comm_hooks.hpp"

namespace {

using ddp::rendezvous::Error;
using ddp::rendezvous::ErrorCode;
using ddp::runtime::CommHook;
using ddp::runtime::guard;
using ddp::runtime::not_null;
using ddp::runtime::Reducer;

Reducer* of(ddp_reducer* handle) { return reinterpret_cast<Reducer*>(handle); }
const Reducer* of(const ddp_reducer* handle) { return reinterpret_cast<const Reducer*>(handle); }

// A hook of the program, behind function pointers.
class UsersHook final : public CommHook {
 public:
  explicit UsersHook(const ddp_comm_hook& hook) : hook_(hook) {
    if (hook_.start != nullptr && hook_.advance != nullptr) return;
    throw Error(ErrorCode::InvalidArgument, "a communication hook has both start and advance");
  }

  void start(const ddp_grad_bucket& bucket) override { check(hook_.start(hook_.context, &bucket), bucket); }
  bool advance(const ddp_grad_bucket& bucket) override {
    std::int32_t more = 0;
    check(hook_.advance(hook_.context, &bucket, &more), bucket);
    return more != 0;
  }

 private:
  void check(ddp_status status, const ddp_grad_bucket& bucket) const {
    if (status == DDP_OK) return;
    const char* why = hook_.why != nullptr ? hook_.why(hook_.context) : ddp_error_last();
    throw Error(ddp::runtime::code_of(status), "bucket " + std::to_string(bucket.index) + ": " + why);
  }

  ddp_comm_hook hook_;
};

// NCCL averages elements of 16 bits as they are, so only gradients of a wider type would have to be converted.
void refuse_on_gpu(std::int32_t hook) {
  if (hook != DDP_FP16_COMPRESS_HOOK && hook != DDP_BF16_COMPRESS_HOOK) return;
  throw Error(ErrorCode::InvalidArgument,
              std::string(hook == DDP_FP16_COMPRESS_HOOK ? "fp16" : "bf16") +
                  "_compress_hook: the gradients are on a GPU, where libddp converts none: use gradients of 16 bits, "
                  "which NCCL averages as they are, or ddp::libtorch::DistributedDataParallel");
}

}  // namespace

ddp_status ddp_reducer_create(ddp_group* group, const ddp_parameter* parameters, size_t count,
                              const ddp_reducer_options* options, ddp_reducer** out) {
  return guard([&] {
    not_null(out, "the reducer to fill in");
    *out = nullptr;
    auto made = std::make_unique<Reducer>(ddp::runtime::group_of(group), parameters, count,
                                          DDP_OPTIONS(ddp_reducer_options, no_broadcast_buffers, options));
    ddp::runtime::enlist(made.get());
    *out = reinterpret_cast<ddp_reducer*>(made.release());
  });
}

void ddp_reducer_destroy(ddp_reducer* reducer) { ddp::runtime::destroy(of(reducer)); }

void* ddp_reducer_gradient(ddp_reducer* reducer, size_t i) {
  void* gradient = nullptr;
  guard([&] { gradient = not_null(of(reducer), "the reducer").gradient(i); });
  return gradient;
}

ddp_status ddp_reducer_set_value(ddp_reducer* reducer, size_t i, void* value) {
  return guard([&] { not_null(of(reducer), "the reducer").set_value(i, value); });
}

ddp_status ddp_reducer_set_gradient(ddp_reducer* reducer, size_t i, void* grad) {
  return guard([&] { not_null(of(reducer), "the reducer").set_gradient(i, grad); });
}

ddp_status ddp_reducer_set_buffer(ddp_reducer* reducer, size_t i, void* value) {
  return guard([&] { not_null(of(reducer), "the reducer").set_buffer(i, value); });
}

ddp_status ddp_reducer_before_forward(ddp_reducer* reducer) {
  return guard([&] { not_null(of(reducer), "the reducer").before_forward(); });
}

ddp_status ddp_reducer_mark_ready(ddp_reducer* reducer, size_t i) {
  return guard([&] { not_null(of(reducer), "the reducer").mark_ready(i); });
}

ddp_status ddp_reducer_mark_unused(ddp_reducer* reducer, size_t i) {
  return guard([&] { not_null(of(reducer), "the reducer").mark_unused(i); });
}

ddp_status ddp_reducer_synchronize(ddp_reducer* reducer) {
  return guard([&] { not_null(of(reducer), "the reducer").synchronize(); });
}

int32_t ddp_reducer_was_used(const ddp_reducer* reducer, size_t i) { return of(reducer)->was_used(i) ? 1 : 0; }

ddp_status ddp_reducer_set_no_sync(ddp_reducer* reducer, int32_t enabled) {
  return guard([&] { not_null(of(reducer), "the reducer").set_no_sync(enabled != 0); });
}

int32_t ddp_reducer_no_sync(const ddp_reducer* reducer) { return reducer != nullptr && of(reducer)->no_sync() ? 1 : 0; }

size_t ddp_reducer_bucket_count(const ddp_reducer* reducer) { return of(reducer)->bucket_count(); }

ddp_status ddp_reducer_register_comm_hook(ddp_reducer* reducer, const ddp_comm_hook* hook) {
  return guard([&] {
    not_null(of(reducer), "the reducer")
        .register_comm_hook(std::make_unique<UsersHook>(not_null(hook, "the communication hook")));
  });
}

ddp_status ddp_reducer_register_builtin_comm_hook(ddp_reducer* reducer, int32_t hook) {
  return guard([&] {
    Reducer& registers = not_null(of(reducer), "the reducer");
    if (registers.is_on_gpu() && hook != DDP_ALLREDUCE_HOOK) refuse_on_gpu(hook);
    registers.register_comm_hook(ddp::runtime::make_builtin_comm_hook(registers.group(), hook));
  });
}

ddp_status ddp_reducer_join_begin(ddp_reducer* reducer, const ddp_reducer_join_options* options) {
  return guard([&] {
    const ddp_reducer_join_options chosen = DDP_OPTIONS(ddp_reducer_join_options, throw_on_early_termination, options);
    not_null(of(reducer), "the reducer")
        .join_begin({chosen.divide_by_active_ranks == 0, chosen.throw_on_early_termination != 0});
  });
}

ddp_status ddp_reducer_join_end(ddp_reducer* reducer) {
  return guard([&] { not_null(of(reducer), "the reducer").join_end(); });
}

void ddp_reducer_join_cancel(ddp_reducer* reducer) {
  guard([&] { not_null(of(reducer), "the reducer").join_cancel(); });
}
