// SPDX-License-Identifier: BSD-3-Clause
// Gloo, called as a program would that does without libddp: a context of its own, the same algorithms and transport.
#pragma once

#include <memory>

#include "apps/ddp_bench/contender.hpp"
#include "ddp/store.hpp"

namespace ddp::bench {

// Connects with the other ranks' through `store`, on loopback.
std::unique_ptr<Contender> gloo_contender(Store store, int rank, int size);

}  // namespace ddp::bench
