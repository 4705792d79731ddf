// SPDX-License-Identifier: BSD-3-Clause
// The cluster of Slurm that CTest has brought up for the cases of this folder, and jobs on it. scripts/clusters/slurm
// says which hosts there are.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "rendezvous/base/descriptor.hpp"
#include "tests/integration/ddprun.hpp"
#include "tests/support/process.hpp"

namespace ddp::testing {

class Slurm {
 public:
  // Skips the test if there is no cluster. Jobs are those of an ordinary user, or of the one that is given.
  explicit Slurm(const std::string& user = "");

  // Returns the command that runs `command` on a host: "ctl", "node1", or "root@node1" for root. It starts in the home
  // folder that all hosts share.
  Words on(const std::string& host, const Words& command) const;
  // Returns the same on ctl, as the user whose jobs are tested.
  Words as_user(const Words& command) const;
  // Runs the command on ctl as root and returns what it prints; throws if it fails.
  std::string ask(const Words& command) const;

  // Skips the test unless the node for it can keep steps to the CPUs and the memory that they asked for.
  void need_limits() const;

  // Returns the path of a file of the shared home, as it is outside of the hosts.
  std::string home(const std::string& file) const { return folder_ + "/home/" + file; }
  // Puts a program there that hosts can execute as ./NAME.
  void add_program(const std::string& name, const std::string& text) const;

  void power_cut(const std::string& node) const;
  // Tells Slurm that the node is gone, which it would find out after half a minute.
  void declare_lost(const std::string& node) const;
  // Gives these nodes power if they have none, and returns once Slurm can use them. From then on they are this case's
  // until it ends: another one that wants one of them waits.
  void power_on(const Words& nodes);

 private:
  std::string folder_, user_;
  std::map<std::string, rendezvous::Descriptor> own_nodes_;  // the locks
};

// The options of a job that runs one ddprun on each of two nodes.
inline const Words kTwoNodes = {"--nodes=2", "--ntasks-per-node=1"};

// A batch job. Its name and its output are its own, and all of its processes are found by the mark of sbatch.
class BatchJob {
 public:
  // `options` are sbatch's, `script` is what follows "#!/bin/bash". The job runs on the nodes of the partition "main"
  // unless the options say otherwise.
  BatchJob(const Slurm& slurm, const Words& options, const std::string& script);
  ~BatchJob();  // cancels it
  BatchJob(const BatchJob&) = delete;
  BatchJob& operator=(const BatchJob&) = delete;

  const std::string& id() const { return id_; }
  std::string out() const;
  // Waits until the output has contained `text` `times` times; throws, with the output, if that does not happen.
  void wait_for(const std::string& text, int times = 1) const;
  // Returns the value of a field of `scontrol show job`, for an array of each of its tasks.
  Words field(const std::string& name) const;

  struct End {
    Words states;      // one, or one for each task of an array
    Words exit_codes;  // "7:0": code and signal, as Slurm says
    std::string out;
  };
  // Waits until Slurm is done with it.
  End wait() const;

  std::vector<pid_t> processes() const { return submitted_.left_over(); }
  // Returns those that are ddprun and were started by slurmstepd.
  std::vector<pid_t> launchers() const;
  // Lets a job that is queued again start soon. Slurm itself would let it wait for two minutes.
  void hurry() const;
  // Waits until nothing of ddprun is left; srun and the script may be.
  void wait_for_launchers() const;
  bool all_gone() const { return submitted_.all_gone(); }

 private:
  const Slurm& slurm_;
  Process submitted_;
  std::string id_;
};

pid_t parent_of(pid_t pid);
std::string name_of(pid_t pid);  // at most 15 characters of it; empty if there is no such process

// Skips the test unless all of them are wanted (DDPRUN_TEST_FULL_SLURM=1), since it takes long.
void only_in_full_run();

}  // namespace ddp::testing
