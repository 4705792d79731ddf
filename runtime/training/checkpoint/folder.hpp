// SPDX-License-Identifier: BSD-3-Clause
// Saves the checkpoints of one training in one folder, and finds them again. Each rank writes what
// it passes to save(): everything on rank 0 and nothing elsewhere, or each rank its own tensors and
// slices.
//
//     all ranks                                rank 0
//     send to all: step, will I write?         first creates the step's folder, and tidies up
//     write the shard, fsync
//     send to rank 0: my record                joins the records, writes the joint one, renames the
//                                              folder: now the checkpoint is saved
//     receive from rank 0: saved, or why not   removes old checkpoints
//
// Either every rank completes a stage, or the save fails on every rank with the same words. The
// exception is a rank that is lost or too late: then the group fails, and later saves fail with it.
//
// Threads: one caller at a time. A background thread saves what save_async() was given. The two
// take turns in using the group.
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
#include "runtime/device/host_copy.hpp"
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
    std::int64_t keep_every = 0;  // also keep steps that are multiples of this; 0: no others
    Milliseconds timeout{0};      // for waiting on a save; 0: 30 minutes
    bool read_only = false;
    bool follows = true;  // save_async() calls follow()
  };

  // Collective over the group, if there is one. The group is used for this folder only, and must
  // outlive it.
  CheckpointFolder(const std::string& path, const Options& options, ProcessGroup* group);
  ~CheckpointFolder();  // waits for a save in flight
  CheckpointFolder(const CheckpointFolder&) = delete;
  CheckpointFolder& operator=(const CheckpointFolder&) = delete;

  // save() and save_async() are collective and throw rendezvous::Error. Both first wait for the
  // save before. If that failed and no wait() has reported it, they throw its error and save
  // nothing.
  void save(std::int64_t step, std::span<const ddp_tensor_slice> slices, std::span<const ddp_metadata_entry> metadata);
  // Returns the save's number, once the tensors of the CPU are copied, and copies of those of a GPU are enqueued.
  std::uint64_t save_async(std::int64_t step, std::span<const ddp_tensor_slice> slices,
                           std::span<const ddp_metadata_entry> metadata);
  // Makes this thread's current stream of the GPU wait until the last save_async() has copied its tensors.
  void follow() const;
  // Waits for a save and throws its error. timeout 0: Options::timeout.
  void wait(std::uint64_t save, Milliseconds timeout);
  bool has_ended(std::uint64_t save);

  std::vector<std::int64_t> steps() const { return folders_.steps(); }
  // Collective, with the same result on every rank: the newest checkpoint. With `verified`, the
  // newest whose every byte is as it was written; `skip` is called with what is wrong with each
  // newer one. Null: there are none at all.
  using Skip = std::function<void(const std::string&)>;
  std::unique_ptr<Checkpoint> latest(bool verified, const Skip& skip);
  std::unique_ptr<Checkpoint> open(std::int64_t step) const;

 private:
  using Lock = std::unique_lock<std::mutex>;
  struct Job {
    std::int64_t step = 0;
    std::vector<TensorSlice> slices = {};
    MetadataEntries metadata = {};
    SaveReport taken = {};  // what is wrong with the arguments, if anything
    bool is_from_gpu = false;
  };
  struct SavePlan {
    std::string folder;  // the folder to write to
    std::string shard;   // this rank's file; empty: this rank writes none
  };

  Job take(std::int64_t step, std::span<const ddp_tensor_slice> slices, std::span<const ddp_metadata_entry> metadata,
           bool copy);
  void stage(std::vector<TensorSlice>& slices, bool all);
  HostCopy& copies_from(std::int32_t device);
  Milliseconds patience(Milliseconds given) const;
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
  std::unique_ptr<HostCopy> copies_;               // made for the first tensor on a GPU
  mutable std::atomic<std::uint64_t> written_{0};  // bytes of tensors, in the save in flight

  std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  std::uint64_t begun_ = 0;
  std::uint64_t ended_ = 0;
  SaveReport outcome_;    // outcome of the last save that ended
  bool reported_ = true;  // outcome_ was reported, or is no failure
  std::optional<Job> job_;
  bool leaving_ = false;
  std::thread thread_;  // started by the first save_async()
};

}  // namespace ddp::runtime
