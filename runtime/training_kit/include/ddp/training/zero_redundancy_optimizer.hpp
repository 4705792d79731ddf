// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// ZeroRedundancyOptimizer: an optimizer whose state is spread over a group's ranks. Each rank has
/// the state of its part of the parameters only, steps that part, and gets the others' new values.
/// The results are bit for bit those of the plain optimizer.
///
///     ddp::DistributedDataParallel model(world, parameters);
///     ddp::ZeroRedundancyOptimizer optimizer(world, parameters);   // AdamW; <ddp::SGD> for the other
///     ...
///     model.synchronize();                                         // every rank has all gradients
///     optimizer.step();                                            // every rank has all new values
///
/// PyTorch gives whole parameters to ranks, largest first. Here all elements are one row that is
/// cut into equal parts, in the middle of a parameter if necessary. Each element is stepped by
/// itself, so bits do not depend on the cuts, and no rank has more than its share even where one
/// parameter is most of the model.
///
/// Since a rank steps only its part, it needs only that part's gradients. With reduce_hook() each gradient is averaged
/// on the rank that steps it, during backward, which sends half as much:
///
///     model.register_comm_hook(optimizer.reduce_hook());            // before the first backward
///     ...
///     ddp::clip_grad_norm(world, optimizer.share(), 1);             // each rank has only its share of the gradients
///
/// It steps parameters in CPU memory. ddp::libtorch::ZeroRedundancyOptimizer is for tensors on a GPU.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ddp/buffer.hpp"
#include "ddp/comm_hook.hpp"
#include "ddp/error.hpp"
#include "ddp/parameter.hpp"
#include "ddp/process_group.hpp"
#include "ddp/training/optimizer.hpp"
#include "ddp/work.hpp"

namespace ddp {

namespace detail {

// Averages each gradient on the rank whose part of the row it is in. A bucket is cut where the parts are.
class ReduceToOwner final : public CommHook {
 public:
  ReduceToOwner(ProcessGroup group, std::vector<Parameter> parameters, std::size_t share)
      : group_(group), parameters_(std::move(parameters)), row_(parameters_), share_(share) {}

  void start(const GradBucket& bucket) override {
    if (bucket.index() >= works_.size()) works_.resize(bucket.index() + 1);
    for (const Run& run : runs_of(bucket)) {
      works_[bucket.index()].push_back(group_.reduce_async(run.gradients, ReduceOp::Avg, run.owner));
    }
  }
  bool advance(const GradBucket& bucket) override {
    for (const Work& work : works_[bucket.index()]) work.wait();
    works_[bucket.index()].clear();
    return false;
  }

 private:
  struct Run {
    int owner;
    Buffer gradients;
  };

  // Returns neighbouring gradients of one owner together.
  std::vector<Run> runs_of(const GradBucket& bucket) const {
    std::vector<Run> runs;
    for (std::size_t k = 0; k < bucket.size(); ++k) {
      const Buffer gradient = bucket.gradient(k);
      const std::size_t i = bucket.parameter(k);
      check(i, gradient.count);
      const std::size_t size = element_size(parameters_[i].dtype);
      for (std::size_t first = 0; first < gradient.count;) {
        const std::size_t owner = (row_.offset(i) + first * size) / share_;
        const std::size_t end = std::min(gradient.count, ((owner + 1) * share_ - row_.offset(i)) / size);
        add(runs, static_cast<int>(owner),
            {element_at(gradient.data, first, gradient.dtype), end - first, gradient.dtype, gradient.device});
        first = end;
      }
    }
    return runs;
  }
  static void add(std::vector<Run>& runs, int owner, const Buffer& gradients) {
    if (runs.empty() || runs.back().owner != owner) return runs.push_back({owner, gradients});
    runs.back().gradients.count += gradients.count;  // a bucket has no gaps
  }
  void check(std::size_t i, std::size_t count) const {
    if (i < parameters_.size() && parameters_[i].count == count) return;
    throw Error(Status::InvalidArgument, "ZeroRedundancyOptimizer: parameter " + std::to_string(i) +
                                             " of the model is another one of the optimizer: with reduce_hook() give "
                                             "both the same parameters in the same order");
  }

