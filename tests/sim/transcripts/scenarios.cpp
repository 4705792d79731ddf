// SPDX-License-Identifier: BSD-3-Clause
#include "tests/sim/transcripts/scenarios.hpp"

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>

#include "rendezvous/base/text.hpp"
#include "tests/sim/world.hpp"

namespace ddp::sim {

namespace {

constexpr std::size_t kWidth = 100;

// Returns a job in which nothing goes wrong. Each node has two workers, whose work takes ten seconds.
Plan job_of(int min_nodes, int max_nodes, int starting) {
  Plan plan;
  plan.seed = kSteady;
  plan.job = {.id = "job", .min_nodes = min_nodes, .max_nodes = max_nodes, .max_restarts = 1};
  for (int i = 0; i < starting; ++i) plan.machines.push_back({milliseconds(0), 2});
  plan.join_timeout = seconds(60);
  plan.last_call = seconds(5);
  plan.lost_after = seconds(15);
  plan.shutdown_timeout = seconds(30);
  plan.delay = milliseconds(2);
  plan.work_least = plan.work_most = seconds(10);
  plan.watchdog = seconds(20);
  return plan;
}

Plan fixed(int nodes) { return job_of(nodes, nodes, nodes); }

Plan with(Plan plan, const std::vector<Fault>& faults) {
  plan.faults = faults;
  return plan;
}

Plan claimed_twice() {
  Plan plan = fixed(3);
  plan.job.node_ranks_given = true;
  plan.machines[2].starts_at = seconds(4);
  return with(plan, {{.at = seconds(2), .kind = FaultKind::RankTaken, .worker = 1}});
}

Plan head_lost() {
  Plan plan = fixed(2);
  plan.job.node_ranks_given = true;
  plan.deaf_percent = 100;
  plan.shutdown_timeout = seconds(5);
  return with(plan, {{.at = seconds(3), .kind = FaultKind::HeadLost, .machine = 1},
                     {.at = seconds(4), .kind = FaultKind::RankTaken, .worker = 1}});
}

Plan survivors_stay() {
  Plan plan = fixed(2);
  plan.job.survivors_stay = true;
  return with(plan, {{.at = seconds(5), .kind = FaultKind::WorkerCrashes, .machine = 1, .number = SIGKILL}});
}

Plan shrink_and_grow() {
  Plan plan = job_of(2, 3, 3);
  plan.job.survivors_stay = true;
  plan.work_least = plan.work_most = seconds(30);
  return with(plan, {{.at = seconds(5), .kind = FaultKind::AgentReplaced, .machine = 1, .lasting = seconds(8)}});
}

Plan below_min() {
  Plan plan = job_of(2, 3, 2);
  plan.job.survivors_stay = true;
  return with(plan, {{.at = seconds(8), .kind = FaultKind::AgentReplaced, .machine = 1, .lasting = seconds(8)}});
}

Plan second_signal() {
  Plan plan = fixed(2);
  plan.deaf_percent = 100;
  return with(
      plan,
      {{.at = seconds(5), .kind = FaultKind::UserStopsTwice, .machine = 1, .lasting = seconds(3), .number = SIGINT}});
}

Plan coordinator_sleeps() {
  Plan plan = fixed(2);
  plan.work_least = plan.work_most = seconds(30);
  return with(plan, {{.at = seconds(5), .kind = FaultKind::HostFrozen, .machine = 0, .lasting = seconds(12)}});
}

Plan coordinator_killed() {
  Plan plan = fixed(2);
  const milliseconds back(100);
  return with(plan, {{.at = seconds(5), .kind = FaultKind::CoordinatorKilled, .lasting = back},
                     {.at = seconds(7), .kind = FaultKind::WorkerExits, .machine = 1, .number = 7},
                     {.at = seconds(7), .kind = FaultKind::CoordinatorKilled, .lasting = back, .number = 2}});
}

Plan agent_replaced() {
  return with(fixed(2), {{.at = seconds(5), .kind = FaultKind::AgentReplaced, .lasting = milliseconds(200)}});
}

// Returns the plan with a journal in etcd. The node h0 is the first to claim the job.
Plan with_etcd(Plan plan) {
  plan.has_etcd = true;
  plan.work_least = plan.work_most = seconds(60);
  return plan;
}

Plan taken_over() {
  Plan plan = with_etcd(job_of(2, 3, 3));
  plan.job.survivors_stay = true;
  return with(plan, {{.at = seconds(8), .kind = FaultKind::PowerLoss, .machine = 0}});
}

Plan replaced() {
  return with(with_etcd(fixed(2)), {{.at = seconds(5), .kind = FaultKind::PowerLoss, .machine = 0},
                                    {.at = seconds(40), .kind = FaultKind::AgentStarts, .worker = 1}});
}

Plan holder_slept() {
  return with(with_etcd(job_of(1, 3, 3)),
              {{.at = seconds(8), .kind = FaultKind::CoordinatorStopped, .machine = 0, .lasting = seconds(12)}});
}

Plan last_call() {
  Plan plan = job_of(2, 4, 3);
  plan.machines[1].starts_at = seconds(2);
  plan.machines[2].starts_at = seconds(4);
  return plan;
}

// Returns the text as lines of at most kWidth columns that begin with "# ".
std::string comment(const std::string& text) {
  std::string lines, line = "#";
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (line.size() + 1 + word.size() > kWidth) {
      lines += line + "\n";
      line = "#";
    }
    line += " " + word;
  }
  return lines + line + "\n";
}

std::string describe_job(const Plan& plan) {
  const rendezvous::JobShape& job = plan.job;
  const bool is_elastic = job.min_nodes < job.max_nodes;
  std::string text = "The job: --nnodes " + (is_elastic ? std::to_string(job.min_nodes) + ":" : "") +
                     std::to_string(job.max_nodes) + ", --max-restarts " + std::to_string(job.max_restarts);
  if (job.node_ranks_given) text += ", each node has a --node-rank";
  if (is_elastic) text += ", last call " + rendezvous::to_string(plan.last_call);
  return text + ", lost after " + rendezvous::to_string(plan.lost_after) +
         (plan.has_etcd ? "; the journal is in etcd, and h0 claims it first" : "; h0 has the coordinator") +
         ". The first column is seconds.";
}

// Returns the contents of a scenario's file; nothing if a promise is broken, which it prints.
std::optional<std::string> transcript_of(const Scenario& scenario) {
  Coverage coverage;
  const milliseconds from = scenario.from_the_start ? milliseconds(0) : scenario.plan.faults.front().at;
  Transcript transcript(Transcript::Resolution::Milliseconds, from);
  World world(scenario.plan, coverage, &transcript);
  const auto violation = world.run();
  std::string text = comment(scenario.title) + "#\n" + comment(describe_job(scenario.plan)) + "\n";
  if (from.count() > 0 && !scenario.plan.has_etcd)
    text += "             (the job starts as in two_nodes_succeed.txt)\n";
  for (const std::string& line : transcript.lines()) text += line + "\n";
  if (!violation) return text;
  std::printf("%s%s: this breaks a promise: %s (%s)\n", text.c_str(), scenario.name.c_str(),
              kSentences[static_cast<std::size_t>(violation->promise)], violation->what.c_str());
  return std::nullopt;
}

std::filesystem::path path_of(const std::string& folder, const Scenario& scenario) {
  return std::filesystem::path(folder) / (scenario.name + ".txt");
}

// Prints where two texts differ first, with the line before.
void print_difference(const std::string& name, const std::string& checked_in, const std::string& now) {
  std::istringstream olds(checked_in), news(now);
  std::string before, old_line, new_line;
  int number = 1;
  while (true) {
    const bool has_old = static_cast<bool>(std::getline(olds, old_line));
    const bool has_new = static_cast<bool>(std::getline(news, new_line));
    if (!has_old) old_line = "(the end)";
    if (!has_new) new_line = "(the end)";
    if (!has_old || !has_new || old_line != new_line) break;
    before = old_line;
    ++number;
  }
  std::printf("%s.txt, line %d:\n  %s\n- %s\n+ %s\n", name.c_str(), number, before.c_str(), old_line.c_str(),
              new_line.c_str());
}

}  // namespace

