// SPDX-License-Identifier: BSD-3-Clause
// The learning rate's way through a training.
#pragma once

namespace train {

// At step t of steps, counted from 1: linear warm-up to `peak`, then half a cosine down to a tenth of it.
double learning_rate(int t, int steps, int warmup, double peak);

}  // namespace train
