// SPDX-License-Identifier: BSD-3-Clause
// Makes operations from descriptions of the C interface.
#pragma once

#include <cstdint>

#include "runtime/collective/operation.hpp"

namespace ddp::runtime {

// Checks what the caller has described, and throws rendezvous::Error{InvalidArgument} if it is wrong. For a collective
// on objects, `exchange` takes this rank's objects; exchange and objects must outlive the operation.
Operation make_operation(const ddp_operation& given, GroupPlace place, ObjectExchange* exchange = nullptr);

// These make what libddp issues itself.
inline Operation make_on(std::int32_t kind, const ddp_buffer& input, const ddp_buffer& output, GroupPlace place,
                         std::int32_t root = 0, const ddp_reduction& reduction = {}) {
  ddp_operation given = ddp_operation_of(kind, root, 0);
  given.input = input;
  given.output = output;
  given.reduction = reduction;
  return make_operation(given, place);
}
inline Operation make_all_reduce(const ddp_buffer& buffer, const ddp_reduction& reduction) {
  return make_on(DDP_ALL_REDUCE, {}, buffer, {}, 0, reduction);
}
inline Operation make_broadcast(const ddp_buffer& buffer, std::int32_t root, GroupPlace place) {
  return make_on(DDP_BROADCAST, {}, buffer, place, root);
}
inline Operation make_all_gather(const ddp_buffer& input, const ddp_buffer& output, GroupPlace place) {
  return make_on(DDP_ALL_GATHER, input, output, place);
}

}  // namespace ddp::runtime
