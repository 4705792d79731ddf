// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Kept memory: tensors, such as a model and its optimizer's state, that outlive their process, so that a restarted
/// worker goes on after the last complete step.
#pragma once

#include <algorithm>
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
#include "ddp/parameter.hpp"
#include "ddp/session.hpp"

namespace ddp {

/// What to keep besides the tensors.
struct KeptOptions {
  std::string name = "training";  ///< letters, digits, dots, dashes, underscores
  /// Memory of this rank that the next step depends on, such as its place in the data, random generators, a model's
  /// buffers. It must stay as long as the Kept. part_of_record() makes an entry.
  std::vector<Buffer> record = {};
  /// Called with each parameter of an optimizer once its value is in the kept memory, for the model to use it there.
  std::function<void(const Parameter&)> moved = {};
};

/// A tensor in CPU memory that is to be kept.
struct KeptTensor {
  std::string name;     ///< a process whose tensors have other names, types or sizes does not find them
  Buffer buffer;        ///< the value, where it is before it is kept
  bool is_own = false;  ///< whether no other rank has this tensor
  std::function<void(void* address)> moved = {};  ///< called with the tensor's place in the kept memory
};

/// Returns an object as a part of KeptOptions::record.
template <typename T>
Buffer part_of_record(T& object) {
  static_assert(std::is_trivially_copyable_v<T>, "only an object that can be copied as bytes can be kept");
  return Buffer(reinterpret_cast<std::uint8_t*>(&object), sizeof object);
}

/// Memory that `ddprun --keep-memory` keeps for tensors, such as a model and its optimizer's state, while the job runs.
/// After a restart all ranks find it at the same step, with the values of an undisturbed run:
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
/// Tensors that no other rank has, such as a rank's part of ZeroRedundancyOptimizer's state, are its own. `ddprun
/// --keep-memory=shadow` keeps a copy of these. Without, a rank that is killed while an update is under way sends all
/// to the checkpoint; libddp says so on stderr.
class Kept {
 public:
  /// Keeps nothing: step() counts its calls.
  Kept() = default;

  /// Moves tensors into kept memory. If an earlier process has left them there, they get its values, and so does the
  /// record. Every rank of the session calls it, before it makes DistributedDataParallel. The record must stay where it
  /// is; nothing may use the tensors after this object has gone. The program calls begin_update() and end_update().
  /// Throws Error with Status::System if ddprun refuses, for example since the memory does not fit into the job's
  /// control group.
  Kept(const Session& session, std::vector<KeptTensor> tensors, const KeptOptions& options = {}) {
    // A rank's own tensors come first in the memory.
    std::stable_partition(tensors.begin(), tensors.end(), [](const KeptTensor& tensor) { return tensor.is_own; });
    std::vector<ddp_buffer> record;
    for (const Buffer& part : options.record) record.push_back(part.c());
    ddp_keep_options c = {sizeof(ddp_keep_options), record.data(), record.size(), kHashOfNothing, 0, kHashOfNothing};
    std::size_t bytes = 0;
    for (const KeptTensor& tensor : tensors) {
      if (tensor.buffer.device.kind != DeviceKind::Cpu) {
        throw Error(Status::InvalidArgument, "Kept: tensor " + tensor.name + " is not in CPU memory");
      }
      bytes += aligned(tensor.buffer.bytes());
      if (tensor.is_own) c.own_bytes = bytes;
      add_to_hash(tensor.is_own ? c.own_layout : c.layout, tensor);
    }
    ddp_kept* kept = nullptr;
    void* memory = nullptr;
    std::int32_t found = 0;
    detail::check(ddp_keep(session.c(), options.name.c_str(), bytes, &c, &kept, &memory, &found));
    kept_.reset(kept);
    found_ = found != 0;
    auto* place = static_cast<std::byte*>(memory);
    for (const KeptTensor& tensor : tensors) {
      if (!found_ && tensor.buffer.count > 0) std::memcpy(place, tensor.buffer.data, tensor.buffer.bytes());
      if (tensor.moved) tensor.moved(place);
      place += aligned(tensor.buffer.bytes());
    }
  }
  /// Moves the parameters and the state of an optimizer of ddp/training.hpp, or of any type that has its kept_tensors()
  /// and its around_step(), which must stay where it is. Its step() then calls begin_update() and end_update().
  template <typename Optimizer>
  Kept(const Session& session, Optimizer& optimizer, const KeptOptions& options = {})
      : Kept(session, optimizer.kept_tensors(options.moved), options) {
    optimizer.around_step([kept = kept_.get()] { return begun(kept); },
                          [kept = kept_.get()] { detail::check(ddp_kept_updated(kept)); });
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
  /// Marks that an update of the tensors begins; called before the first write. Returns false if the memory has this
  /// update already, from the process before: then nothing may be written.
  bool begin_update() { return kept_ == nullptr || begun(kept_.get()); }
  /// Marks that the update is complete, or was there.
  void end_update() {
    if (kept_ != nullptr) detail::check(ddp_kept_updated(kept_.get()));
  }
  /// Returns a sentence that says what was found, for a log; empty if nothing is kept.
  std::string recovered() const { return kept_ != nullptr ? ddp_kept_recovered(kept_.get()) : ""; }

 private:
  struct Deleter {
    void operator()(ddp_kept* kept) const { ddp_kept_destroy(kept); }
  };

  static constexpr std::size_t kLine = 64;  // each tensor begins at a multiple, as vectorised sums like it
  static constexpr std::size_t aligned(std::size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }
  static constexpr std::uint64_t kHashOfNothing = 14695981039346656037U;

  // Makes a number that differs if what lies in the memory does (FNV-1a).
  static void add_to_hash(std::uint64_t& hash, const KeptTensor& tensor) {
    const std::string words = tensor.name + ":" + std::to_string(tensor.buffer.count) + ":" +
                              std::to_string(static_cast<int>(tensor.buffer.dtype)) + ";";
    for (const char c : words) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  }
  static bool begun(ddp_kept* kept) {
    std::int32_t write = 0;
    detail::check(ddp_kept_begun(kept, &write));
    return write != 0;
  }

  std::unique_ptr<ddp_kept, Deleter> kept_;
  bool found_ = false;
  std::int64_t calls_ = 0;
};

}  // namespace ddp
