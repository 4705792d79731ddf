// SPDX-License-Identifier: BSD-3-Clause
// Interface of a communication hook, which replaces the plain average of a bucket's gradients.
//
//     backward:      start(bucket 0), start(bucket 1), ...    as buckets fill, strictly in this order, on every rank
//     synchronize(): advance(0), advance(1), ... advance(0), ...    stage after stage, for buckets that are not done
//
// A bucket comes with this rank's own gradients, not divided by anything: the division is up to the
// hook. When advance() reports that a bucket is done, the bucket must hold the final gradients.
// Both methods are called by the reducer's one thread, in the same order on every rank, so that the
// operations they issue match. A rank that has run out of input (join) passes zeros.
//
// The layout of buckets changes once: after the first step they are rebuilt in the order in which
// gradients came.
#pragma once

#include "ddp/ddp.h"

namespace ddp::runtime {

class CommHook {
 public:
  CommHook() = default;
  virtual ~CommHook() = default;
  CommHook(const CommHook&) = delete;
  CommHook& operator=(const CommHook&) = delete;

  // Called when the bucket is full. Issues asynchronous operations and does not wait for them.
  // bucket is valid until the step ends.
  virtual void start(const ddp_grad_bucket& bucket) = 0;
  // Waits for what was issued. Then issues the next stage and returns true, or returns false: the
  // bucket is done. If start() or advance() throws, the reducer aborts its group with that error,
  // so that no rank waits for this one.
  virtual bool advance(const ddp_grad_bucket& bucket) = 0;
};

}  // namespace ddp::runtime