std::vector<Scenario> all_scenarios() {
  return {
      {"two_nodes_succeed", "Two nodes find each other, run a round, and all of their workers succeed.", fixed(2),
       true},
      {"worker_fails_and_is_restarted",
       "A worker exits with code 7. All workers of the round are stopped; when the last one is reaped, the next round "
       "starts and spends the restart.",
       with(fixed(2), {{.at = seconds(5), .kind = FaultKind::WorkerExits, .machine = 1, .number = 7}})},
      {"restart_budget_spent",
       "A worker crashes in the second round as well, when no restart is left: the job ends with the exit code of that "
       "worker.",
       with(fixed(2), {{.at = seconds(5), .kind = FaultKind::WorkerExits, .machine = 1, .number = 7},
                       {.at = seconds(10), .kind = FaultKind::WorkerCrashes, .machine = 0, .number = SIGSEGV}})},
      {"survivors_stay",
       "With --on-failure replace a worker is killed. The others leave their groups; once all are quiet, the next "
       "round "
       "begins with them, and one new process.",
       survivors_stay()},
      {"survivors_shrink_and_grow",
       "With --on-failure shrink a node of an elastic job is lost: the workers of the others stay, and go on in a "
       "round of their own. When another node comes in its place, they stay, too.",
       shrink_and_grow()},
      {"survivors_wait_below_min",
       "With --on-failure shrink a node is lost, and fewer than MIN are left. The workers of the other wait until "
       "another node has come.",
       below_min()},
      {"link_breaks_and_comes_back",
       "The link of a node breaks and comes back within the reconnect window of 3 s: the coordinator repeats what the "
       "node has to do, and the round goes on.",
       with(fixed(2), {{.at = seconds(5), .kind = FaultKind::LinkCut, .machine = 1}})},
      {"node_lost_then_back",
       "The link of a node of an elastic job breaks, and the node gets no other one for 8 s. It kills its workers "
       "after "
       "2 s; after 3 s it counts as lost, and the others go on without it. When it is back it is a new node, and a "
       "round with it begins.",
       with(job_of(1, 2, 2), {{.at = seconds(5), .kind = FaultKind::LinkCut, .machine = 1},
                              {.at = seconds(5), .kind = FaultKind::Partition, .machine = 1, .lasting = seconds(8)}})},
      {"node_falls_silent",
       "The network of a node of an elastic job fails for 25 s, and no link is seen to break. The node gives up its "
       "link, kills its workers after 10 s and leaves after 15 s, when it counts as lost.",
       with(job_of(1, 2, 2), {{.at = seconds(3), .kind = FaultKind::Partition, .machine = 1, .lasting = seconds(25)}})},
      {"node_lost_and_replaced",
       "A job of a fixed number of nodes loses one for good and waits for another, which takes its place. This spends "
       "a "
       "restart.",
       with(fixed(2), {{.at = seconds(5), .kind = FaultKind::PowerLoss, .machine = 1},
                       {.at = seconds(40), .kind = FaultKind::AgentStarts, .worker = 1}})},
      {"elastic_scale_up",
       "A node joins a running elastic job that has a free seat: the round is stopped, and one with the new node "
       "begins. No restart is spent.",
       with(job_of(1, 3, 2), {{.at = seconds(10), .kind = FaultKind::AgentStarts, .worker = 1}})},
      {"elastic_scale_down",
       "The user stops one node of an elastic job: it leaves, and the others go on in a round without it.",
       with(job_of(1, 3, 3), {{.at = seconds(5), .kind = FaultKind::UserStops, .machine = 1, .number = SIGTERM}})},
      {"spare_takes_over",
       "An elastic job has all the nodes it may have, and one more waits as a spare. A node of the round dies with its "
       "agent, and the spare takes its seat.",
       with(job_of(1, 2, 2), {{.at = seconds(2), .kind = FaultKind::AgentStarts, .worker = 1},
                              {.at = seconds(5), .kind = FaultKind::AgentKilled, .machine = 1}})},
      {"last_call",
       "An elastic job has enough nodes but not all it may have: it waits for the last call, so that a node that comes "
       "a little later is in the first round.",
       last_call(), true},
      {"node_rank_claimed_twice",
       "Two hosts were given --node-rank 1. The second one waits in case the first is gone, and is refused as soon as "
       "a "
       "heartbeat of the first arrives.",
       claimed_twice(), true},
      {"head_lost",
       "A node that ddprun --hosts has started loses its head, which starts another agent at once. That one waits "
       "until the workers of the first, which ignore SIGTERM, are killed; then the job goes on with a restart.",
       head_lost()},
      {"stop_signal",
       "The user stops the agent of one node with SIGTERM: the whole job of a fixed number of nodes ends, with code "
       "128 + 15 on all nodes.",
       with(fixed(2), {{.at = seconds(5), .kind = FaultKind::UserStops, .machine = 1, .number = SIGTERM}})},
      {"second_stop_signal",
       "The workers ignore SIGINT, and the user sends a second one before the time for a graceful end is over: all "
       "workers are killed.",
       second_signal()},
      {"coordinator_sleeps",
       "The coordinator's machine is suspended for 12 s. The other node kills its workers after 10 s without "
       "an answer, so that none of them could run beside a replacement. The coordinator counts no node as lost for the "
       "time of its own sleep.",
       coordinator_sleeps()},
      {"coordinator_killed",
       "The coordinator is killed twice. The first time nothing else happens, and no worker notices. The second time a "
       "worker has failed, and only one of the two nodes was told to stop: the next life has it in its journal, and "
       "tells "
       "the other one.",
       coordinator_killed()},
      {"own_agent_killed",
       "The agent of the coordinator's node is killed. Its keeper starts another one, which takes node rank 0 in the "
       "next "
       "round.",
       agent_replaced()},
      {"coordinator_taken_over",
       "The node that coordinates loses its power. Its lease ends, and another node claims the job: it has node rank 0 "
       "in "
       "the next round, which begins once the lost node's workers must be dead. The workers of the other nodes stay, "
       "and "
       "no restart is spent.",
       taken_over(), true},
      {"coordinator_taken_over_and_replaced",
       "The node that coordinates loses its power in a job of a fixed number of nodes: the job waits for another node "
       "in "
       "the place of the lost one. This spends a restart.",
       replaced()},
      {"coordinator_slept",
       "The coordinator is suspended for longer than its lease, and its node lives on. Another node claims the job. "
       "When "
       "the first coordinator goes on it tells nobody anything, and finds that it has lost the job; its node has the "
       "rank "
       "of the node that coordinates now.",
       holder_slept()},
      {"agent_stopped",
       "The agent of a node of an elastic job is suspended for 20 s. Its keeper kills the workers a moment after their "
       "lease of 10 s, and after 15 s the others go on without that node. When the agent goes on it is a new node.",
       with(job_of(1, 2, 2),
            {{.at = seconds(3), .kind = FaultKind::AgentStopped, .machine = 1, .lasting = seconds(20)}})},
      {"node_sleeps",
       "A machine is suspended for 12 s, which is longer than the lease of its workers: they are killed as soon as it "
       "goes on. The cause of the next round is its sleep, which spends no restart.",
       with(job_of(1, 2, 2),
            {{.at = seconds(3), .kind = FaultKind::HostFrozen, .machine = 1, .lasting = seconds(12)}})},
      {"report_overtaken",
       "For 8 s nothing reaches the coordinator from h1, where a worker fails meanwhile. The node drops its silent "
       "link "
       "and gets a new one, on which its report arrives before the one that it had sent on the old link.",
       with(fixed(2), {{.at = seconds(2),
                        .kind = FaultKind::Partition,
                        .machine = 1,
                        .lasting = seconds(8),
                        .number = ToCoordinator},
                       {.at = seconds(4), .kind = FaultKind::WorkerExits, .machine = 1, .number = 7}})},
  };
}

