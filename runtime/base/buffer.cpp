// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/base/buffer.hpp"

#include <string>

#include "collectives/element_types.hpp"
#include "rendezvous/base/error.hpp"

namespace ddp::runtime {
namespace {

using rendezvous::invalid_argument;

}  // namespace

std::size_t dtype_size(std::int32_t dtype) { return collectives::element_size(dtype); }

const char* dtype_name(std::int32_t dtype) {
  const collectives::ElementFacts* facts = collectives::element_facts(dtype);
  return facts ? facts->name : "unknown type";
}

void check_elements(const char* what, const void* data, std::size_t count, std::int32_t dtype, const char* part) {
  const auto refuse = [&](const std::string& why) { invalid_argument(std::string(what) + part + ": " + why); };
  if (dtype_size(dtype) == 0) refuse("there is no element type " + std::to_string(dtype));
  if (data == nullptr && count > 0) refuse("null data for " + std::to_string(count) + " elements");
  if (count > SIZE_MAX / 2 / dtype_size(dtype)) refuse(std::to_string(count) + " elements do not fit in memory");
}

void check_device(const char* what, ddp_device device) {
  if (device.kind == DDP_CPU || (device.kind == DDP_CUDA && device.index >= 0)) return;
  invalid_argument(std::string(what) + ": there is no device " + std::to_string(device.index) + " of kind " +
                   std::to_string(device.kind));
}

void check_buffer(const char* what, const void* data, std::size_t count, std::int32_t dtype, ddp_device device) {
  check_elements(what, data, count, dtype);
  if (device.kind != DDP_CPU)
    invalid_argument(std::string(what) + ": not in CPU memory; nothing else is supported here");
}

}  // namespace ddp::runtime
