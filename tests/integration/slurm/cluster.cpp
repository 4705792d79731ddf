// SPDX-License-Identifier: BSD-3-Clause
#include "tests/integration/slurm/cluster.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>
#include <stdexcept>

#include "tests/support/environment.hpp"

namespace ddp::testing {
namespace {

constexpr auto kBetweenLooks = 50;  // milliseconds

Result run_or_throw(const Words& command) {
  const Result result = run(command);
  if (result.code == 0) return result;
  std::string line;
  for (const std::string& word : command) line += word + " ";
  throw std::runtime_error(line + "ended with " + std::to_string(result.code) + ": " + result.out + result.err);
}

// Waits until a condition holds that costs a program to look at.
template <typename Condition>
void wait_patiently(const Condition& holds, const std::function<std::string()>& describe) {
  const auto deadline = std::chrono::steady_clock::now() + kDeadline;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > deadline) throw std::runtime_error("it does not come true: " + describe());
    poll(nullptr, 0, kBetweenLooks);
  }
}

Process::Options with_script(const std::string& script) { return {.stdin_text = "#!/bin/bash\n" + script + "\n"}; }

const std::set<std::string> kEnds = {"COMPLETED", "FAILED",        "CANCELLED", "TIMEOUT",  "NODE_FAIL",
                                     "PREEMPTED", "OUT_OF_MEMORY", "DEADLINE",  "BOOT_FAIL"};

const std::set<std::string> kOfSlurm = {"srun", "slurm_script", "bash", ""};

}  // namespace

Slurm::Slurm(const std::string& user)
    : folder_(variable("DDPRUN_SLURM_CLUSTER", SLURM_CLUSTER)),
      user_(user.empty() ? variable("DDPRUN_SLURM_USER", "ada") : user) {
  if (!std::filesystem::exists(folder_ + "/ready"))
    skip("there is no cluster of Slurm; scripts/clusters/slurm says why");
}

Words Slurm::on(const std::string& host, const Words& command) const {
  return Words{SLURM_SCRIPT, "run", folder_, host} + command;
}

Words Slurm::as_user(const Words& command) const { return on(user_ + "@ctl", command); }

std::string Slurm::ask(const Words& command) const { return run_or_throw(on("root@ctl", command)).out; }

void Slurm::need_limits() const {
  if (count(read_file(folder_ + "/ready"), "tight node9") == 0) skip("no control groups of version 1 can be made here");
}

void Slurm::add_program(const std::string& name, const std::string& text) const {
  const std::string fresh = home(name + "." + std::to_string(getpid()));
  write_file(fresh, text, true);
  chmod(fresh.c_str(), 0755);
  std::filesystem::rename(fresh, home(name));  // cases run side by side
}

void Slurm::power_cut(const std::string& node) const { run_or_throw({SLURM_SCRIPT, "cut", folder_, node}); }
void Slurm::declare_lost(const std::string& node) const {
  ask({"scontrol", "update", "NodeName=" + node, "State=DOWN", "Reason=power"});
}
void Slurm::power_on(const Words& nodes) {
  for (const std::string& node : std::set<std::string>(nodes.begin(), nodes.end())) {  // all cases in one order
    rendezvous::Descriptor& lock = own_nodes_[node];
    if (lock) continue;
    lock = rendezvous::Descriptor(open((folder_ + "/" + node + ".lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
    if (!lock || flock(lock.get(), LOCK_EX) != 0) throw std::runtime_error("cannot lock " + node + " in " + folder_);
  }
  run_or_throw(Words{SLURM_SCRIPT, "power", folder_} + nodes);
}

// ---- BatchJob ----

BatchJob::BatchJob(const Slurm& slurm, const Words& options, const std::string& script)
    : slurm_(slurm),
      submitted_(slurm.as_user(Words{"sbatch", "--parsable", "--output=%A.out", "--open-mode=append"} + options),
                 with_script(script)) {
  const Result result = submitted_.wait();
  id_ = result.out.substr(0, result.out.find_first_not_of("0123456789"));
  if (result.code != 0 || id_.empty()) throw std::runtime_error("sbatch: " + result.out + result.err);
}

BatchJob::~BatchJob() { run(slurm_.on("root@ctl", {"scancel", "--full", "--signal=KILL", id_})); }

std::string BatchJob::out() const {
  const std::string file = slurm_.home(id_ + ".out");
  return std::filesystem::exists(file) ? read_file(file) : "";
}

void BatchJob::wait_for(const std::string& text, int times) const {
  wait_patiently([&] { return count(out(), text) >= times; }, [&] { return text + " in\n" + out(); });
}

Words BatchJob::field(const std::string& name) const {
  Words values;
  std::istringstream words(slurm_.ask({"scontrol", "--oneliner", "show", "job", id_}));
  for (std::string word; words >> word;) {
    if (word.rfind(name + "=", 0) == 0) values.push_back(word.substr(name.size() + 1));
  }
  return values;
}

BatchJob::End BatchJob::wait() const {
  Words states;
  wait_patiently(
      [&] {
        states = field("JobState");
        return !states.empty() && std::all_of(states.begin(), states.end(),
                                              [](const std::string& state) { return kEnds.count(state) == 1; });
      },
      [&] { return "job " + id_ + " is " + (states.empty() ? "unknown" : states[0]) + ", output:\n" + out(); });
  return {states, field("ExitCode"), out()};
}

std::vector<pid_t> BatchJob::launchers() const {
  std::vector<pid_t> pids = processes();
  std::erase_if(pids, [](pid_t pid) { return name_of(pid) != "ddprun" || name_of(parent_of(pid)) != "slurmstepd"; });
  return pids;
}

void BatchJob::hurry() const {
  wait_patiently([&] { return field("JobState") == Words{"PENDING"} && field("Reason") == Words{"BeginTime"}; },
                 [&] { return "job " + id_ + " is queued again, output:\n" + out(); });
  // Not within the second in which it was ended: slurmd would take its credential for the one that was revoked.
  slurm_.ask({"scontrol", "update", "JobId=" + id_, "StartTime=now+2"});
}

void BatchJob::wait_for_launchers() const {
  wait_patiently(
      [this] {
        const std::vector<pid_t> left = processes();
        return std::all_of(left.begin(), left.end(), [](pid_t pid) { return kOfSlurm.count(name_of(pid)) == 1; });
      },
      [this] { return "the workers of job " + id_ + " end, output:\n" + out(); });
}

pid_t parent_of(pid_t pid) {
  std::istringstream status(read_file("/proc/" + std::to_string(pid) + "/status"));
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("PPid:", 0) == 0) return std::stoi(line.substr(5));
  }
  return 0;
}

std::string name_of(pid_t pid) {
  std::istringstream comm(read_file("/proc/" + std::to_string(pid) + "/comm"));
  std::string name;
  std::getline(comm, name);
  return name;
}

void only_in_full_run() {
  if (variable("DDPRUN_TEST_FULL_SLURM").empty()) skip("scripts/clusters/slurm_cases runs it");
}

}  // namespace ddp::testing
