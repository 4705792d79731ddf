// SPDX-License-Identifier: BSD-3-Clause
// Decides when buckets go, which gradients are in them and what is a mistake; no memory of gradients, no threads, no
// communication.
//
//     before_forward()     mark_ready(i) ... mark_ready(j)     synchronize()     end_step()
//          |                         |                              |                |
//     buffers, or not     fill, zero, launch in bucket order   what is left      a new step
//
// Strictly in order, because all ranks must launch the same buckets in the same order while their backwards may not.
// Under no_sync nothing is filled or launched; which gradients were used is remembered until the next step.
//
// A mistake is final: the other ranks may have gone on, so nothing that follows would fit together. Every later call
// throws the same error again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/error.hpp"
#include "runtime/training/ddp/bucket_plan.hpp"

namespace ddp::runtime {

// Which parameters take part in a step.
enum class StepShape {
  All,     // every one, marked once
  Any,     // who is not marked is unused: find_unused_parameters
  AsFirst  // as often as in the first step: static_graph
};

// What the driver does next, in this order; it hands the same object in again and again, so nothing is allocated.
struct ReducerActions {
  std::vector<std::size_t> fill;    // parameters whose gradient goes into its bucket
  std::vector<std::size_t> zero;    // parameters in whose place there go zeros
  std::vector<std::size_t> launch;  // buckets to reduce
  void clear();
};

class ReducerCore {
 public:
  // names: of the parameters, as errors call them: "parameter 3 (fc1.weight)".
  ReducerCore(std::vector<std::string> names, const std::vector<PlannedBucket>& plan, StepShape shape = StepShape::All);

  // A forward begins. True: this is one before which buffers are broadcast; not inside no_sync, but for the first.
  bool before_forward();
  // Gradient i is there.
  void mark_ready(std::size_t i, ReducerActions& actions);
  // Gradient i will not come in this step.
  void mark_unused(std::size_t i, ReducerActions& actions);
  // The step ends. False: no_sync, nothing to wait for. True: the driver carries out the actions, waits for all
  // buckets, and calls end_step().
  bool synchronize(ReducerActions& actions);
  void end_step();
  void set_no_sync(bool enabled);

  // Another rank's step, in which this one has no part (join).
  bool shadow_forward(bool synchronizes);
  void shadow_step(ReducerActions& actions);
  // Every backward has its before_forward() from now on, or no longer.
  void set_joining(bool joining);
  void cancel_joining();

  // Buckets are others from the next step on.
  void replan(const std::vector<PlannedBucket>& plan);
  // Parameters in the order in which their gradients came in the step that ends now (those that never came last).
  std::vector<std::size_t> ready_order() const;
  // Per parameter: 1 if this rank has used it since the step before. What all ranks say together, in the same form,
  // goes into set_used_anywhere().
  const std::vector<std::uint8_t>& used_here() const { return used_; }
  bool asks_who_used() const;  // in the step that ends now
  void set_used_anywhere(const std::vector<std::uint8_t>& anywhere) { used_anywhere_ = anywhere; }
  bool used_anywhere(std::size_t i) const { return shape_ == StepShape::All || used_anywhere_[i] != 0; }

  // Something else went wrong: that is final too.
  void give_up(const rendezvous::Error& error);
  void throw_if_failed() const;
  bool in_step() const { return in_step_; }
  bool no_sync() const { return no_sync_; }
  // Has a step begun since the model was made?
  bool has_begun() const { return has_begun_; }

 private:
  [[noreturn]] void fail(const std::string& why);
  void check_number(std::size_t i);
  void begin_step(ReducerActions& actions);
  void count_mark(std::size_t i, ReducerActions& actions);
  void become_ready(std::size_t i, ReducerActions& actions);
  void check_all_marked();
  void check_as_first();
  [[noreturn]] void fail_unlike_first(std::size_t i);

  StepShape shape_;
  std::vector<std::string> names_;
  std::vector<std::size_t> order_;           // parameters as they lie in the buckets
  std::vector<std::size_t> bucket_of_;       // per parameter
  std::vector<std::size_t> bucket_sizes_;    // parameters in it
  std::vector<std::uint8_t> used_;           // per parameter, since the last step
  std::vector<std::uint8_t> used_anywhere_;  // per parameter, in the step that ends now; of AsFirst in the first
  std::vector<std::uint32_t> expected_;      // per parameter: marks of the first step; AsFirst only
  std::vector<std::uint32_t> marks_;         // per parameter, this step
  std::vector<std::uint64_t> last_mark_;     // per parameter: which of all marks it was; 0: none
  std::vector<bool> ready_;                  // per parameter, this step
  std::vector<bool> marked_unused_;          // per parameter, this step
  std::vector<std::size_t> missing_;         // per bucket, this step
  std::uint64_t mark_count_ = 0;             // since the beginning
  std::size_t next_bucket_ = 0;
  bool knows_first_ = false;  // AsFirst: expected_ means something
  bool knows_used_ = false;   // AsFirst: used_anywhere_ does; this rank may have had no part in that step (join)
  bool in_step_ = false;
  bool has_begun_ = false;
  bool no_sync_ = false;
  bool buffers_due_ = true;
  bool joining_ = false;
  bool forward_open_ = false;  // joining: before_forward() was called for a step that has not ended
  std::optional<rendezvous::Error> failure_;
};

}  // namespace ddp::runtime
