// SPDX-License-Identifier: BSD-3-Clause
// Exported functions on the memory of a GPU.
#include <memory>
#include <string>
#include <vector>

#include "ddp/ddp.h"
#include "runtime/api/c_guard.hpp"
#include "runtime/api/options.hpp"
#include "runtime/device/current_stream.hpp"
#include "runtime/training/cuda/cuda_optimizer.hpp"
#include "runtime/training/cuda/gradient_norm.hpp"
#include "runtime/training/cuda/loss_scaler.hpp"
#include "runtime/training/cuda/tensor_list.hpp"
#include "runtime/training/optim/adamw.hpp"
#include "runtime/training/optim/sgd.hpp"

using ddp::rendezvous::invalid_argument;
using ddp::runtime::CudaOptimizer;
using ddp::runtime::GradientNorm;
using ddp::runtime::guard;
using ddp::runtime::Kernels;
using ddp::runtime::LossScaler;
using ddp::runtime::not_null;
using ddp::runtime::TensorList;
namespace collectives = ddp::collectives;

// The handles.
struct ddp_cuda_memory {
  ddp_cuda_memory(int32_t index, size_t size)
      : device(collectives::cuda_api(), index), bytes(size), memory(device, size) {}
  collectives::CudaStream* stream() const { return ddp::runtime::current_stream(device.index()); }
  char* at(size_t offset, size_t count) const {
    if (offset > bytes || count > bytes - offset)
      invalid_argument("GPU memory: beyond its " + std::to_string(bytes) + " bytes");
    return static_cast<char*>(memory.get()) + offset;
  }

  collectives::CudaDevice device;
  size_t bytes;
  collectives::DeviceMemory memory;
};
struct ddp_cuda_pairs {
  ddp_cuda_pairs(int32_t device, const std::vector<ddp::runtime::kernels::TensorEntry>& entries)
      : kernels(Kernels::of(device)), list(kernels, entries) {}
  collectives::CudaStream* stream() const { return ddp::runtime::current_stream(kernels->device().index()); }

  std::shared_ptr<const Kernels> kernels;
  TensorList list;
};
struct ddp_cuda_scaler {
  LossScaler scaler;
};
struct ddp_cuda_optimizer {
  CudaOptimizer optimizer;
};
struct ddp_cuda_norm {
  GradientNorm norm;
};

namespace {

using ddp::runtime::kernels::ScalerState;

std::vector<ddp_cuda_tensor> list_of(const ddp_cuda_tensor* tensors, size_t count) {
  if (count == 0) return {};
  const ddp_cuda_tensor* first = &not_null(tensors, "the list of tensors");
  return {first, first + count};
}

ScalerState state_of(const ddp_cuda_scaler_state* given) {
  const auto s = DDP_OPTIONS(ddp_cuda_scaler_state, growth_tracker, &not_null(given, "the scale's state"));
  if (s.growth_factor <= 1) invalid_argument("GradScaler: growth_factor must be above 1");
  if (s.backoff_factor >= 1) invalid_argument("GradScaler: backoff_factor must be below 1");
  if (s.growth_interval < 1) invalid_argument("GradScaler: growth_interval must be at least 1");
  return {s.growth_factor, s.backoff_factor, s.scale,           s.found_inf,
          s.min_scale,     s.max_scale,      s.growth_interval, s.growth_tracker};
}

CudaOptimizer::Rule rule_of(int32_t rule) {
  switch (rule) {
    case DDP_CUDA_ADAMW:
      return CudaOptimizer::Rule::AdamW;
    case DDP_CUDA_ADAM:
      return CudaOptimizer::Rule::Adam;
    case DDP_CUDA_SGD:
      return CudaOptimizer::Rule::Sgd;
    default:
      invalid_argument("optimizer: there is no rule " + std::to_string(rule));
  }
}

// Makes a handle and gives it to the caller; on a failure the caller has null.
template <typename Handle, typename Make>
ddp_status create(Handle** out, const Make& make) {
  return guard([&] {
    not_null(out, "the object to fill in");
    *out = nullptr;
    *out = make();
  });
}

}  // namespace

ddp_status ddp_cuda_memory_create(int32_t device, size_t bytes, ddp_cuda_memory** memory, void** address) {
  return create(memory, [&] {
    not_null(address, "the address to fill in");
    if (bytes == 0) invalid_argument("GPU memory: of 0 bytes");
    auto made = std::make_unique<ddp_cuda_memory>(device, bytes);
    made->device.clear(made->memory.get(), bytes, made->stream());
    made->device.synchronize(made->stream());
    *address = made->memory.get();
    return made.release();
  });
}

