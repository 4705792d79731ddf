// SPDX-License-Identifier: BSD-3-Clause
// Decides when buckets are launched, which gradients are in them, and which calls are mistakes. Has
// no gradient memory, no threads and no communication.
//
//     before_forward()     mark_ready(i) ... mark_ready(j)     synchronize()     end_step()
//          |                         |                              |                |
//     buffers, or not       fill, launch in bucket order       what is left      a new step
//
// Buckets are launched strictly in order: all ranks must launch the same buckets in the same order,
// although their backwards may finish gradients in different orders. Under no_sync nothing is
// filled or launched; which gradients were used is remembered until the next step.
//
// A gradient that this rank did not use in the step goes into its bucket too: it may be an average of
// an earlier step, to which this step's gradients are added. Source: torch reducer.cpp,
// mark_variable_ready_dense().
//
// A mistake is final: the other ranks may have gone on, so no later operation would match theirs.
// Every later call throws the same error again.
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
  All,     // every parameter, each marked once
  Any,     // unmarked parameters count as unused: find_unused_parameters
  AsFirst  // each as often as in the first step: static_graph
};

// What the driver does next, in this order. The driver passes the same object each time, so nothing
// is allocated.
struct ReducerActions {
  std::vector<std::size_t> fill;    // parameters whose gradient goes into its bucket
  std::vector<std::size_t> launch;  // buckets to reduce
  void clear();
};

class ReducerCore {
 public:
  // names are the parameters' names in error messages: "parameter 3 (fc1.weight)".
  ReducerCore(std::vector<std::string> names, const std::vector<PlannedBucket>& plan, StepShape shape = StepShape::All);

  // A forward begins. Returns whether buffers are broadcast before it: yes, unless the forward
  // before it was inside no_sync.
  bool before_forward();
  // Gradient i is complete.
  void mark_ready(std::size_t i, ReducerActions& actions);
  // This rank does not use parameter i in this step: its gradient is what it was.
  void mark_unused(std::size_t i, ReducerActions& actions);
  // The step ends. Returns false under no_sync, where there is nothing to wait for. After true the
  // driver carries out the actions, waits for all buckets and calls end_step().
  bool synchronize(ReducerActions& actions);
  void end_step();
  void set_no_sync(bool enabled);

  // A step of the other ranks, to which this rank contributes only zeros (join): it launches all buckets.
  bool shadow_forward(bool synchronizes);
  void shadow_step(ReducerActions& actions);
  // Sets whether every backward must have a before_forward(), as inside a join.
  void set_joining(bool joining);
  void cancel_joining();

  // Uses other buckets from the next step on.
  void replan(const std::vector<PlannedBucket>& plan);
  // Returns the parameters in the order in which their gradients came in the step that ends now;
  // those that never came are last.
  std::vector<std::size_t> ready_order() const;
  // Returns for each parameter 1 if this rank has used it since the last step, else 0. The driver
  // combines the answers of all ranks and passes the result, in the same form, to
  // set_used_anywhere().
  const std::vector<std::uint8_t>& used_here() const { return used_; }
  bool asks_who_used() const;  // whether the step that ends now needs that exchange
  void set_used_anywhere(const std::vector<std::uint8_t>& anywhere) { used_anywhere_ = anywhere; }
  bool used_here(std::size_t i) const { return used_[i] != 0; }
  bool used_anywhere(std::size_t i) const { return shape_ == StepShape::All || used_anywhere_[i] != 0; }

  // Makes an error from elsewhere final, as if it were a mistake found here.
  void give_up(const rendezvous::Error& error);
  void throw_if_failed() const;
  bool in_step() const { return in_step_; }
  bool no_sync() const { return no_sync_; }
  // Has a step begun since construction?
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
  std::vector<std::size_t> order_;           // parameters in the order of the buckets' memory
  std::vector<std::size_t> bucket_of_;       // per parameter
  std::vector<std::size_t> bucket_sizes_;    // number of parameters, per bucket
  std::vector<std::uint8_t> used_;           // per parameter, since the last step
  std::vector<std::uint8_t> used_anywhere_;  // per parameter, in the step that ends now; with AsFirst in the first step
  std::vector<std::uint32_t> expected_;      // per parameter: marks of the first step; AsFirst only
  std::vector<std::uint32_t> marks_;         // per parameter, this step
  std::vector<std::uint64_t> last_mark_;  // per parameter: the number of its last mark, counted over all marks; 0: none
  std::vector<bool> ready_;               // per parameter, this step
  std::vector<bool> marked_unused_;       // per parameter, this step
  std::vector<std::size_t> missing_;      // per bucket, this step: gradients that have not come yet
  std::uint64_t mark_count_ = 0;          // since construction
  std::size_t next_bucket_ = 0;
  bool knows_first_ = false;  // AsFirst: expected_ is valid
  bool knows_used_ = false;   // AsFirst: used_anywhere_ is valid; this rank may have had no input in that step (join)
  bool in_step_ = false;
  bool has_begun_ = false;
  bool no_sync_ = false;
  bool buffers_due_ = true;
  bool joining_ = false;
  bool forward_open_ = false;  // joining: before_forward() was called for a step that has not ended
  std::optional<rendezvous::Error> failure_;
};

}  // namespace ddp::runtime