  ProcessGroup group_;
  std::vector<Parameter> parameters_;
  ParameterRow row_;
  std::size_t share_;
  std::vector<std::vector<Work>> works_;  // by bucket
};

}  // namespace detail

/// An optimizer whose state is spread over a group's ranks. All its calls are collectives of the
/// group: one thread at a time, the group's deadline and errors. Destroy it before its session.
/// Source: torch.distributed.optim.ZeroRedundancyOptimizer.
template <typename Plain = AdamW>
class ZeroRedundancyOptimizer : public OptimizerShard<typename Plain::Rule> {
  using Shard = OptimizerShard<typename Plain::Rule>;

 public:
  using Options = typename Shard::Options;  ///< AdamWOptions or SGDOptions
  using Group = typename Shard::Group;      ///< parameters, and options for them

  /// Makes the optimizer. Every rank gives the same parameters with the same values, which
  /// DistributedDataParallel ensures; their memory must stay. Throws Error: Status::Mismatch on
  /// every rank if numbers or types differ, and as Optimizer's constructor does.
  ZeroRedundancyOptimizer(ProcessGroup group, std::vector<Parameter> parameters, const Options& options = {})
      : ZeroRedundancyOptimizer(group, std::vector<Group>{{std::move(parameters), options}}) {}
  /// Makes the optimizer for groups of parameters, each with its options.
  ZeroRedundancyOptimizer(ProcessGroup group, const std::vector<Group>& groups)
      : Shard(groups), group_(group), ranks_(static_cast<std::size_t>(group.size())) {
    using detail::ParameterRow;
    check_same_everywhere();
    share_ = ParameterRow::aligned((this->row().bytes() + ranks_ - 1) / ranks_);
    chunk_ = ParameterRow::aligned(kGatheredBytes / ranks_);
    const std::size_t begin = share_ * static_cast<std::size_t>(group.rank());
    this->take(begin, begin + share_, share_, true);
    if (ranks_ == 1) return;
    for (Slot& slot : slots_) {
      slot.sent.resize(std::min(share_, chunk_));
      slot.received.resize(slot.sent.size() * ranks_);
    }
  }

  /// Takes one step with the current gradients, which are the same on every rank. The others' new
  /// values arrive while this rank computes, in the memory of the gradients, which hold nothing
  /// useful afterwards; when all are there they become the parameters'. So a step that fails leaves
  /// the parameters as they were on this rank, and at most one step further on another. The state
  /// then belongs to neither step: go on from a checkpoint. In memory of ddp::Kept it marks the update's begin and its
  /// end; if the memory has this update already, no rank writes or sends anything.
  void step() {
    if (this->begin_update()) step_together();
    this->end_update();
  }

  /// Returns the part of the parameters that this rank steps, for ddp::clip_grad_norm() over the group: each parameter
  /// that lies in it, or the elements of it that do.
  std::vector<Parameter> share() const { return this->part(); }

  /// Returns a communication hook for DistributedDataParallel::register_comm_hook() that averages each gradient on the
  /// rank that steps it, and nowhere else: half of what is sent otherwise. Elsewhere the gradients hold nothing useful
  /// afterwards. The model has the same parameters in the same order as this optimizer, or those that MasterWeights
  /// made this one's of. The optimizer need not outlive the hook. Source: hook_with_zero_step of PyTorch, of which this
  /// is the first half.
  std::shared_ptr<CommHook> reduce_hook() const {
    return std::make_shared<detail::ReduceToOwner>(group_, this->parameters(), share_);
  }

  /// Returns the whole state on root, and an empty one on the other ranks. Source:
  /// consolidate_state_dict() and state_dict() of PyTorch.
  OptimizerState state_dict(int root = 0, const std::string& prefix = "optimizer.") {
    const bool here = group_.rank() == root;
    std::vector<std::vector<std::byte>> memory;
    for (const auto& part : this->states()) {
      std::vector<std::byte> whole(here ? share_ * ranks_ : 0);
      group_.gather(bytes(part.data, part.size), bytes(whole.data(), whole.size()), root);
      memory.push_back(std::move(whole));
    }
    return here ? this->make_state(std::move(memory), prefix) : OptimizerState();
  }

