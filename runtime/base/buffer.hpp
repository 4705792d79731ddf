// SPDX-License-Identifier: BSD-3-Clause
// The caller's buffers: a check that there is memory behind them, and the conversion of one to another type.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/element_types.hpp"
#include "ddp/ddp.h"

namespace ddp::runtime {

// Returns the bytes of one element, or 0 for an unknown type.
inline std::size_t dtype_size(std::int32_t dtype) { return collectives::element_size(dtype); }
using collectives::dtype_name;

// Throws rendezvous::Error{InvalidArgument} unless the type is known and `count` elements of it can be at `data`.
// `what` and `part` begin the message.
void check_elements(const char* what, const void* data, std::size_t count, std::int32_t dtype, const char* part = "");
// Throws unless the device is the CPU or a GPU.
void check_device(const char* what, ddp_device device, const char* part = "");
// Checks the elements, and refuses memory that is not the CPU's.
void check_buffer(const char* what, const void* data, std::size_t count, std::int32_t dtype, ddp_device device);
// Checks both buffers and copies one to the other, as ddp_buffer_convert() says.
void convert(const ddp_buffer& from, const ddp_buffer& to);

}  // namespace ddp::runtime
