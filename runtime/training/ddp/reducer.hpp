// SPDX-License-Identifier: BSD-3-Clause
// DistributedDataParallel's driver. Moves gradients into buckets and out again, issues the
// reductions that reducer_core decides on, and takes part in the other ranks' steps when this rank
// has no input left (join_core).
//
// Parameters' values change only in the constructor and at the end of a join; buffers' also before
// a forward. The caller's gradients change in synchronize(), after everything that the step sends
// has arrived. One thread at a time may call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ddp/ddp.h"
#include "runtime/group/process_group.hpp"
#include "runtime/training/ddp/bucket.hpp"
#include "runtime/training/ddp/host_exchange.hpp"
#include "runtime/training/ddp/join_core.hpp"
#include "runtime/training/ddp/reducer_core.hpp"
#include "runtime/training/ddp/replicated_tensors.hpp"
#include "runtime/training/ddp/tensor_place.hpp"
#include "runtime/training/hooks/comm_hook.hpp"

namespace ddp::runtime {

class Reducer {
 public:
  // Collective. Throws rendezvous::Error: InvalidArgument, Mismatch, or the error of a failed
  // collective.
  Reducer(ProcessGroup& group, const ddp_parameter* parameters, std::size_t count, const ddp_reducer_options& options);
  // Aborts the group if it is in the middle of a step, because buckets in flight use memory that is
  // about to be freed.
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  ProcessGroup& group() { return group_; }
  bool is_on_gpu() const { return place_.is_gpu(); }
  void* gradient(std::size_t i);
  // Between steps: the caller's memory of parameter or buffer i is somewhere else from now on.
  void set_value(std::size_t i, void* value);
  void set_gradient(std::size_t i, void* grad);
  void set_buffer(std::size_t i, void* value);
  void before_forward();
  void mark_ready(std::size_t i);
  void mark_unused(std::size_t i);
  void synchronize();
  bool was_used(std::size_t i) const { return i < gradients_.size() && core_.used_anywhere(i); }
  void set_no_sync(bool enabled) { core_.set_no_sync(enabled); }
  bool no_sync() const { return core_.no_sync(); }
  std::size_t bucket_count() const { return buckets_.size(); }

  // May be called once, before the first backward.
  void register_comm_hook(std::unique_ptr<CommHook> hook);

  void join_begin(JoinCore::Options options);
  void join_end();     // collective
  void join_cancel();  // this rank goes on without the others

 private:
  struct Gradient {
    void* own;               // the caller's memory; null: the gradient lies in its bucket
    std::size_t bucket = 0;  // the bucket it belongs to ...
    std::size_t slice = 0;   // ... and its place among that bucket's gradients
    TensorMemory kept{};     // for a gradient in its bucket: its value, saved in case no rank used it
  };
  // Everything the constructor starts from, once it has been checked.
  struct Checked {
    ProcessGroup& group;
    HostExchange exchange;
    ddp_reducer_options options;
    ReplicatedTensors parameters{};
    TensorPlace place{};
    bool registers_buckets = false;
    ReplicatedTensors buffers{};
    std::vector<Gradient> gradients{};
  };
  enum class Who { ThisRank, Others };  // whose step this rank takes part in

  explicit Reducer(Checked from);
  static ddp_reducer_options with_defaults(ddp_reducer_options options);
  static Checked checked(Checked from, const ddp_parameter* parameters, std::size_t count);
  static std::vector<Gradient> gradients(const ddp_parameter* parameters, const ReplicatedTensors& checked,
                                         const ddp_reducer_options& options);
  static TensorPlace common_place(const ReplicatedTensors& parameters);
  static StepShape shape_of(const ddp_reducer_options& options);
  static std::vector<std::string> names(const ReplicatedTensors& parameters);
  std::vector<PlannedBucket> plan(const std::vector<std::size_t>& order) const;
  void compare_across_ranks();
  bool can_rebuild() const;
  std::vector<Bucket> make_buckets(const std::vector<PlannedBucket>& plan);
  void place_gradients(const std::vector<PlannedBucket>& plan);
  static void check_number(const char* kind, std::size_t i, const ReplicatedTensors& tensors);
  void check_new_place(const ReplicatedTensor& tensor, const void* memory) const;

  void check_capture() const;
  void carry_out();
  void fill(std::size_t i);
  void launch(std::size_t bucket);
  void finish(Who whose);
  void wait_for_buckets();
  void advance_hook();
  void take_out();
  std::vector<std::size_t> agree_on_order();
  void rebuild(const std::vector<std::size_t>& order);
  double share(std::int32_t dtype) const;
  ddp_reduction reduction(std::int32_t dtype) const;
  ddp_grad_bucket view(std::size_t bucket) { return buckets_[bucket].view(bucket, bucket + 1 == buckets_.size()); }

  JoinVerdict exchange_join_words(JoinWord mine);
  void broadcast_buffers(int root);
  void shadow(const JoinVerdict& verdict);
  template <typename Body>
  void communicate(Body&& body);
  template <typename Body>
  auto ask_hook(Body&& body);

  ProcessGroup& group_;
  HostExchange host_exchange_;
  ddp_reducer_options options_;
  ReplicatedTensors parameters_;
  TensorPlace place_;               // where all parameters and their gradients are
  bool registers_buckets_ = false;  // with NCCL
  ReplicatedTensors buffers_;
  std::vector<Gradient> gradients_;
  std::vector<PlannedBucket> plan_;
  ReducerCore core_;
  std::vector<Bucket> buckets_;
  bool will_rebuild_ = false;
  std::unique_ptr<CommHook> hook_;  // null: no hook, the plain average
  std::optional<JoinCore> join_;
  TensorBroadcast broadcast_;

  // State of one step. The vectors keep their memory from step to step.
  ReducerActions actions_;
  std::size_t launched_ = 0;              // number of buckets launched
  std::vector<std::uint64_t> in_flight_;  // per bucket: its reduction's sequence number
  std::vector<bool> done_;                // per bucket: its hook is done
  std::vector<std::uint8_t> used_;        // per parameter: used by this rank; after the exchange: by any rank
  std::vector<JoinWord> join_words_;      // per rank
};

}  // namespace ddp::runtime