void ddp_cuda_memory_destroy(ddp_cuda_memory* memory) {
  guard([&] { delete memory; });
}

ddp_status ddp_cuda_memory_read(const ddp_cuda_memory* memory, size_t offset, void* to, size_t bytes) {
  return guard([&] {
    const ddp_cuda_memory& from = not_null(memory, "the memory");
    from.device.download(to, from.at(offset, bytes), bytes, from.stream());
  });
}

ddp_status ddp_cuda_memory_write(ddp_cuda_memory* memory, size_t offset, const void* from, size_t bytes) {
  return guard([&] {
    const ddp_cuda_memory& to = not_null(memory, "the memory");
    to.device.upload(to.at(offset, bytes), from, bytes, to.stream());
  });
}

ddp_status ddp_cuda_pairs_create(int32_t device, const ddp_buffer* from, const ddp_buffer* to, size_t count,
                                 ddp_cuda_pairs** pairs) {
  return create(pairs, [&] {
    std::vector<ddp::runtime::kernels::TensorEntry> entries;
    for (size_t i = 0; i < count; ++i) {
      entries.push_back(ddp::runtime::pair_of("pairs", device, (&not_null(from, "what is read"))[i],
                                              (&not_null(to, "what is written"))[i]));
    }
    return new ddp_cuda_pairs(device, entries);
  });
}

void ddp_cuda_pairs_destroy(ddp_cuda_pairs* pairs) {
  guard([&] { delete pairs; });
}

ddp_status ddp_cuda_convert(const ddp_cuda_pairs* pairs) {
  return guard([&] {
    const ddp_cuda_pairs& p = not_null(pairs, "the pairs");
    if (p.list.blocks() == 0) return;
    p.kernels->launch<ddp::runtime::kernel::convert>(p.list.blocks(), {p.list.table()}, p.stream());
  });
}

ddp_status ddp_cuda_multiply(const ddp_cuda_pairs* pairs, double factor) {
  return guard([&] {
    const ddp_cuda_pairs& p = not_null(pairs, "the pairs");
    if (p.list.blocks() == 0) return;
    p.kernels->launch<ddp::runtime::kernel::multiply>(p.list.blocks(), {p.list.table(), factor}, p.stream());
  });
}

ddp_status ddp_cuda_scaler_create(int32_t device, const ddp_cuda_scaler_state* state, ddp_cuda_scaler** scaler) {
  return create(scaler, [&] { return new ddp_cuda_scaler{LossScaler(device, state_of(state))}; });
}

void ddp_cuda_scaler_destroy(ddp_cuda_scaler* scaler) {
  guard([&] { delete scaler; });
}

ddp_status ddp_cuda_scaler_addresses(const ddp_cuda_scaler* scaler, void** scale, void** found_inf) {
  return guard([&] {
    ScalerState* state = not_null(scaler, "the scaler").scaler.state();
    if (scale != nullptr) *scale = reinterpret_cast<char*>(state) + offsetof(ScalerState, scale);
    if (found_inf != nullptr) *found_inf = reinterpret_cast<char*>(state) + offsetof(ScalerState, found_inf);
  });
}

ddp_status ddp_cuda_unscale(const ddp_cuda_pairs* pairs, ddp_cuda_scaler* scaler) {
  return guard([&] { not_null(scaler, "the scaler").scaler.unscale(not_null(pairs, "the pairs").list); });
}

ddp_status ddp_cuda_scaler_update(ddp_cuda_scaler* scaler) {
  return guard([&] { not_null(scaler, "the scaler").scaler.update(); });
}

ddp_status ddp_cuda_scaler_read(const ddp_cuda_scaler* scaler, ddp_cuda_scaler_state* state) {
  return guard([&] {
    const ScalerState s = not_null(scaler, "the scaler").scaler.read();
    not_null(state, "the state to fill in") = {sizeof(ddp_cuda_scaler_state),
                                               s.growth_factor,
                                               s.backoff_factor,
                                               s.scale,
                                               s.min_scale,
                                               s.max_scale,
                                               s.found_inf,
                                               s.growth_interval,
                                               s.growth_tracker};
  });
}

