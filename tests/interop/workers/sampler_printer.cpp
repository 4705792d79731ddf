// SPDX-License-Identifier: BSD-3-Clause
// Answers each line on stdin, "LENGTH WORLD RANK SEED EPOCH SHUFFLE DROP_LAST CONSUMED", with the
// size and the hash of a DistributedSampler's remaining indices, after CONSUMED of them were
// consumed and its state was loaded into another sampler.
#include <iostream>

#include "ddp/sampler.hpp"
#include "tests/runtime/include/index_hash.hpp"

int main() {
  std::size_t length = 0;
  int world = 0;
  int rank = 0;
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  bool shuffle = false;
  bool drop_last = false;
  std::size_t consumed = 0;
  while (std::cin >> length >> world >> rank >> seed >> epoch >> shuffle >> drop_last >> consumed) {
    ddp::DistributedSampler before(length, world, rank, seed, shuffle, drop_last);
    before.set_epoch(epoch);
    ddp::DistributedSampler sampler(length, world, rank, seed, shuffle, drop_last);
    sampler.load_state(ddp::sampler_state(ddp::to_string(before.state(consumed))));
    std::cout << sampler.size() << ' ' << ddp::test::hash(sampler.indices()) << '\n';
  }
  return 0;
}
