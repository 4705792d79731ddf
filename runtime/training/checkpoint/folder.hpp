// SPDX-License-Identifier: BSD-3-Clause
// Saves the checkpoints of a training in one folder, and finds them again. What a rank passes to save() is what it
// writes: everything on rank 0 and nothing elsewhere, or each its own tensors and slices.
//
//     all ranks                          rank 0
//     tell all: step, will I write?      makes room for the step first, and tidies up
//     write the shard, fsync
//     tell rank 0: my record             joins the records, writes the joint one, names the folder: it is saved
//     hear from rank 0: saved, or why    removes what is not to be kept
//
// Each of these is reached by all or the save fails on all with the same words, but for a rank that is lost or too
// late: then the group fails, and later saves with it.
//
// Threads: one at a time calls in, one of its own saves what save_async() was given. They take turns with the group.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "ddp/ddp.h"
#include "rendezvous/base/error.hpp"
#include "runtime/group/process_group.hpp"
#include "runtime/training/checkpoint/checkpoint.hpp"
#include "runtime/training/checkpoint/save_group.hpp"
#include "runtime/training/checkpoint/shard_file.hpp"
#include "runtime/training/checkpoint/staging_memory.hpp"
#include "runtime/training/checkpoint/step_folders.hpp"

namespace ddp::runtime {

class CheckpointFolder {
 public:
  using Milliseconds = std::chrono::milliseconds;

  struct Options {
    std::int64_t keep_last = 0;   // 0: all
    std::int64_t keep_every = 0;  // beside those, the multiples of this; 0: none
    Milliseconds timeout{0};      // for a save in flight; 0: 30 minutes
    bool read_only = false;
  };

  // Collective over the group, if there is one. It is of this folder's own, and outlives it.
  CheckpointFolder(const std::string& path, const Options& options, ProcessGroup* group);
  ~CheckpointFolder();  // waits for a save in flight
  CheckpointFolder(const CheckpointFolder&) = delete;
  CheckpointFolder& operator=(const CheckpointFolder&) = delete;

  // Collective; throw rendezvous::Error. Both wait for the save before, and throw what it failed with if nobody has
  // waited for it: then they have not begun.
  void save(std::int64_t step, std::span<const ddp_tensor_slice> slices, std::span<const ddp_metadata_entry> metadata);
  // Returns once the tensors are copied: the save's number.
  std::uint64_t save_async(std::int64_t step, std::span<const ddp_tensor_slice> slices,
                           std::span<const ddp_metadata_entry> metadata);
  // timeout 0: the folder's. Throws what it failed with.
  void wait(std::uint64_t save, Milliseconds timeout);
  bool has_ended(std::uint64_t save);

  std::vector<std::int64_t> steps() const { return folders_.steps(); }
  // Collective: the same on every rank. The newest; with `verified` the newest of which every byte is as it was
  // written, and `skip` is told what is wrong with newer ones. Null: there is none at all.
  using Skip = std::function<void(const std::string&)>;
  std::unique_ptr<Checkpoint> latest(bool verified, const Skip& skip);
  std::unique_ptr<Checkpoint> open(std::int64_t step) const;

 private:
  using Lock = std::unique_lock<std::mutex>;
  struct Job {
    std::int64_t step = 0;
    std::vector<TensorSlice> slices = {};
    MetadataEntries metadata = {};
    SaveReport taken = {};  // what is wrong with what was given
  };
  struct SavePlan {
    std::string folder;  // to write to
    std::string shard;   // this rank's file; empty: it has none
  };

  Job take(std::int64_t step, std::span<const ddp_tensor_slice> slices, std::span<const ddp_metadata_entry> metadata,
           bool copy);
  std::uint64_t begin(Lock& lock);
  void end(std::uint64_t save, SaveReport outcome);
  void await(std::uint64_t save, Milliseconds timeout, Lock& lock);
  void run();

  SaveReport perform(const Job& job) const;
  void save_together(const Job& job) const;
  SavePlan agree_on_plan(const Job& job, SaveReport& verdict) const;
  std::string write(const Job& job, const SavePlan& plan) const;
  std::string commit(std::int64_t step, const SavePlan& plan, const std::vector<SaveReport>& reports) const;
  void remove_old(std::int64_t saved) const;
  std::string newest_before(std::int64_t before) const;
  std::string describe() const { return "checkpoints in " + folders_.path(); }

  const StepFolders folders_;
  const Options options_;
  const SaveGroup ranks_;
  StagingMemory staging_;
  mutable std::atomic<std::uint64_t> written_{0};  // bytes of the save in flight

  std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  std::uint64_t begun_ = 0;
  std::uint64_t ended_ = 0;
  SaveReport outcome_;    // of the last that ended
  bool reported_ = true;  // or there is nothing to tell
  std::optional<Job> job_;
  bool leaving_ = false;
  std::thread thread_;  // started by the first save_async()
};

}  // namespace ddp::runtime
