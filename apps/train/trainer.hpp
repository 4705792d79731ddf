// SPDX-License-Identifier: BSD-3-Clause
// Trains one GPT on all workers of a job. trainer.cpp is the page to learn libddp from.
#pragma once

#include "apps/train/options.hpp"

namespace train {

// Every worker calls it with the same options; from start to end. Throws Failure and ddp::Error.
void train(const Options& options);

}  // namespace train
