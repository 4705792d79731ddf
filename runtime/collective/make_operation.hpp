// SPDX-License-Identifier: BSD-3-Clause
// Makes operations from what the caller passed to the C interface. Every function here checks it first and throws
// rendezvous::Error{InvalidArgument}.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/collective/operation.hpp"

namespace ddp::runtime {

// Throws unless `root` is a rank of the group. `what` begins the message.
void check_root(const char* what, std::int32_t root, GroupPlace place);

Operation make_all_reduce(const ddp_buffer& buffer, ddp_reduction reduction);
Operation make_reduce(const ddp_buffer& buffer, ddp_reduction reduction, std::int32_t root, GroupPlace place);
Operation make_broadcast(const ddp_buffer& buffer, std::int32_t root, GroupPlace place);
Operation make_all_gather(const ddp_buffer& input, const ddp_buffer& output, GroupPlace place);
Operation make_gather(const ddp_buffer& input, const ddp_buffer& output, std::int32_t root, GroupPlace place);
Operation make_scatter(const ddp_buffer& input, const ddp_buffer& output, std::int32_t root, GroupPlace place);
Operation make_reduce_scatter(const ddp_buffer& input, const ddp_buffer& output, ddp_reduction reduction,
                              GroupPlace place);
// With both counts null the elements are divided evenly.
Operation make_all_to_all(const ddp_buffer& input, const std::size_t* input_counts, const ddp_buffer& output,
                          const std::size_t* output_counts, GroupPlace place);
Operation make_send(const ddp_buffer& buffer, std::int32_t destination, std::uint32_t tag, GroupPlace place);
// `source` is a rank or kAnyRank.
Operation make_receive(const ddp_buffer& buffer, std::int32_t source, std::uint32_t tag, GroupPlace place);

}  // namespace ddp::runtime
