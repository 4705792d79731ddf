// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Kept memory: a model and its optimizer's state that outlive their process, so that a restarted
/// worker goes on after the last complete step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ddp/buffer.hpp"
#include "ddp/ddp.h"
#include "ddp/error.hpp"
#include "ddp/optimizer.hpp"
#include "ddp/parameter.hpp"
#include "ddp/session.hpp"

namespace ddp {

template <typename Plain>
class ZeroRedundancyOptimizer;

/// What to keep besides the tensors.
struct KeptOptions {
  std::string name = "training";  ///< letters, digits, dots, dashes, underscores
  /// Memory of this rank that the next step depends on, such as its place in the data, random generators, a model's
  /// buffers. It must stay as long as the Kept. part_of_record() makes an entry.
  std::vector<Buffer> record = {};
  /// Called with each parameter of the optimizer once its value is in the kept memory, for the model to use it there.
  std::function<void(const Parameter&)> moved = {};
};

/// Returns an object as a part of KeptOptions::record.
template <typename T>
Buffer part_of_record(T& object) {
  static_assert(std::is_trivially_copyable_v<T>, "only an object that can be copied as bytes can be kept");
  return Buffer(reinterpret_cast<std::uint8_t*>(&object), sizeof object);
}

/// Memory that `ddprun --keep-memory` keeps for a model and its optimizer while the job runs. After a
/// restart all ranks find it at the same step, with the values of an undisturbed run:
///
///     ddp::AdamW optimizer(parameters);
///     ddp::Kept kept(session, optimizer, {"training", {ddp::part_of_record(position)}, moved});
///     if (!kept.found()) load_checkpoint();
///     ddp::DistributedDataParallel model(session.world(), parameters_where_they_are_now);
///     while (kept.step() < steps) {
///       ...                  // forward, backward, model.synchronize()
///       optimizer.step();    // marks its begin and its end itself
///       ...                  // what else belongs to the step
///     }
///
/// Without ddprun, or without that option, it does the same in ordinary memory. A step whose update was
/// complete everywhere when the job failed is run once more, and its optimizer.step() writes nothing:
/// what it logs is computed from newer parameters. Only for data-parallel training: after a step all
/// ranks must have equal parameters. One thread at a time.
///
/// With ZeroRedundancyOptimizer the parameters are equal on all ranks, and each rank's part of the state is its own.
/// `ddprun --keep-memory=shadow` keeps a copy of that. Without, a rank that is killed while an update is under way
/// sends all to the checkpoint; libddp says so on stderr.
class Kept {
 public:
  /// Keeps nothing: step() counts its calls.
  Kept() = default;

  /// Moves the optimizer's parameters and its state into kept memory. If an earlier process has left
  /// them there, they get its values, and so does the record. Every rank of the session calls it,
  /// before it makes DistributedDataParallel. The optimizer and the record must stay where they are;
  /// nothing may use the parameters after this object has gone. Throws Error with Status::System if
  /// ddprun refuses, for example since the memory does not fit into the job's control group.
  template <typename Rule>
  Kept(const Session& session, Optimizer<Rule>& optimizer, const KeptOptions& options = {}) {
    keep(session, optimizer, options, 0);
  }
  /// Does so for an optimizer whose state is spread over all ranks of the session.
  template <typename Plain>
  Kept(const Session& session, ZeroRedundancyOptimizer<Plain>& optimizer, const KeptOptions& options = {}) {
    keep(session, optimizer, options, bytes_of_state(optimizer));
  }

  /// Returns whether an earlier process of this job left the tensors and the record.
  bool found() const { return found_; }
  /// Marks that a step starts here, so that everything before belongs to the steps that are done. Returns their number
  /// since the memory was made. Call it before each step and after the last one; calls without an optimizer's step
  /// between change nothing.
  std::int64_t step() {
    std::int64_t steps = 0;
    if (kept_ == nullptr) return calls_++;
    detail::check(ddp_kept_done(kept_.get(), &steps));
    return steps;
  }
  /// Returns a sentence that says what was found, for a log; empty if nothing is kept.
  std::string recovered() const { return kept_ != nullptr ? ddp_kept_recovered(kept_.get()) : ""; }

 private:
  struct Deleter {
    void operator()(ddp_kept* kept) const { ddp_kept_destroy(kept); }
  };

  static constexpr std::size_t kLine = 64;  // each tensor begins at a multiple, as vectorised sums like it
  static constexpr std::size_t aligned(std::size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }
  static std::size_t bytes_of(const Parameter& p) { return p.count * element_size(p.dtype); }

  // own: bytes of the state that is this rank's alone
  template <typename Rule>
  void keep(const Session& session, OptimizerShard<Rule>& optimizer, const KeptOptions& options, std::size_t own) {
    std::vector<ddp_buffer> record;
    for (const Buffer& part : options.record) {
      record.push_back(part.c());
    }
    const std::uint64_t layout = layout_of(optimizer);
    const ddp_keep_options c = {sizeof(ddp_keep_options), record.data(), record.size(), layout, own, layout};
    ddp_kept* kept = nullptr;
    void* memory = nullptr;
    std::int32_t found = 0;
    std::size_t bytes = bytes_of_state(optimizer);
    for (const Parameter& p : optimizer.parameters()) bytes += aligned(bytes_of(p));
    detail::check(ddp_keep(session.c(), options.name.c_str(), bytes, &c, &kept, &memory, &found));
    kept_.reset(kept);
    found_ = found != 0;
    move(optimizer, static_cast<std::byte*>(memory), options.moved);
    optimizer.kept_ = kept;
  }

  // The state comes first in the memory, since it may be this rank's own.
  template <typename Rule>
  static std::size_t bytes_of_state(const OptimizerShard<Rule>& optimizer) {
    std::size_t sum = kLine;  // the number of steps
    for (const auto& state : optimizer.states_) sum += aligned(state.size);
    return sum;
  }

  // Returns a number that differs if what lies in the memory does (FNV-1a).
  template <typename Rule>
  static std::uint64_t layout_of(const OptimizerShard<Rule>& optimizer) {
    std::string words = Rule::kName;
    for (const Parameter& p : optimizer.parameters()) {
      words += ";" + p.name + ":" + std::to_string(p.count) + ":" + std::to_string(static_cast<int>(p.dtype));
    }
    std::uint64_t hash = 14695981039346656037U;
    for (const char c : words) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
    return hash;
  }

  template <typename Rule>
  void move(OptimizerShard<Rule>& optimizer, std::byte* memory, const std::function<void(const Parameter&)>& moved) {
    const auto place = [&](const void* from, std::size_t bytes) {
      std::byte* const to = memory;
      memory += aligned(bytes);
      if (!found_ && bytes > 0) std::memcpy(to, from, bytes);
      return to;
    };
    optimizer.steps_taken_ = reinterpret_cast<std::int64_t*>(place(optimizer.steps_taken_, sizeof(std::int64_t)));
    for (auto& state : optimizer.states_) state.data = place(state.data, state.size);
    optimizer.own_states_.clear();
    for (std::size_t i = 0; i < optimizer.parameters().size(); ++i) {
      const Parameter& p = optimizer.parameters()[i];
      optimizer.set_value(i, place(p.value, bytes_of(p)));
      if (moved) moved(p);
    }
  }

  std::unique_ptr<ddp_kept, Deleter> kept_;
  bool found_ = false;
  std::int64_t calls_ = 0;
};

}  // namespace ddp
