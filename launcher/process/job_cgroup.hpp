// SPDX-License-Identifier: BSD-3-Clause
// The job's control group (cgroup v2), where ddprun may make one: a folder below ddprun's own
// group, with a folder in it for each worker of each round. ddprun itself stays outside.
//
//     <the cgroup ddprun is in>/ddprun-<pid namespace>-<boot id>-<random>/1.0, 1.1, ...    <round>.<local rank>
//
// Guardian, keeper and agent hold a lock on the group's folder. A group without one is abandoned: all three were killed
// at once, and what is left in it belongs to no job. The next ddprun of the same user ends it, if the name says that
// its processes are of this boot and of this pid namespace: those of another container are another one's.
//
// In a step of Slurm there is no group. Slurm finds the processes of a step in the group that it has made for them, and
// would miss workers in one below it; and when it kills all of a step at once, nobody is left to remove that one.
//
// A process cannot leave a control group by double-forking, and the kernel kills a whole group at
// once, which a process that forks without end cannot outrun. The group is used in addition to the
// subreapers (process_tree.hpp), which need no permission and work everywhere. Where there is no
// group, every call here does nothing. JobCgroup is a value: guardian, keeper and agent each have a
// copy.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "rendezvous/base/descriptor.hpp"

namespace ddp::launcher {

class JobCgroup {
 public:
  // Chooses the group's path, below this process's own group, and makes nothing.
  static JobCgroup choose();
  // Makes the group, and returns the lock on it. There is none without permission, before Linux 5.7,
  // and with DDPRUN_CGROUP=off.
  [[nodiscard]] rendezvous::Descriptor make();

  // Returns a sentence that says where the group is, or why there is none.
  const std::string& describe() const { return words_; }

  // A group whose ddprun was killed, and how many processes were in it.
  struct Ended {
    std::string path;
    int processes = 0;
  };
  // Ends the abandoned groups of this user, in ddprun's own group and in those beside it, and
  // returns those that had a process. For an idle process.
  std::vector<Ended> end_abandoned() const;

  // Makes the folders of the first round's workers in advance, so that open_worker() need not. For
  // an idle process.
  void prepare(int workers) const;

  // Returns the worker's folder, made if necessary and open, for start_bare_child(); empty if there
  // is no group.
  rendezvous::Descriptor open_worker(int round, int local_rank) const;
  // Kills every process in the worker's group, in whatever session it is, or removes the group if
  // it is empty. No process can start in it afterwards.
  void kill_worker(int round, int local_rank) const;
  // Removes the worker's folder, if no process is in it.
  void remove_worker(int round, int local_rank) const;
  // Kills every process in the job's group.
  void kill() const;
  // Removes the job's folder if it is empty. Returns false if a process or another group is in it.
  bool remove_if_empty() const;
  // Kills every process, waits at most `deadline` until none is left, and removes the folders.
  void remove(std::chrono::milliseconds deadline) const;

 private:
  std::string of_worker(int round, int local_rank) const {
    return path_ + "/" + std::to_string(round) + "." + std::to_string(local_rank);
  }

  void none(const std::string& why);

  std::string path_;   // empty: there is no group
  std::string place_;  // the name up to the random part
  std::string words_;
  bool may_kill_at_once_ = true;
};

// Moves a process that could not start in the group into it, which takes milliseconds. Returns
// whether the kernel allowed it.
bool move_into(int cgroup_fd, pid_t pid);

}  // namespace ddp::launcher
