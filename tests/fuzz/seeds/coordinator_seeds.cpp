// SPDX-License-Identifier: BSD-3-Clause
// Writes coordinator_fuzzer's first inputs: whole jobs of every shape, with one lie of each kind in the middle.
// usage: coordinator_seeds CORPUS_FOLDER
#include <string>

#include "tests/fuzz/coordinator_script.hpp"
#include "tests/fuzz/seeds/seeds.hpp"

namespace {

using ddp::fuzz::Step;

std::string one(std::size_t peer, Step step, const std::string& operands = "") {
  return ddp::fuzz::step_byte(peer, step) + operands;
}

std::string all(Step step) {
  std::string steps;
  for (std::size_t peer = 0; peer < ddp::fuzz::kPeers; ++peer) steps += one(peer, step);
  return steps;
}

// A job of some nodes: they come, run, fail and are restarted, run again and succeed. `middle` happens while they run.
std::string job(char nodes, char more, const std::string& middle) {
  std::string script = {nodes, more};
  script += all(Step::Open) + all(Step::Honest) + one(0, Step::Wait, "\50") + one(0, Step::Store);
  script += all(Step::Obey) + middle + one(1, Step::Fail) + all(Step::Obey) + all(Step::Beat);
  script += one(0, Step::Wait, "\24") + one(0, Step::Store) + all(Step::Obey) + all(Step::Succeed);
  return script + all(Step::Obey) + one(0, Step::Wait, "\144");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  ddp::fuzz::Seeds seeds(argv[1]);
  for (const char nodes : {'\0', '\1', '\2', '\4', '\5', '\10', '\12'}) {
    for (const char more : {'\0', '\1', '\4', '\5', '\7'}) seeds.write(job(nodes, more, ""));
  }
  for (char field = 0; field < 22; ++field) {
    for (const unsigned value : {0U, 9U, 240U, 241U, 246U}) {
      const std::string lie = one(1, Step::Lie, {field, static_cast<char>(value), 'a', 'b', 'c'});
      seeds.write(job(5, 5, lie + one(1, Step::Open) + one(1, Step::Honest)));
    }
  }
  for (const Step step : {Step::Close, Step::Repeat, Step::Claim, Step::Signal, Step::Leave, Step::LieForEver}) {
    seeds.write(job(8, 2, one(1, step, "\2\2") + one(1, Step::Open) + one(1, Step::Honest)));
  }
  return seeds.count() > 0 ? 0 : 1;
}
