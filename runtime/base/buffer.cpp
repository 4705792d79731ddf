// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/base/buffer.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "collectives/float_conversion.hpp"
#include "rendezvous/base/error.hpp"

namespace ddp::runtime {
namespace {

using collectives::is_16_bit_float;
using rendezvous::invalid_argument;

void check_floating_point(const ddp_buffer& buffer) {
  check_buffer("convert", buffer.data, buffer.count, buffer.dtype, buffer.device);
  if (!collectives::is_floating_point(buffer.dtype)) {
    invalid_argument(std::string("convert: works on floating point, not on ") + dtype_name(buffer.dtype));
  }
}

}  // namespace

void check_elements(const char* what, const void* data, std::size_t count, std::int32_t dtype, const char* part) {
  const std::string why = collectives::why_no_elements(data, count, dtype);
  if (!why.empty()) invalid_argument(std::string(what) + part + ": " + why);
}

void check_device(const char* what, ddp_device device, const char* part) {
  if (device.kind == DDP_CPU || (device.kind == DDP_CUDA && device.index >= 0)) return;
  invalid_argument(std::string(what) + part + ": there is no device of kind " + std::to_string(device.kind) +
                   " and index " + std::to_string(device.index));
}

void check_buffer(const char* what, const void* data, std::size_t count, std::int32_t dtype, ddp_device device) {
  check_elements(what, data, count, dtype);
  if (device.kind != DDP_CPU) invalid_argument(std::string(what) + ": " + collectives::kNotInCpuMemory);
}

void convert(const ddp_buffer& from, const ddp_buffer& to) {
  check_floating_point(from);
  check_floating_point(to);
  if (from.count != to.count) {
    invalid_argument("convert: from " + std::to_string(from.count) + " elements to " + std::to_string(to.count));
  }
  if (from.dtype == to.dtype) {
    if (from.count > 0) std::memmove(to.data, from.data, from.count * dtype_size(from.dtype));
  } else if (is_16_bit_float(from.dtype) && to.dtype == DDP_FLOAT32) {
    collectives::widen(from.dtype, from.data, static_cast<float*>(to.data), from.count);
  } else if (is_16_bit_float(to.dtype) && from.dtype == DDP_FLOAT32) {
    collectives::narrow(to.dtype, static_cast<const float*>(from.data), to.data, from.count);
  } else if (from.dtype == DDP_FLOAT32) {
    std::copy_n(static_cast<const float*>(from.data), from.count, static_cast<double*>(to.data));
  } else if (to.dtype == DDP_FLOAT32) {
    const auto* in = static_cast<const double*>(from.data);
    std::transform(in, in + from.count, static_cast<float*>(to.data), [](double x) { return static_cast<float>(x); });
  } else {
    invalid_argument(std::string("convert: not from ") + dtype_name(from.dtype) + " to " + dtype_name(to.dtype) +
                     ": convert through float32");
  }
}

}  // namespace ddp::runtime
