// SPDX-License-Identifier: BSD-3-Clause
// Trains one GPT on all workers of a job. trainer.cpp is the file to learn libddp from.
#pragma once

#include "apps/train/options.hpp"

namespace train {

// Runs a whole training. Every worker calls it with the same options. Throws Failure and
// ddp::Error.
void train(const Options& options);

}  // namespace train
