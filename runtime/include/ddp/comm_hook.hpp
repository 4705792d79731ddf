// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Communication hooks: how gradients travel, if not as the plain average; hooks of the program, and those that libddp
/// has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ddp/buffer.hpp"
#include "ddp/ddp.h"
#include "ddp/error.hpp"

namespace ddp {

/// Gradients that travel together, as a communication hook sees them. Source:
/// torch.distributed.GradBucket.
class GradBucket {
 public:
  /// Makes a view of a bucket of ddp.h.
  explicit GradBucket(const ddp_grad_bucket& bucket) : bucket_(bucket) {}
  /// Returns the bucket's number; the first that is reduced has 0.
  std::size_t index() const { return bucket_.index; }
  /// Returns whether it is the last bucket of the step.
  bool is_last() const { return bucket_.is_last != 0; }
  /// Returns all of its gradients, without gaps: to be given to collectives, and changed in place.
  Buffer buffer() const {
    return {bucket_.buffer.data,
            bucket_.buffer.count,
            static_cast<DType>(bucket_.buffer.dtype),
            {static_cast<DeviceKind>(bucket_.buffer.device.kind), bucket_.buffer.device.index}};
  }
  /// Returns the number of gradients in it.
  std::size_t size() const { return bucket_.slice_count; }
  /// Returns the number of the parameter whose gradient is the k-th in the bucket.
  std::size_t parameter(std::size_t k) const { return bucket_.slices[k].parameter; }
  /// Returns the k-th gradient alone.
  Buffer gradient(std::size_t k) const {
    const Buffer all = buffer();
    return {detail::element_at(all.data, bucket_.slices[k].offset, all.dtype), bucket_.slices[k].count, all.dtype,
            all.device};
  }
  /// Returns the k-th gradient's shape, whose product is its count.
  std::vector<std::int64_t> shape(std::size_t k) const {
    return {bucket_.slices[k].shape, bucket_.slices[k].shape + bucket_.slices[k].rank};
  }
  /// Returns the bucket of ddp.h.
  const ddp_grad_bucket& c() const { return bucket_; }

 private:
  const ddp_grad_bucket& bucket_;
};

/// Replaces the plain average of gradients. The thread that calls the model calls its functions,
/// for the same buckets in the same order on every rank; they may issue operations on the model's
/// group. Their exceptions come out of the model's call on this rank, and abort the group, so that
/// no other rank waits. Source: DistributedDataParallel.register_comm_hook.
class CommHook {
 public:
  CommHook() = default;
  virtual ~CommHook() = default;
  CommHook(const CommHook&) = delete;
  CommHook& operator=(const CommHook&) = delete;

  /// Starts a bucket's exchange. The bucket is full of this rank's own gradients, not divided:
  /// dividing is the hook's task. Called in backward: issue an asynchronous operation, do not wait
  /// for it.
  virtual void start(const GradBucket& bucket) = 0;
  /// Waits for what was issued. Returns false if the bucket now holds the average, or true if it has
  /// issued another stage. Called in synchronize(), for all buckets in order, again and again for
  /// those for which it returned true.
  virtual bool advance(const GradBucket& bucket) = 0;
};

namespace detail {

// A CommHook behind ddp.h's function pointers, which no exception may cross: it waits here.
class HookCall {
 public:
  explicit HookCall(std::shared_ptr<CommHook> hook) : hook_(std::move(hook)) {}

  ddp_comm_hook c() {
    return {this,
            [](void* self, const ddp_grad_bucket* bucket) {
              return of(self).guard([&] { of(self).hook_->start(GradBucket(*bucket)); });
            },
            [](void* self, const ddp_grad_bucket* bucket, std::int32_t* more) {
              return of(self).guard([&] { *more = of(self).hook_->advance(GradBucket(*bucket)) ? 1 : 0; });
            },
            [](void* self) { return of(self).why_.c_str(); }};
  }
  void rethrow() {
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  static HookCall& of(void* self) { return *static_cast<HookCall*>(self); }

  template <typename Body>
  ddp_status guard(Body&& body) {
    try {
      body();
      return DDP_OK;
    } catch (const Error& e) {
      return keep(e.status(), e.what());
    } catch (const std::exception& e) {
      return keep(Status::System, e.what());
    } catch (...) {
      return keep(Status::System, "an exception of an unknown kind");
    }
  }
  ddp_status keep(Status status, const char* why) {
    error_ = std::current_exception();
    why_ = why;
    return static_cast<ddp_status>(status);
  }

  std::shared_ptr<CommHook> hook_;
  std::exception_ptr error_;
  std::string why_;
};

}  // namespace detail

/// A communication hook without options.
enum class BuiltinCommHook : std::int32_t {
  AllReduce = DDP_ALLREDUCE_HOOK,         ///< the average, as without a hook
  FP16Compress = DDP_FP16_COMPRESS_HOOK,  ///< the average of gradients rounded to float16
  BF16Compress = DDP_BF16_COMPRESS_HOOK   ///< the average of gradients rounded to bfloat16
};

/// Hook that averages, as without a hook. Source: PyTorch's default_hooks.allreduce_hook.
inline constexpr BuiltinCommHook allreduce_hook = BuiltinCommHook::AllReduce;
/// Hook that averages gradients rounded to 16-bit IEEE floating point; 65520 and more become
/// infinite. For gradients in CPU memory, and for modules of libtorch anywhere. Source: PyTorch's
/// default_hooks.fp16_compress_hook.
inline constexpr BuiltinCommHook fp16_compress_hook = BuiltinCommHook::FP16Compress;
/// Hook that averages gradients rounded to the upper 16 bits of a float; nothing overflows. For
/// gradients in CPU memory, and for modules of libtorch anywhere. Source: PyTorch's
/// default_hooks.bf16_compress_hook.
inline constexpr BuiltinCommHook bf16_compress_hook = BuiltinCommHook::BF16Compress;

}  // namespace ddp
