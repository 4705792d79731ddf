// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddprun/commands/change/chaos.hpp"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <optional>
#include <random>
#include <utility>

#include "apps/ddprun/commands/agents.hpp"
#include "apps/ddprun/commands/change/chaos_options.hpp"
#include "apps/ddprun/commands/table.hpp"
#include "apps/ddprun/options/usage_error.hpp"
#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/base/error.hpp"

namespace ddp::apps {
namespace {

using launcher::AgentView;
using launcher::WorkerView;
using rendezvous::Descriptor;

// Interval at which a job is asked for workers while it has none, between two rounds.
constexpr std::chrono::milliseconds kAskAgain{20};

const char* word_of(ChaosKind kind) {
  return kind == ChaosKind::Worker ? "worker" : kind == ChaosKind::Agent ? "agent" : "node";
}

std::string describe(std::chrono::milliseconds time) {
  const auto count = time.count();
  return count % 1000 == 0 ? std::to_string(count / 1000) + " s" : std::to_string(count) + " ms";
}

struct Target {
  std::string what;
  pid_t pid = 0;
  Descriptor held = {};  // refers to the process that had this pid when it was opened
};

Descriptor hold(pid_t pid) {
  Descriptor held(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!held && errno != ESRCH) {
    throw UsageError("chaos: process " + std::to_string(pid) +
                     " cannot be held, so that its pid may become another's: " + std::strerror(errno) +
                     " (Linux 5.3 or newer has pidfds)");
  }
  return held;
}

Target agent_of(const AgentView& job) { return {"agent", job.agent_pid}; }

Target target_of(const WorkerView& worker) { return {"rank " + std::to_string(worker.rank), worker.pid}; }

// Kills processes of one agent until the job or the count is over.
class Chaos {
 public:
  Chaos(const ChaosOptions& options, const FoundJob& job)
      : options_(options),
        pid_(job.view.pid),
        job_(job.view.job),
        socket_(job.socket),
        seed_(options.seed.value_or(std::random_device()())),
        random_(seed_),
        launcher_(hold(pid_)) {}

  int run() {
    if (!launcher_ || !ask()) return end();  // asked after it was held: it is the job's process
    say("kills " + std::string(options_.kind == ChaosKind::Agent ? "an " : "a ") + word_of(options_.kind) + " every " +
        describe(options_.every) + ", with --seed " + std::to_string(seed_));
    while (!options_.count || kills_ < *options_.count) {
      if (has_ended_within(options_.every)) return end();
      while (!kill_once()) {
        if (has_ended_within(kAskAgain)) return end();
      }
      if (is_refused_) return 1;
    }
    return 0;
  }

 private:
  // Returns nothing if the agent has just ended, or gives no answer within five seconds.
  std::optional<AgentView> ask() const {
    try {
      return launcher::agent_view(ask_state(socket_));
    } catch (const rendezvous::Error& error) {
      if (error.code() != rendezvous::ErrorCode::PeerLost) print_line(stderr, std::string("chaos: ") + error.what());
      return std::nullopt;
    }
  }

  bool has_ended_within(std::chrono::milliseconds time) const {
    pollfd ended = {launcher_.get(), POLLIN, 0};
    return poll(&ended, 1, static_cast<int>(time.count())) > 0;
  }

  // Draws what is to be killed; empty if there is no such process now.
  std::vector<Target> draw(const AgentView& job) {
    std::vector<Target> targets;
    if (options_.kind != ChaosKind::Worker) targets.push_back(agent_of(job));
    if (options_.kind == ChaosKind::Node) {
      for (const WorkerView& worker : job.workers) targets.push_back(target_of(worker));
    }
    if (options_.kind == ChaosKind::Worker && !job.workers.empty()) {
      targets.push_back(target_of(job.workers[random_() % job.workers.size()]));
    }
    return targets;
  }

  // Kills once, and returns false if there was nothing to kill.
  bool kill_once() {
    const auto job = ask();
    if (!job) return false;
    std::vector<Target> targets = draw(*job);
    for (Target& target : targets) target.held = hold(target.pid);
    // A process that the agent has after its pid was held is the one that is held, if that lives: the agent reaps its
    // workers itself, and nobody else can have their pids before that.
    const auto now = ask();
    if (!now) return false;
    std::erase_if(targets, [&](const Target& target) { return !target.held || !belongs_to(*now, target.pid); });
    if (targets.empty()) return false;
    std::string line;
    for (const Target& target : targets) {
      const bool is_killed = kill_one(target);
      // The workers of a node end with its agent, perhaps before their own signal.
      const bool ends_with_agent = options_.kind == ChaosKind::Node && !line.empty() && !is_refused_;
      if (!is_killed && !ends_with_agent) continue;
      line += (line.empty() ? "" : ", ") + target.what + " (pid " + std::to_string(target.pid) + ")";
    }
    if (!line.empty()) say("kill " + std::to_string(++kills_) + ": " + word_of(options_.kind) + ": " + line);
    return !line.empty() || is_refused_;
  }

  static bool belongs_to(const AgentView& job, pid_t pid) {
    return job.agent_pid == pid || std::any_of(job.workers.begin(), job.workers.end(),
                                               [&](const WorkerView& worker) { return worker.pid == pid; });
  }

  bool kill_one(const Target& target) {
    if (syscall(SYS_pidfd_send_signal, target.held.get(), SIGKILL, nullptr, 0) == 0) return true;
    if (errno == ESRCH) return false;  // it has just ended
    print_line(stderr, "chaos: " + target.what + " (pid " + std::to_string(target.pid) +
                           ") could not be killed: " + std::strerror(errno));
    is_refused_ = true;
    return false;
  }

  int end() const {
    say("the job has ended, after " + std::to_string(kills_) + (kills_ == 1 ? " kill" : " kills"));
    return 0;
  }

  void say(const std::string& text) const {
    print_line(stdout, "chaos: job " + job_ + " (pid " + std::to_string(pid_) + "): " + text);
  }

  const ChaosOptions& options_;
  const pid_t pid_;
  const std::string job_, socket_;
  const std::uint64_t seed_;
  std::mt19937_64 random_;
  const Descriptor launcher_;
  std::int64_t kills_ = 0;
  bool is_refused_ = false;
};

}  // namespace

int cause_chaos(const std::vector<std::string>& arguments) {
  const ChaosOptions options = parse_chaos(arguments);
  const FoundJob job = find_job_with_processes("chaos", options.job);
  if (job.view.agent_pid == 0) {
    throw UsageError("chaos: the job " + job.view.job +
                     " runs under a ddprun of an older release, which does not say " + "which process its agent is");
  }
  return Chaos(options, job).run();
}

}  // namespace ddp::apps