 private:
  // Size of one all_gather: large enough to be fast, small compared with any model.
  static constexpr std::size_t kGatheredBytes = 4 << 20;

  // Memory for one all_gather; while one is on its way, the next is computed into the other slot.
  struct Slot {
    std::vector<std::byte> sent;
    std::vector<std::byte> received;
    std::size_t at = 0;     // offset of the chunk in each rank's part
    std::size_t bytes = 0;  // size of the chunk
    Work work = {};
    bool is_busy = false;
  };

  void step_together() {
    this->count_step();
    if (ranks_ == 1) return this->update(0, share_, nullptr);
    try {
      exchange();
    } catch (const Error& error) {
      const std::optional<Error> earlier = end_of_exchange();
      if (earlier && error.status() == Status::Aborted) throw *earlier;  // the cause of what came after it
      throw;
    }
    for (const Parameter& p : this->parameters()) {
      if (p.count > 0) std::memcpy(p.value, p.grad, p.count * element_size(p.dtype));
    }
  }

  static Buffer bytes(std::byte* data, std::size_t count) { return Buffer(data, count, DType::UInt8); }

  void exchange() {
    std::size_t next = 0;
    for (std::size_t at = 0; at < share_; at += chunk_, next ^= 1U) {
      Slot& slot = slots_[next];
      receive(slot);
      slot.at = at;
      slot.bytes = std::min(chunk_, share_ - at);
      this->update(begin_of(group_.rank()) + at, begin_of(group_.rank()) + at + slot.bytes, slot.sent.data());
      slot.work = group_.all_gather_async(bytes(slot.sent.data(), slot.bytes),
                                          bytes(slot.received.data(), slot.bytes * ranks_));
      slot.is_busy = true;
    }
    for (Slot& slot : slots_) receive(slot);
  }

  // Stores new values in the memory of the gradients from which they were computed; those are no longer needed.
  void receive(Slot& slot) {
    if (!std::exchange(slot.is_busy, false)) return;
    slot.work.wait();
    for (std::size_t r = 0; r < ranks_; ++r) {
      const std::size_t begin = begin_of(static_cast<int>(r)) + slot.at;
      const std::byte* from = slot.received.data() + r * slot.bytes;
      this->row().for_each_piece(begin, begin + slot.bytes, [&](const detail::ParameterRow::Piece& piece) {
        const Parameter& p = this->parameters()[piece.parameter];
        std::memcpy(detail::element_at(p.grad, piece.first, p.dtype), from + (piece.offset - begin),
                    this->bytes_of(piece));
      });
    }
  }

  // Ends operations in flight after a failure, so that their memory may go. Returns their error, if any.
  std::optional<Error> end_of_exchange() {
    std::optional<Error> failure;
    for (Slot& slot : slots_) {
      try {
        if (std::exchange(slot.is_busy, false)) slot.work.wait();
      } catch (const Error& error) {
        failure = error;
      }
    }
    return failure;
  }

  std::size_t begin_of(int rank) const { return share_ * static_cast<std::size_t>(rank); }

  void check_same_everywhere() const {
    std::uint64_t mine = 14695981039346656037U;  // FNV-1a, over numbers
    for (const Parameter& p : this->parameters()) {
      mine = (mine ^ p.count) * 1099511628211U;
      mine = (mine ^ static_cast<std::uint64_t>(p.dtype)) * 1099511628211U;
    }
    std::vector<std::uint64_t> all(ranks_);
    group_.all_gather({&mine, 1}, all);
    for (std::size_t r = 1; r < ranks_; ++r) {
      if (all[r] == all[0]) continue;
      throw Error(Status::Mismatch, "ZeroRedundancyOptimizer: rank " + std::to_string(r) + " of " + group_.name() +
                                        " gave other parameters than rank 0, in number, sizes or types");
    }
  }

  ProcessGroup group_;
  std::size_t ranks_;
  std::size_t share_ = 0;  // bytes of each rank's part; the last ones' may reach beyond the row, or lie there
  std::size_t chunk_ = 0;  // bytes of each rank's part in one all_gather
  std::array<Slot, 2> slots_;
};

}  // namespace ddp
