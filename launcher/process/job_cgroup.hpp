// SPDX-License-Identifier: BSD-3-Clause
// The job's control group (cgroup v2), where ddprun may make one: a folder below its own, with one in it for each
// worker.
//
//     <the cgroup ddprun is in>/ddprun-<pid>-<random>/0, 1, 2, ...      workers by local rank; ddprun itself stays
//     outside
//
// Nobody leaves a control group by double-forking, and the kernel kills all of one at once, which a process that forks
// without end cannot outrun. So it is used beside the subreapers (process_tree.hpp), which need no permission and work
// everywhere; every call here does nothing if there is none. A value: guardian, keeper and agent each have it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>

#include "rendezvous/base/descriptor.hpp"

namespace ddp::launcher {

class JobCgroup {
 public:
  // Decides where, below this process's own, and makes nothing: so whoever is to clean up knows it before it is there.
  static JobCgroup choose();
  // Makes it. Without permission, without Linux 5.7, or with DDPRUN_CGROUP=off there is none.
  void make();

  // Where it is, or why there is none.
  const std::string& describe() const { return words_; }

  // The folders of the first round's workers, which open_worker() would make: for a process that has time.
  void prepare(int workers) const;

  // The folder of a worker, open, for start_bare_child; empty: there is none.
  rendezvous::Descriptor open_worker(int round, int local_rank) const;
  // SIGKILL for all that is in it, wherever that has gone, and it is no more if that was nobody. Nobody can be born
  // into it any more.
  void kill_worker(int round, int local_rank) const;
  // Its folder, once nobody is in it.
  void remove_worker(int round, int local_rank) const;
  void kill() const;
  // False: somebody is in it, or in a group below it.
  bool remove_if_empty() const;
  // Kills, waits until nobody is left (at most `deadline`), removes the folders.
  void remove(std::chrono::milliseconds deadline) const;

 private:
  std::string of_worker(int round, int local_rank) const {
    return path_ + "/" + std::to_string(round) + "." + std::to_string(local_rank);
  }

  void none(const std::string& why);

  std::string path_;  // empty: there is none
  std::string words_;
  bool may_kill_at_once_ = true;
};

// A process that could not be born into it: takes milliseconds. False if the kernel does not allow it.
bool move_into(int cgroup_fd, pid_t pid);

}  // namespace ddp::launcher