ddp_status ddp_cuda_scaler_write(ddp_cuda_scaler* scaler, const ddp_cuda_scaler_state* state) {
  return guard([&] { not_null(scaler, "the scaler").scaler.write(state_of(state)); });
}

ddp_status ddp_cuda_optimizer_create(int32_t device, int32_t rule, size_t groups, ddp_cuda_optimizer** optimizer) {
  return create(optimizer, [&] {
    if (groups == 0) invalid_argument("optimizer: 0 groups");
    return new ddp_cuda_optimizer{CudaOptimizer(device, rule_of(rule), groups)};
  });
}

void ddp_cuda_optimizer_destroy(ddp_cuda_optimizer* optimizer) {
  guard([&] { delete optimizer; });
}

ddp_status ddp_cuda_optimizer_set_tensors(ddp_cuda_optimizer* optimizer, const ddp_cuda_tensor* tensors, size_t count) {
  return guard([&] { not_null(optimizer, "the optimizer").optimizer.set_tensors(list_of(tensors, count)); });
}

ddp_status ddp_cuda_optimizer_set_adamw(ddp_cuda_optimizer* optimizer, size_t group, const ddp_adamw_options* options) {
  return guard([&] {
    const auto numbers =
        ddp::runtime::numbers_of(DDP_OPTIONS(ddp_adamw_options, step, &not_null(options, "the optimizer's options")));
    not_null(optimizer, "the optimizer").optimizer.set_numbers(group, numbers);
  });
}

ddp_status ddp_cuda_optimizer_set_sgd(ddp_cuda_optimizer* optimizer, size_t group, const ddp_sgd_options* options) {
  return guard([&] {
    const auto numbers =
        ddp::runtime::numbers_of(DDP_OPTIONS(ddp_sgd_options, step, &not_null(options, "the optimizer's options")));
    not_null(optimizer, "the optimizer").optimizer.set_numbers(group, numbers);
  });
}

ddp_status ddp_cuda_optimizer_step(ddp_cuda_optimizer* optimizer, const ddp_cuda_scaler* scaler) {
  return guard(
      [&] { not_null(optimizer, "the optimizer").optimizer.step(scaler != nullptr ? &scaler->scaler : nullptr); });
}

ddp_status ddp_cuda_optimizer_steps_taken(const ddp_cuda_optimizer* optimizer, int64_t* steps) {
  return guard(
      [&] { not_null(steps, "the number to fill in") = not_null(optimizer, "the optimizer").optimizer.steps_taken(); });
}

ddp_status ddp_cuda_optimizer_steps_address(const ddp_cuda_optimizer* optimizer, void** steps) {
  return guard([&] {
    not_null(steps, "the address to fill in") = not_null(optimizer, "the optimizer").optimizer.steps_address();
  });
}

ddp_status ddp_cuda_optimizer_set_steps_taken(ddp_cuda_optimizer* optimizer, int64_t steps) {
  return guard([&] { not_null(optimizer, "the optimizer").optimizer.set_steps_taken(steps); });
}

ddp_status ddp_cuda_norm_create(int32_t device, const ddp_cuda_tensor* tensors, size_t count, size_t shares,
                                ddp_cuda_norm** norm) {
  return create(norm, [&] { return new ddp_cuda_norm{GradientNorm(device, list_of(tensors, count), shares)}; });
}

void ddp_cuda_norm_destroy(ddp_cuda_norm* norm) {
  guard([&] { delete norm; });
}

ddp_status ddp_cuda_norm_measure(ddp_cuda_norm* norm, double norm_type) {
  return guard([&] { not_null(norm, "the norm").norm.measure(norm_type); });
}

ddp_status ddp_cuda_norm_addresses(const ddp_cuda_norm* norm, void** own, void** shares) {
  return guard([&] {
    const GradientNorm& it = not_null(norm, "the norm").norm;
    if (own != nullptr) *own = it.own_powers();
    if (shares != nullptr) *shares = it.powers_of_shares();
  });
}

ddp_status ddp_cuda_norm_clip(ddp_cuda_norm* norm, double max_norm) {
  return guard([&] { not_null(norm, "the norm").norm.clip(max_norm); });
}

ddp_status ddp_cuda_norm_read(const ddp_cuda_norm* norm, double* value) {
  return guard([&] { not_null(value, "the number to fill in") = not_null(norm, "the norm").norm.read(); });
}
