// SPDX-License-Identifier: BSD-3-Clause
// The optimizer, and what is done to gradients and learning rate around it.
#pragma once

#include "apps/train/gpt.hpp"

namespace train {

// One step of Adam with decoupled weight decay (Loshchilov and Hutter 2019), in the order of torch.optim.AdamW; t
// counts steps from 1. Matrices decay; biases and gains do not.
void adamw_step(Parameters& parameters, int t, float learning_rate, float weight_decay);

// Scales all gradients so that their common norm is at most `limit` (0: no limit). Returns the norm before.
// Under DDP: after averaging, so that every rank scales by the same number.
double clip_gradients(Parameters& parameters, double limit);

// At step t of steps, counted from 1: linear warm-up to `peak`, then half a cosine down to a tenth of it.
float learning_rate(int t, int steps, int warmup, float peak);

}  // namespace train
