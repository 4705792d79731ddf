// SPDX-License-Identifier: BSD-3-Clause
// Training where ranks have different amounts of input. At the beginning of each step every rank
// says what it is about to do. All ranks see all of these words and draw the same conclusions:
//
//     some ranks have input    the others take part in the step's operations with zeros
//     no rank has input        the model of the last rank that had input becomes everyone's
//
// Source: torch.distributed.algorithms.join.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace ddp::runtime {

// What one rank says at the beginning of a step.
struct JoinWord {
  std::int32_t has_input = 0;
  std::int32_t synchronizes = 0;  // its backward is not inside no_sync
};

struct JoinVerdict {
  int active = 0;                    // ranks that have input; 0: this was the last step
  int authority = 0;                 // the rank whose buffers, and at the end whose model, all others get
  bool synchronizes = false;         // the step ends with reductions
  std::optional<std::string> early;  // if set: why all ranks stop instead
};

class JoinCore {
 public:
  struct Options {
    bool divide_by_initial_world_size = true;
    bool throw_on_early_termination = false;
  };

  JoinCore(Options options, int ranks) : options_(options), last_active_(ranks - 1) {}

  // Decides how the next step goes. words has one entry per rank, this one included.
  JoinVerdict decide(std::span<const JoinWord> words);
  // Returns the divisor for sums of gradients in the step that decide() has begun.
  int divisor(int ranks) const { return options_.divide_by_initial_world_size ? ranks : active_; }

 private:
  Options options_;
  int active_ = 0;
  int last_active_;  // the highest rank that had input in the step before
};

}  // namespace ddp::runtime
