// SPDX-License-Identifier: BSD-3-Clause
// An indexed Job of Kubernetes, played from its manifest. controllers.py makes the pods of it; this class acts as the
// kubelet and as the controller of Jobs: it starts each pod's ddprun, replaces pods that have died, and ends the Job,
// all as the manifest's policies say.
//
//     pod train-0        pod train-1        pod train-1, which replaces the other
//         │                  │ (killed)         │
//       host 0             host 1             host 2         (tests/support/hosts.hpp)
//
// Each pod has the address of a host that no pod has had for as long as possible. Its processes, mounts and host name
// are in namespaces of their own, in which ddprun is process 1.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tests/integration/ddprun.hpp"

namespace ddp::testing {

// What the controller of Jobs does about a pod that has failed (podFailurePolicy).
enum class AboutFailure { Count, Ignore, FailJob };

class PodJob {
 public:
  // What pods find by a name that the cluster has for it. It is on a host on which no pod runs.
  struct Service {
    std::string name, address;
    int host = 0;
  };
  // `verbs` are what the workers do in place of the manifest's program; tests/fixtures/fake_worker.cpp describes them.
  // Skips the test if pods cannot be made here.
  PodJob(const Hosts& hosts, const std::string& manifest, Words verbs, const std::vector<Service>& services = {});
  ~PodJob();
  PodJob(const PodJob&) = delete;
  PodJob& operator=(const PodJob&) = delete;

  static std::string uid() { return "0f4c2a6e-71d8-4d0b-9a55-3b1f8a1c9e77"; }
  int size() const { return static_cast<int>(indexes_.size()); }
  int ranks() const;

  void create();              // starts a pod for each index, whose names lead nowhere yet
  void publish();             // from now on each pod has its name as soon as it starts
  void kill(int index);       // SIGKILL for process 1, and with it for all of the pod
  void evict(int index);      // SIGTERM, and SIGKILL after the manifest's grace
  void tell_all(int signal);  // for process 1 of each pod
  // Acts as kubelet and controller until the condition holds; throws, with all logs, if it does not at the deadline.
  void until(const std::function<bool()>& condition);

  // What the pods of an index have written, the newest pod's, and all pods'.
  std::string log(int index) const;
  std::string logs() const;
  int pods_of(int index) const { return indexes_.at(static_cast<std::size_t>(index)).pods; }
  int pods() const;
  bool is_any_running() const { return !running().empty(); }
  bool complete() const;  // enough indexes have succeeded
  bool failed() const { return failed_; }
  int code_of_failure() const { return code_of_failure_; }  // the code of the pod that ended the job
  int last_code(int index) const { return indexes_.at(static_cast<std::size_t>(index)).last_code; }

 private:
  using Time = std::chrono::steady_clock::time_point;
  struct Pod {
    int host = 0;
    std::string log;
    bool is_killed = false;       // has got SIGKILL
    bool is_disrupted = false;    // has the condition DisruptionTarget
    std::optional<Time> kill_at;  // the end of its grace
    std::unique_ptr<Process> process;
  };
  struct Index {
    nlohmann::json spec;
    std::shared_ptr<Pod> pod;  // the one that runs; empty if none does
    std::optional<Time> start_at;
    int pods = 0, failures = 0, last_code = -1;
    bool succeeded = false, failed = false;
  };

  void start(int index);
  static void kill(Pod& pod);
  void terminate(Pod& pod, const Index& index);
  void ended(int index, const std::shared_ptr<Pod>& pod);
  AboutFailure about(const Pod& pod, const Index& index, int code) const;
  void fail(int code);
  void end_pods();
  void act();
  void name(int number, const std::string& line);
  std::vector<std::pair<int, std::shared_ptr<Pod>>> running() const;

  const Hosts& hosts_;
  Words verbs_;
  TemporaryFolder folder_;
  std::string names_;  // the file that is /etc/hosts of each pod
  int names_fd_ = -1;
  nlohmann::json spec_;
  std::vector<Index> indexes_;
  std::deque<int> free_hosts_;
  int needed_ = 0;  // indexes that have to succeed
  int code_of_failure_ = -1;
  bool publishes_ = false, failed_ = false;
};

}  // namespace ddp::testing