bool write_transcripts(const std::string& folder) {
  std::filesystem::create_directories(folder);
  bool all_kept = true;
  for (const Scenario& scenario : all_scenarios()) {
    const auto text = transcript_of(scenario);
    all_kept &= text.has_value();
    if (text) std::ofstream(path_of(folder, scenario)) << *text;
  }
  return all_kept;
}

bool compare_transcripts(const std::string& folder) {
  std::set<std::filesystem::path> left_over;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    if (file.path().extension() == ".txt") left_over.insert(file.path());
  }
  bool all_alike = true;
  for (const Scenario& scenario : all_scenarios()) {
    const std::filesystem::path path = path_of(folder, scenario);
    left_over.erase(path);
    std::ostringstream checked_in;
    checked_in << std::ifstream(path).rdbuf();
    const auto now = transcript_of(scenario);
    if (now && *now == checked_in.str()) continue;
    all_alike = false;
    if (now) print_difference(scenario.name, checked_in.str(), *now);
  }
  for (const std::filesystem::path& path : left_over) std::printf("%s: no scenario has this name\n", path.c_str());
  if (all_alike && left_over.empty()) return true;
  std::printf("If the change is meant, write them again and read the difference:\n  sim --transcripts %s\n",
              folder.c_str());
  return false;
}

}  // namespace ddp::sim
