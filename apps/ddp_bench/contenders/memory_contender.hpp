// SPDX-License-Identifier: BSD-3-Clause
// The lower bound for every library: each rank reads what it must read and writes what it must write, each byte once,
// all ranks at the same time, and nothing is communicated. It is measured in the same rounds as the libraries, so
// caches and CPUs are equally busy. (If ranks outnumber the CPUs they take turns; a short call is then timed while its
// rank has a CPU.)
#pragma once

#include "apps/ddp_bench/contenders/contender.hpp"

namespace ddp::bench {

class MemoryContender : public Contender {
 public:
  explicit MemoryContender(const Contender& ranks) : rank_(ranks.rank()), size_(ranks.size()) {}

  const char* name() const override { return "memory"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  bool has(Collective collective) const override { return collective != Collective::Barrier; }
  bool communicates() const override { return false; }
  void run(Collective collective, const float* input, float* output, std::size_t count) override;

 private:
  int rank_;
  int size_;
};

}  // namespace ddp::bench
