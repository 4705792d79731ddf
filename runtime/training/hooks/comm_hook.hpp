// SPDX-License-Identifier: BSD-3-Clause
// How a bucket's gradients travel, if not as the plain average that the model makes by itself.
//
//     backward:      start(bucket 0), start(bucket 1), ...    as they fill, strictly in this order, on every rank
//     synchronize(): advance(0), advance(1), ... advance(0), ...    stage after stage, those that are not done
//
// A bucket comes with this rank's own gradients, not divided: the division is the hook's. When advance() says that it
// is done, the bucket holds what the gradients shall be. Both are called by the model's one thread, in the same order
// on every rank, so that the operations which they issue meet. A rank that has run out of input (join) passes zeros.
//
// Buckets change once, when they are rebuilt in the order in which gradients come: after the first step.
#pragma once

#include "ddp/ddp.h"

namespace ddp::runtime {

class CommHook {
 public:
  CommHook() = default;
  virtual ~CommHook() = default;
  CommHook(const CommHook&) = delete;
  CommHook& operator=(const CommHook&) = delete;

  // The bucket is full. Issues asynchronous operations and does not wait. bucket is valid until the step ends.
  virtual void start(const ddp_grad_bucket& bucket) = 0;
  // Waits for what was issued; issues the next stage and returns true, or returns false: done. Both throw what went
  // wrong; the model aborts its group with that, so that no rank waits for this one.
  virtual bool advance(const ddp_grad_bucket& bucket) = 0;
};

}  // namespace ddp::runtime
