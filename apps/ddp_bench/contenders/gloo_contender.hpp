// SPDX-License-Identifier: BSD-3-Clause
// Gloo, called as a program would that does without libddp: a context of its own, the same algorithms and transport. It
// is in a module: where libddp opens Gloo first, libddp's corrections of it are there for both, else for none.
#pragma once

#include "apps/ddp_bench/contenders/contender.hpp"
#include "ddp/store.hpp"

namespace ddp::bench {

// Connects with the other ranks' through `store`, on loopback. The caller owns it.
extern "C" __attribute__((visibility("default"))) Contender* ddp_bench_gloo_contender(const Store* store, int rank,
                                                                                      int size);
inline constexpr const char* kGlooContender = "ddp_bench_gloo_contender";
inline constexpr const char* kGlooModule = "libbench_gloo.so";

}  // namespace ddp::bench
