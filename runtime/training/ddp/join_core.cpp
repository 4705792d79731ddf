// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training/ddp/join_core.hpp"

namespace ddp::runtime {

JoinVerdict JoinCore::decide(std::span<const JoinWord> words) {
  JoinVerdict verdict;
  std::string first_without;
  int highest = -1;
  for (std::size_t rank = 0; rank < words.size(); ++rank) {
    if (words[rank].has_input != 0) {
      ++verdict.active;
      highest = static_cast<int>(rank);
      verdict.synchronizes |= words[rank].synchronizes != 0;
    } else if (first_without.empty()) {
      first_without = std::to_string(rank);
    }
  }
  verdict.authority = highest >= 0 ? highest : last_active_;
  if (options_.throw_on_early_termination && verdict.active > 0 && !first_without.empty()) {
    verdict.early = "rank " + first_without + " has no more input while " + std::to_string(verdict.active) + " of " +
                    std::to_string(words.size()) + " ranks have: all stop, as throw_on_early_termination asks";
  }
  active_ = verdict.active;
  last_active_ = verdict.authority;
  return verdict;
}

}  // namespace ddp::runtime
