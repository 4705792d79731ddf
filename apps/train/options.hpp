// SPDX-License-Identifier: BSD-3-Clause
// The command line of `train`. With the defaults, training takes well under a minute on two cores.
#pragma once

#include <cstdint>
#include <string>

#include "apps/train/model/gpt.hpp"

namespace train {

struct Options {
  std::string data = "/usr/share/common-licenses";
  GptShape shape;

  int steps = 600;
  int global_batch = 16;  // sequences per step, of all workers together
  double learning_rate = 6e-3;
  int warmup = 40;
  double weight_decay = 0.1;
  double clip = 1;
  std::uint64_t seed = 1;

  std::string checkpoint = "train-checkpoint.safetensors";
  int checkpoint_every = 100;  // steps; 0: write no checkpoint
  bool resume = false;
  bool keep = false;

  int validate_every = 100;  // steps; 0: at start and end only
  int sample_bytes = 300;
  std::string log;    // path; empty: none
  std::string times;  // path; empty: none

  std::string help;  // if not empty, the user asked for help: print it and stop
};

// Throws BadInput.
Options parse_options(int argc, const char* const* argv);

}  // namespace train
