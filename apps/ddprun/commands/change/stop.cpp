// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddprun/commands/change/stop.hpp"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <map>
#include <optional>
#include <utility>

#include "apps/ddprun/commands/agents.hpp"
#include "apps/ddprun/commands/arguments.hpp"
#include "apps/ddprun/commands/show/ps.hpp"
#include "apps/ddprun/commands/table.hpp"
#include "launcher/agent/job_looks.hpp"
#include "launcher/local/job_answers.hpp"
#include "launcher/local/job_view.hpp"
#include "launcher/text/ranges.hpp"
#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/base/error.hpp"
#include "rendezvous/base/text.hpp"

namespace ddp::apps {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kSaveWithin{60'000};    // --within
constexpr milliseconds kEndWithin{300'000};    // for the job's end, which --shutdown-timeout decides
constexpr milliseconds kEndAfterError{5'000};  // where a node did not obey, or the job has ended meanwhile
constexpr milliseconds kLookAgain{100};
// A program that has caught the signal saves at the end of the step that it is in, so before it shows the one after the
// next.
constexpr std::int64_t kStepsToSave = 2;

class Stop {
 public:
  explicit Stop(FoundJob job) : job_(std::move(job)) {
    ended_ = rendezvous::Descriptor(static_cast<int>(syscall(SYS_pidfd_open, job_.view.pid, 0)));
  }

  // Returns false if the job must not be stopped, since the signal was not sent.
  bool save(const std::string& save_order, milliseconds within) {
    steps_ = steps();
    if (!order(save_order)) {
      return fail("it is not stopped, since not all of its workers got the signal; without --save it is");
    }
    say("its workers got SIG" + save_order.substr(save_order.find(':') + 1));
    const auto until = Clock::now() + within;
    std::vector<int> unknown;
    while (Clock::now() < until) {
      if (has_ended_within(kLookAgain)) return true;
      unknown = not_saved();
      if (unknown.empty()) {
        say("its workers have gone on for " + std::to_string(kStepsToSave) +
            " steps since, so that they have handled it");
        return true;
      }
    }
    say(launcher::describe_ranks(unknown) + " did not show that the signal was handled within " +
        rendezvous::to_string(within) + " (--within); a program shows it by two more steps (ddprun.progress)");
    return true;
  }

  int end() {
    if (has_ended_within(milliseconds(0))) return done();
    const milliseconds within = order("stop") ? kEndWithin : kEndAfterError;
    if (has_ended_within(within)) return done();
    fail("it has not ended in " + rendezvous::to_string(within) + "; kill -9 " + std::to_string(job_.view.pid) +
         " ends it at once");
    return 1;
  }

 private:
  using Steps = std::map<int, std::optional<std::int64_t>>;

  int done() const {
    say("has ended");
    return 0;
  }

  // Returns the newest step of each worker that runs.
  Steps steps() const {
    const auto job = launcher::job_view(ask_at_length(job_.socket, "job", kJobWithin));
    Steps steps;
    if (!job) return steps;
    for (const auto& node : job->nodes) {
      if (!node.view) continue;
      for (const auto& worker : node.view->workers) steps[worker.rank] = worker.step;
    }
    return steps;
  }

  std::vector<int> not_saved() const {
    std::vector<int> ranks;
    try {
      const Steps now = steps();
      for (const auto& [rank, before] : steps_) {
        const auto found = now.find(rank);
        if (found == now.end()) continue;  // it has ended
        const bool has_saved = found->second && *found->second >= before.value_or(*found->second) + kStepsToSave;
        if (!has_saved) ranks.push_back(rank);
      }
    } catch (const rendezvous::Error&) {  // the job is about to end
    }
    return ranks;
  }

  // Gives an order to all nodes. Returns whether every node has obeyed; if not, stderr says why.
  bool order(const std::string& what) const {
    try {
      const auto answers = launcher::job_answers(ask_at_length(job_.socket, "job_" + what, kJobWithin));
      if (!answers) return fail("its agent did not answer");
      bool is_obeyed = true;
      for (const auto& node : answers->nodes) {
        if (!node.error.empty()) is_obeyed = fail("node " + node.host + ": " + node.error);
      }
      return is_obeyed;
    } catch (const rendezvous::Error& error) {
      return fail(error.what());
    }
  }

  bool fail(const std::string& why) const {
    print_line(stderr, "stop: the job " + job_.view.job + ": " + why);
    return false;
  }

  bool has_ended_within(milliseconds time) const {
    const auto until = Clock::now() + time;
    while (!ended_ && kill(job_.view.pid, 0) == 0) {  // a kernel without pidfds
      if (Clock::now() >= until) return false;
      poll(nullptr, 0, static_cast<int>(kLookAgain.count()));
    }
    if (!ended_) return true;
    pollfd ended = {ended_.get(), POLLIN, 0};
    return poll(&ended, 1, static_cast<int>(time.count())) > 0;
  }

  void say(const std::string& what) const {
    print_line(stdout, "stop: job " + job_.view.job + " (pid " + std::to_string(job_.view.pid) + "): " + what);
  }

  const FoundJob job_;
  rendezvous::Descriptor ended_;  // the job's process; empty: it has ended, or the kernel has no pidfds
  Steps steps_;                   // when the signal was sent
};

// Returns "save:USR1" for "SIGUSR1" and "USR1".
std::string save_order(const CommandArguments& given, const std::string& signal) {
  const std::string order = "save:" + (signal.starts_with("SIG") ? signal.substr(3) : signal);
  if (!launcher::signal_of_order(order)) {
    given.refuse("--save " + signal +
                 ": give a signal that a program can handle, such as SIGUSR1; SIGTERM is sent anyway");
  }
  return order;
}

}  // namespace

int stop_job(const std::vector<std::string>& arguments) {
  const CommandArguments given({.name = "stop",
                                .usage = "ddprun stop [JOB] [--save SIGUSR1] [--within 60s]",
                                .about = "Ends a job on all of its nodes. --save sends its workers a signal first.",
                                .flags = {},
                                .values = {"--save", "--within"}},
                               arguments);
  if (given.has("--within") && !given.has("--save")) given.refuse("--within is the time for --save");
  const milliseconds within = given.duration("--within").value_or(kSaveWithin);
  std::optional<std::string> order;
  if (const auto signal = given.value("--save")) order = save_order(given, *signal);
  Stop stop(find_job_with_processes("stop", given.job()));
  if (order && !stop.save(*order, within)) return 1;
  return stop.end();
}

}  // namespace ddp::apps
