// SPDX-License-Identifier: BSD-3-Clause
// Training where ranks have different amounts of input. At the beginning of each step every rank says what it is about
// to do, and from what all of them said each draws the same conclusions:
//
//     somebody has input      those that have none go along: they take part in the step's operations with zeros
//     nobody has              the model of the last one that had becomes everybody's
//
// Source: torch.distributed.algorithms.join.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace ddp::runtime {

// One rank's word.
struct JoinWord {
  std::int32_t has_input = 0;
  std::int32_t synchronizes = 0;  // its backward is not inside no_sync
};

struct JoinVerdict {
  int active = 0;                    // ranks that have input; 0: this was the last step
  int authority = 0;                 // whose buffers, or in the end whose model, everybody gets
  bool synchronizes = false;         // the step ends with reductions
  std::optional<std::string> early;  // why all stop instead
};

class JoinCore {
 public:
  struct Options {
    bool divide_by_initial_world_size = true;
    bool throw_on_early_termination = false;
  };

  JoinCore(Options options, int ranks) : options_(options), last_active_(ranks - 1) {}

  // words: of all ranks, this one's among them.
  JoinVerdict decide(std::span<const JoinWord> words);
  // What a sum of gradients is divided by in the step that decide() has begun.
  int divisor(int ranks) const { return options_.divide_by_initial_world_size ? ranks : active_; }

 private:
  Options options_;
  int active_ = 0;
  int last_active_;  // the highest rank that had input in the step before
};

}  // namespace ddp::runtime
