// SPDX-License-Identifier: BSD-3-Clause
// Memory for a model's buckets. On a GPU it may be memory that NCCL knows (DDP_NCCL_REGISTER=1), which then need not be
// copied on its way. NCCL asks for that on all ranks or on none, with windows at the same place: so the ranks agree
// before they allocate, before they register, and afterwards, and all do without if one of them cannot.
#pragma once

#include <cstddef>
#include <vector>

#include "runtime/training/ddp/host_exchange.hpp"
#include "runtime/training/ddp/tensor_place.hpp"

namespace ddp::runtime {

// Returns whether this process asks for such memory. Throws rendezvous::Error{InvalidArgument} for a value that is
// neither 0 nor 1.
bool wants_registered_buckets();

// Returns zeroed memory of these sizes, in bytes. Collective; `registered` is equal on all ranks. Throws
// rendezvous::Error.
std::vector<TensorMemory> make_bucket_memory(const TensorPlace& place, const std::vector<std::size_t>& sizes,
                                             ProcessGroup& group, HostExchange& exchange, bool registered);

}  // namespace ddp::runtime
