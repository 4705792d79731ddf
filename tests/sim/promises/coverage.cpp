// SPDX-License-Identifier: BSD-3-Clause
#include "tests/sim/promises/coverage.hpp"

#include <algorithm>
#include <cstdio>

namespace ddp::sim {

namespace {

constexpr std::array<const char*, static_cast<std::size_t>(Branch::Count)> kBranches = {
    "a restart after a failure",
    "a restart after a loss",
    "a further round that is no restart",
    "a node waits as a spare",
    "a newcomer takes the place of a node that is gone",
    "seats close up",
    "a claim on a held node rank is refused",
    "a challenger becomes the holder of its rank",
    "another job shape is refused",
    "another secret is refused",
    "another epoch ends an agent",
    "a node is lost by its silence",
    "a node is lost by its broken link",
    "the coordinator's node dies",
    "a link comes back in time",
    "a new link is up before the old one is seen to break",
    "a lost node comes back",
    "an agent kills its workers because it lost the coordinator",
    "a keeper kills the workers of an agent that does not run",
    "an agent that goes on notices what its keeper did",
    "an agent gives up a silent link",
    "the coordinator sleeps and goes on",
    "the budget is used up",
    "not all nodes come in time",
    "nobody takes the place of a lost node",
    "a first round opens with fewer nodes than max",
    "all workers succeed",
    "the coordinator's own agent leaves at its deadline",
    "a node leaves an elastic job",
    "a user's signal ends the job",
    "a second signal",
    "all nodes are told to kill their workers",
    "an agent decides alone after a signal",
    "a process cannot be killed",
    "a process that cannot be killed ends the job",
    "workers ignore SIGTERM",
    "what workers left ignores SIGTERM",
    "the guardian is gone",
    "a store fails",
    "a start of workers fails",
    "a stop meets workers that are just starting",
    "an agent never finds the coordinator",
    "an agent leaves because the coordinator is gone",
    "a loss explains a failure",
    "the failure of a peer is reported first",
    "a process is stopped and goes on",
    "the nodes of a round have no address of the coordinator in common",
    "a round has an address in numbers though the endpoint is a name",
    "a round is revoked",
    "a worker stays",
    "a node that was at fault too often runs, since no other waits",
    "a node that was at fault too often waits",
    "a hang restarts a job of several nodes",
    "a hang ends a job of several nodes",
    "a worker stays in a round with fewer nodes",
    "a worker stays in a round with more nodes",
    "workers wait for nodes to come",
    "a worker is about to end in an elastic job",
    "the coordinator alone is killed",
    "a decision that was sent to nobody is kept",
    "a decision that was sent to nobody is forgotten",
    "another node takes the coordinator's place",
    "a coordinator doubts that it has the job",
    "a coordinator that doubted is sure again",
    "a coordinator finds that it has lost the job",
    "an older coordinator's word comes after a newer one's",
    "a write of an older coordinator is refused",
    "a job is over, and its record is removed",
    "a job is over, and not all nodes have heard of it",
    "a coordinator's node leaves, and another one coordinates",
    "a new node finds the record of a job that lives",
    "a new node finds the record of a job that is gone",
    "the head is out of reach",
};

constexpr std::array<const char*, 8> kCoordinatorNames = {"AgentLinked", "AgentReported",   "AgentBeat", "AgentGone",
                                                          "StoreOpened", "CoordinatorTick", "Recovered", "StoreLost"};
constexpr std::array<const char*, 5> kCoordinatorPhases = {"Gathering", "Opening", "Running", "Stopping", "Over"};
constexpr std::array<const char*, 22> kAgentNames = {
    "LinkUp",         "LinkDown",     "LinkFailed",  "LinkRefused",     "BeatArrived",    "DirectiveArrived",
    "WorkersStarted", "NeverStarted", "WorkerDying", "WorkerExited",    "MissingStarted", "WorkerStays",
    "WorkerQuiet",    "AllGone",      "StopSignal",  "Suspend",         "GuardianGone",   "HeadGone",
    "Tick",           "HangFound",    "WordsRead",   "CoordinatorNamed"};
constexpr std::array<const char*, 9> kAgentPhases = {"Idle",    "Starting", "Running",  "Stopping", "Lingering",
                                                     "Killing", "Left",     "Revoking", "Quiet"};

// What ten thousand seeds have to reach has a +, by event and phase. The others are rare or impossible.
constexpr std::array<const char*, 8> kCoordinatorMust = {"+++++", "+++++", "+++++", "+++++",
                                                         " + + ", "+++++", "+    ", "     "};
constexpr std::array<const char*, 22> kAgentMust = {
    "+ ++++ ++", "+ ++++ ++", "+ ++++ ++", "+        ", "++++++ ++", "++++++ ++", " + +     ", " + + +   ",
    "  ++ +   ", "  ++ + ++", "  ++     ", "  +      ", "  +    + ", "+   ++   ", "+ ++++ ++", "         ",
    "+ ++++  +", "+ ++++  +", "++++++ ++", "         ", "       ++", "         "};

template <typename Counts, typename Musts, typename Names, typename Phases>
void add_missing(std::vector<std::string>& missing, const Counts& counts, const Musts& musts, const Names& names,
                 const Phases& phases) {
  for (std::size_t event = 0; event < names.size(); ++event) {
    for (std::size_t phase = 0; phase < phases.size(); ++phase) {
      const bool must = musts[event][phase] == '+';
      if (must && counts[event][phase] == 0)
        missing.push_back(std::string("never: ") + names[event] + " in " + phases[phase]);
    }
  }
}

template <typename Counts, typename Names, typename Phases>
void print_table(const char* title, const Counts& counts, const Names& names, const Phases& phases) {
  std::printf("%-18s", title);
  for (const char* phase : phases) std::printf("%11s", phase);
  std::printf("\n");
  for (std::size_t event = 0; event < names.size(); ++event) {
    std::printf("  %-16s", names[event]);
    for (std::size_t phase = 0; phase < phases.size(); ++phase) {
      std::printf("%11llu", static_cast<unsigned long long>(counts[event][phase]));
    }
    std::printf("\n");
  }
}

template <typename Counts>
std::pair<int, int> reached_pairs(const Counts& counts) {
  int reached = 0, all = 0;
  for (const auto& row : counts) {
    for (const std::uint64_t count : row) {
      reached += count > 0;
      ++all;
    }
  }
  return {reached, all};
}

}  // namespace

void Coverage::add(const Coverage& other) {
  const auto add_table = [](auto& to, const auto& from) {
    for (std::size_t i = 0; i < to.size(); ++i) {
      for (std::size_t j = 0; j < to[i].size(); ++j) to[i][j] += from[i][j];
    }
  };
  add_table(coordinator_, other.coordinator_);
  add_table(agent_, other.agent_);
  for (std::size_t i = 0; i < branches_.size(); ++i) branches_[i] += other.branches_[i];
  events += other.events;
  rounds += other.rounds;
  workers += other.workers;
  least_margin_cut = std::min(least_margin_cut, other.least_margin_cut);
  least_margin_silence = std::min(least_margin_silence, other.least_margin_silence);
  least_margin_round = std::min(least_margin_round, other.least_margin_round);
}

void Coverage::print() const {
  print_table("coordinator", coordinator_, kCoordinatorNames, kCoordinatorPhases);
  print_table("agent", agent_, kAgentNames, kAgentPhases);
  const auto [coordinator, coordinators] = reached_pairs(coordinator_);
  const auto [agent, agents] = reached_pairs(agent_);
  std::printf("event x phase reached: coordinator %d of %d, agent %d of %d\n", coordinator, coordinators, agent,
              agents);
  for (std::size_t i = 0; i < branches_.size(); ++i) {
    std::printf("%10llu  %s\n", static_cast<unsigned long long>(branches_[i]), kBranches[i]);
  }
  std::printf("%llu events, %llu rounds, %llu workers\n", static_cast<unsigned long long>(events),
              static_cast<unsigned long long>(rounds), static_cast<unsigned long long>(workers));
  std::printf(
      "from the last act of a lost node's workers, at least: %lld ms to its loss if its link broke, %lld ms if it "
      "fell silent; %lld ms to the next round's first worker\n",
      static_cast<long long>(least_margin_cut.count()), static_cast<long long>(least_margin_silence.count()),
      static_cast<long long>(least_margin_round.count()));
}

std::vector<std::string> Coverage::missing() const {
  std::vector<std::string> missing;
  for (std::size_t i = 0; i < branches_.size(); ++i) {
    if (branches_[i] == 0) missing.push_back(std::string("never: ") + kBranches[i]);
  }
  add_missing(missing, coordinator_, kCoordinatorMust, kCoordinatorNames, kCoordinatorPhases);
  add_missing(missing, agent_, kAgentMust, kAgentNames, kAgentPhases);
  return missing;
}

}  // namespace ddp::sim
