// SPDX-License-Identifier: BSD-3-Clause
// The schedule of the learning rate.
#pragma once

namespace train {

// Returns the learning rate at step t of `steps`, counted from 1: a linear warm-up to `peak`, then
// half a cosine down to a tenth of it.
double learning_rate(int t, int steps, int warmup, double peak);

}  // namespace train
