// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddp_bench/collectives/check.hpp"

#include <algorithm>

namespace ddp::bench {
namespace {

constexpr std::size_t kPeriod = 97;  // a prime, so that neighbouring parts of any size differ
constexpr float kUntouched = -1;

float value(std::size_t element) { return static_cast<float>(element % kPeriod); }

bool is_sum(Collective collective) {
  return collective == Collective::AllReduce || collective == Collective::Reduce ||
         collective == Collective::ReduceScatter;
}

bool only_root_has_result(Collective collective) {
  return collective == Collective::Reduce || collective == Collective::Gather;
}

}  // namespace

void CheckedCall::fill(float* input, float* output) const {
  const std::size_t part = count / static_cast<std::size_t>(size);
  const std::size_t mine = part * static_cast<std::size_t>(rank);
  const bool gathers = collective == Collective::AllGather || collective == Collective::Gather;
  // Ranks differ where results are summed, and in all_to_all, so that a result shows its sender.
  const bool differs = is_sum(collective) || collective == Collective::AllToAll;
  const float own = differs ? static_cast<float>(rank) : 0;
  for (std::size_t i = 0; i < count; ++i) input[i] = value(gathers ? mine + i : i) + own;
  const bool in_place = collective == Collective::AllReduce || collective == Collective::Reduce ||
                        (collective == Collective::Broadcast && rank == 0);
  for (std::size_t i = 0; i < count; ++i) output[i] = in_place ? input[i] : kUntouched;
}

std::string CheckedCall::what_is_wrong(const float* output) const {
  if (collective == Collective::Barrier || (only_root_has_result(collective) && rank != 0)) return "";
  const auto ranks = static_cast<std::size_t>(size);
  const std::size_t part = count / ranks;
  const bool scatters = collective == Collective::ReduceScatter || collective == Collective::Scatter;
  const std::size_t first = scatters || collective == Collective::AllToAll ? part * static_cast<std::size_t>(rank) : 0;
  for (std::size_t i = 0; i < (scatters ? part : count); ++i) {
    float expected = value(first + i);
    if (is_sum(collective)) {
      expected = expected * static_cast<float>(size) + static_cast<float>(ranks * (ranks - 1) / 2);
    } else if (collective == Collective::AllToAll) {
      expected = value(first + i % part) + static_cast<float>(i / part);
    }
    if (output[i] == expected) continue;
    return "element " + std::to_string(i) + " is " + std::to_string(output[i]) + ", not " + std::to_string(expected);
  }
  return "";
}

}  // namespace ddp::bench
