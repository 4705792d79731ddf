// SPDX-License-Identifier: BSD-3-Clause
// Gloo, called as a program without libddp would call it: with a context of its own, the same algorithms and the same
// transport. It is in a module: if libddp opens Gloo first, both use libddp's corrections of Gloo, else neither does.
#pragma once

#include "apps/ddp_bench/contenders/contender.hpp"
#include "ddp/store.hpp"

namespace ddp::bench {

// Returns a contender that the caller owns, connected with the other ranks' through `store` on loopback.
extern "C" __attribute__((visibility("default"))) Contender* ddp_bench_gloo_contender(const Store* store, int rank,
                                                                                      int size);
inline constexpr const char* kGlooContender = "ddp_bench_gloo_contender";
inline constexpr const char* kGlooModule = "libbench_gloo.so";

}  // namespace ddp::bench
