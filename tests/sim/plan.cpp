// SPDX-License-Identifier: BSD-3-Clause
#include "tests/sim/plan.hpp"

#include <algorithm>
#include <array>
#include <csignal>

#include "rendezvous/base/text.hpp"

namespace ddp::sim {

namespace {

constexpr std::array<const char*, kFaultKinds> kNames = {
    "worker exits",      "worker crashes",    "worker hangs",        "worker stuck in the kernel",
    "leftover stuck",    "spawn fails",       "store fails",         "store is late",
    "agent killed",      "guardian killed",   "power loss",          "agent stopped",
    "host frozen",       "link cut",          "links die",           "link flaps",
    "link half-open",    "partition",         "user stops",          "user stops twice",
    "agent starts",      "agent replaced",    "node rank taken",     "shape differs",
    "secret differs",    "other coordinator", "hang found",          "coordinator killed",
    "store killed",      "head lost",         "coordinator stopped", "etcd stalls",
    "cut off from etcd",
};

int machines_wanted(Random& random) {
  const int dice = random.below(1000);
  if (dice < 4) return 64;
  if (dice < 60) return random.between(9, 16);
  if (dice < 300) return random.between(5, 8);
  return random.between(2, 4);
}

void choose_job(Random& random, Plan& plan) {
  rendezvous::JobShape& job = plan.job;
  job.id = "job";
  job.max_restarts = random.between(0, 3);
  const int kind = random.below(100);
  int nodes = kind < 8 ? 1 : machines_wanted(random);
  job.node_ranks_given = kind >= 4 && kind < 40;
  job.max_nodes = nodes;
  job.min_nodes = kind < 60 ? nodes : random.between(1, nodes - 1);
  int starting = job.min_nodes == nodes ? nodes : random.between(job.min_nodes, nodes);
  const bool equal = random.percent(40);
  const int slots = random.pick({1, 1, 2, 2, 3, 4});
  const milliseconds spread = random.pick<milliseconds>({milliseconds(100), seconds(3), seconds(15)});
  for (int i = 0; i < starting; ++i) {
    const auto start = std::chrono::duration_cast<milliseconds>(random.between(milliseconds(0), spread));
    plan.machines.push_back({start, equal ? slots : random.pick({1, 1, 2, 2, 3, 5})});
  }
}

void choose_world(Random& random, Plan& plan) {
  plan.join_timeout = random.pick<seconds>({seconds(20), seconds(40), seconds(90)});
  plan.last_call = random.pick<seconds>({seconds(0), seconds(2), seconds(10)});
  plan.lost_after = random.pick<seconds>({seconds(6), seconds(15), seconds(15), seconds(15), seconds(30)});
  plan.shutdown_timeout = random.pick<seconds>({seconds(2), seconds(5), seconds(30)});
  plan.delay = random.pick<milliseconds>({milliseconds(1), milliseconds(20), milliseconds(200)});
  plan.slow_percent = random.pick({0, 0, 2});
  if (plan.lost_after < seconds(15)) plan.slow_percent = 0;  // an answer could take longer than lost_after allows
  plan.late = random.pick<milliseconds>({milliseconds(0), milliseconds(2), milliseconds(100)});
  plan.extra_ticks = random.pick({0, 0, 20});
  plan.repeat_percent = random.pick({0, 0, 20});
  plan.work_least = random.pick<seconds>({seconds(1), seconds(10), seconds(20)});
  plan.work_most = plan.work_least + random.pick<seconds>({seconds(5), seconds(20), seconds(40)});
  plan.watchdog = random.pick<seconds>({seconds(5), seconds(20), seconds(60)});
  plan.deaf_percent = random.pick({0, 0, 10, 50});
  plan.big_percent = random.pick({0, 20, 60});
  plan.unmoved_percent = random.pick({0, 10, 100});
}

// Draws from a stream of its own, so that the rest of a seed's plan stays as it was.
void choose_addresses(Plan& plan) {
  Random random(plan.seed, {16});
  plan.one_spelling = random.percent(70);
  plan.is_loopback = random.percent(20);
  plan.arrivals = random.pick({1, 1, 1, 2});
  plan.is_translated = random.percent(10);
}

milliseconds any(Random& random, milliseconds low, milliseconds high) {
  return std::chrono::duration_cast<milliseconds>(random.between(low, high));
}

Fault choose_fault(Random& random, const Plan& plan, FaultKind kind) {
  Fault fault;
  fault.kind = kind;
  fault.machine = random.below(static_cast<int>(plan.machines.size()));
  fault.worker = random.below(8);
  switch (kind) {
    case FaultKind::WorkerExits:
      fault.number = random.pick({1, 1, 7, 127});
      break;
    case FaultKind::WorkerCrashes:
      fault.number = random.pick({SIGSEGV, SIGKILL, SIGABRT});
      break;
    case FaultKind::WorkerStuck:
    case FaultKind::LeftoverStuck:
      fault.lasting = random.pick<milliseconds>({seconds(3), seconds(12), seconds(30), seconds(120)});
      break;
    case FaultKind::StoreIsLate:
      fault.lasting = any(random, seconds(1), seconds(10));
      break;
    case FaultKind::AgentStopped:
    case FaultKind::HostFrozen:
      fault.lasting = random.pick({any(random, seconds(1), seconds(8)), any(random, seconds(8), seconds(40))});
      break;
    case FaultKind::LinkFlaps:
      fault.number = random.between(2, 6);
      fault.lasting = any(random, milliseconds(50), milliseconds(1500));
      break;
    case FaultKind::HalfOpen:
      fault.number = random.below(3);
      break;
    case FaultKind::Partition:
      fault.number = random.pick({0, 0, 1, 2});
      fault.lasting = random.pick({any(random, milliseconds(200), seconds(5)), any(random, seconds(5), seconds(40))});
      break;
    case FaultKind::UserStops:
    case FaultKind::UserStopsTwice:
      fault.number = random.pick({SIGTERM, SIGINT});
      fault.lasting = any(random, milliseconds(20), seconds(6));
      break;
    case FaultKind::LinksDie:
      fault.lasting = any(random, seconds(1), seconds(20));
      break;
    case FaultKind::AgentReplaced:
      fault.lasting = any(random, milliseconds(50), seconds(20));
      break;
    case FaultKind::ShapeDiffers:
      fault.number = random.below(7);
      break;
    case FaultKind::OtherCoordinator:
      fault.lasting = any(random, milliseconds(10), seconds(5));
      break;
    default:
      break;
  }
  return fault;
}

// Whether a fault ends the whole job. Such faults are made rarer: most jobs would end at once if the coordinator's node
// were hit as often as the others.
bool ends_the_job(const Fault& fault) {
  switch (fault.kind) {
    case FaultKind::AgentKilled:
    case FaultKind::GuardianKilled:
    case FaultKind::PowerLoss:
    case FaultKind::UserStops:
    case FaultKind::UserStopsTwice:
      return fault.machine == 0;
    case FaultKind::OtherCoordinator:
      return true;
    default:
      return false;
  }
}

void choose_faults(Random& random, Plan& plan) {
  std::vector<FaultKind> kinds;  // swarm testing: a few kinds often, rather than all kinds at once
  const int share = random.pick({10, 25, 50});
  for (int kind = 0; kind < static_cast<int>(FaultKind::HangFound); ++kind) {
    if (random.percent(share)) kinds.push_back(static_cast<FaultKind>(kind));
  }
  if (kinds.empty()) return;
  const int count = random.pick({1, 2, 3, 5, 8, 12});
  const milliseconds horizon = random.pick<milliseconds>({seconds(5), seconds(20), seconds(60)});
  milliseconds begin = plan.last_call;  // most faults come while workers run
  for (const Machine& machine : plan.machines) begin = std::max(begin, machine.starts_at);
  milliseconds last(0);
  for (int i = 0; i < count; ++i) {
    Fault fault =
        choose_fault(random, plan, kinds[static_cast<std::size_t>(random.below(static_cast<int>(kinds.size())))]);
    if (ends_the_job(fault) && random.percent(75)) continue;
    // Races need faults that are close to one another.
    const bool soon = i > 0 && random.percent(40);
    const bool early = random.percent(25);
    fault.at = soon ? last + any(random, milliseconds(0),
                                 random.pick<milliseconds>({milliseconds(20), seconds(1), seconds(5)}))
                    : any(random, early ? milliseconds(0) : begin, begin + horizon);
    last = fault.at;
    plan.faults.push_back(fault);
  }
  std::stable_sort(plan.faults.begin(), plan.faults.end(), [](const Fault& a, const Fault& b) { return a.at < b.at; });
}

// Draws from a stream of its own, as choose_addresses() does.
void choose_hangs(Plan& plan) {
  Random random(plan.seed, {20});
  if (!random.percent(15)) return;
  plan.on_hang = random.percent(70) ? launcher::OnHang::Restart : launcher::OnHang::Stop;
  const int hangs = random.between(1, 3);
  for (int i = 0; i < hangs; ++i) {
    Fault fault = {.kind = FaultKind::HangFound, .machine = random.below(static_cast<int>(plan.machines.size()))};
    fault.at = any(random, seconds(1), seconds(60));
    plan.faults.push_back(fault);
  }
  std::stable_sort(plan.faults.begin(), plan.faults.end(), [](const Fault& a, const Fault& b) { return a.at < b.at; });
}

// Draws from a stream of its own, too.
void choose_budget(Plan& plan) {
  Random random(plan.seed, {21});
  if (random.percent(30)) plan.job.restart_window = random.pick<seconds>({seconds(5), seconds(20), seconds(60)});
  const bool excludes = random.percent(40) && plan.job.max_nodes > 1 && !plan.job.node_ranks_given;
  if (excludes) plan.job.exclude_after = random.between(1, 2);
  plan.ranks_are_wanted = random.percent(20);
}

// Draws from a stream of its own, too.
void choose_deaths(Plan& plan) {
  Random random(plan.seed, {24});
  if (plan.job.max_nodes == 1 || !random.percent(40)) return;
  const bool in_a_row = random.percent(20);
  const int deaths = in_a_row ? random.between(2, 10) : random.between(1, 3);
  milliseconds at = any(random, milliseconds(0), seconds(40));
  for (int i = 0; i < deaths; ++i) {
    Fault fault = {.at = at, .kind = FaultKind::CoordinatorKilled};
    fault.number = random.pick({0, 0, 1, 1, 2, 3, 5, 20});
    fault.lasting = random.percent(90) ? any(random, milliseconds(10), milliseconds(300))
                                       : any(random, milliseconds(300), seconds(6));
    plan.faults.push_back(fault);
    if (random.percent(15)) {
      Fault store = {.at = at + any(random, milliseconds(0), seconds(2)), .kind = FaultKind::StoreKilled};
      store.number = random.pick({0, 1, 4});
      plan.faults.push_back(store);
    }
    at = in_a_row ? at + any(random, milliseconds(20), seconds(2)) : any(random, milliseconds(0), seconds(60));
  }
  std::stable_sort(plan.faults.begin(), plan.faults.end(), [](const Fault& a, const Fault& b) { return a.at < b.at; });
}

// Draws from a stream of its own, too. The head starts most agents again that have lost it, some of them before they
// have left. The coordinator's is not among them: its end is the job's.
void choose_heads(Plan& plan) {
  Random random(plan.seed, {27});
  const int machines = static_cast<int>(plan.machines.size());
  if (machines < 2 || !plan.job.node_ranks_given || !random.percent(30)) return;
  const int losses = random.between(1, 3);
  for (int i = 0; i < losses; ++i) {
    Fault fault = {.kind = FaultKind::HeadLost, .machine = random.between(1, machines - 1)};
    fault.at = any(random, milliseconds(0), seconds(40));
    plan.faults.push_back(fault);
    if (random.percent(20)) continue;
    const milliseconds until = random.pick<milliseconds>({milliseconds(100), seconds(5), seconds(40)});
    plan.faults.push_back(
        {.at = fault.at + any(random, milliseconds(0), until), .kind = FaultKind::RankTaken, .worker = fault.machine});
  }
  std::stable_sort(plan.faults.begin(), plan.faults.end(), [](const Fault& a, const Fault& b) { return a.at < b.at; });
}

// Returns a fault of the machine that coordinates, or of etcd.
Fault choose_takeover(Random& random) {
  Fault fault = {.machine = kCoordinators};
  fault.kind =
      random.pick({FaultKind::PowerLoss, FaultKind::PowerLoss, FaultKind::AgentKilled, FaultKind::HostFrozen,
                   FaultKind::CoordinatorStopped, FaultKind::CoordinatorStopped, FaultKind::Partition,
                   FaultKind::AgentReplaced, FaultKind::EtcdStalls, FaultKind::EtcdCutOff, FaultKind::EtcdCutOff});
  fault.lasting = random.pick({any(random, milliseconds(200), seconds(6)), any(random, seconds(5), seconds(12)),
                               any(random, seconds(5), seconds(40))});
  fault.worker = random.below(8);
  if (fault.kind == FaultKind::PowerLoss || fault.kind == FaultKind::AgentKilled) fault.lasting = milliseconds(0);
  return fault;
}

// Draws from a stream of its own, too.
void choose_etcd(Plan& plan) {
  Random random(plan.seed, {26});
  if (plan.job.max_nodes == 1 || plan.job.node_ranks_given || !random.percent(40)) return;
  plan.has_etcd = true;
  plan.is_loopback = plan.is_translated = false;
  std::erase_if(plan.faults, [](const Fault& fault) { return fault.kind == FaultKind::OtherCoordinator; });
  const int takeovers = random.pick({0, 1, 1, 1, 2, 3});
  milliseconds at = any(random, milliseconds(0), seconds(40));
  for (int i = 0; i < takeovers; ++i) {
    Fault fault = choose_takeover(random);
    fault.at = at;
    plan.faults.push_back(fault);
    at += any(random, milliseconds(0), random.pick<milliseconds>({seconds(1), seconds(10), seconds(40)}));
    const bool is_replaced = fault.kind == FaultKind::PowerLoss && random.percent(50);
    if (is_replaced) {
      plan.faults.push_back({.at = at + any(random, milliseconds(0), seconds(30)),
                             .kind = FaultKind::AgentStarts,
                             .worker = random.below(3)});
    }
  }
  std::stable_sort(plan.faults.begin(), plan.faults.end(), [](const Fault& a, const Fault& b) { return a.at < b.at; });
}

}  // namespace

Plan make_plan(std::uint64_t seed) {
  Plan plan;
  plan.seed = seed;
  Random random(seed, {1});
  choose_job(random, plan);
  choose_world(random, plan);
  choose_faults(random, plan);
  choose_addresses(plan);
  choose_hangs(plan);
  plan.job.survivors_stay = Random(seed, {19}).percent(40);
  choose_budget(plan);
  choose_deaths(plan);
  choose_etcd(plan);
  choose_heads(plan);
  return plan;
}

std::string endpoint_host(const Plan& plan, int machine) {
  if (plan.has_etcd) return "";
  return machine == 0 || plan.one_spelling ? "node0" : coordinator_address(plan, machine);
}

std::string coordinator_address(const Plan& plan, int machine) {
  if (machine == 0) return plan.is_loopback ? "127.0.1.1" : "10.2.0.1";
  return plan.is_translated ? "192.0.2.1" : arrived_at(plan, machine);
}

std::string arrived_at(const Plan& plan, int machine) {
  return "10.2." + std::to_string(machine % plan.arrivals) + ".1";
}

Plan make_crowd(int agents, bool fails) {
  Plan plan;
  Random random(1);
  choose_world(random, plan);
  plan.job = {.id = "job", .min_nodes = agents, .max_nodes = agents, .node_ranks_given = true};
  for (int i = 0; i < agents; ++i) plan.machines.push_back({any(random, milliseconds(0), seconds(1)), 8});
  plan.join_timeout = seconds(600);
  plan.lost_after = seconds(15);
  plan.shutdown_timeout = seconds(30);
  plan.delay = milliseconds(1);
  plan.late = milliseconds(0);
  plan.extra_ticks = plan.repeat_percent = plan.slow_percent = plan.deaf_percent = plan.big_percent = 0;
  plan.unmoved_percent = 0;
  plan.work_least = plan.work_most = seconds(5);
  if (fails) plan.faults.push_back({.at = seconds(3), .kind = FaultKind::WorkerExits, .machine = 1, .number = 7});
  return plan;
}

Plan make_hostile_plan(std::uint64_t seed) {
  Plan plan = make_plan(seed);
  if (Random(seed, {20}).percent(25)) {
    plan.lies = Lies::Database;
    return plan;
  }
  Random random(seed, {17});
  plan.lies = random.pick({Lies::Strangers, Lies::Strangers, Lies::Claimants, Lies::Coordinator});
  plan.liars = plan.job.max_nodes == 1 || plan.lies == Lies::Coordinator ? 0 : random.between(1, 4);
  plan.lies_until = any(random, seconds(2), seconds(90));
  plan.has_etcd = false;
  std::erase_if(plan.faults, [](const Fault& fault) {
    return fault.machine == kCoordinators || fault.kind >= FaultKind::CoordinatorStopped;
  });
  return plan;
}

milliseconds time_to_end(const Plan& plan) {
  // In each round a silent node is lost, the others are stopped (or cannot be), a replacement is awaited, and the last
  // watchdog may end the workers. There is one such round for each restart, and a few more.
  const milliseconds stop = plan.lost_after + plan.shutdown_timeout + seconds(25);
  const milliseconds round = plan.join_timeout + plan.last_call + seconds(15) + plan.work_most + plan.watchdog + stop;
  const milliseconds longest_fault = seconds(60);
  return longest_fault + round * (plan.job.max_restarts + 3) + plan.lost_after * 2;
}

// Returns "worker exits on h1, worker 0, with code 7".
std::string describe(const Fault& fault) {
  const std::string name = kNames[static_cast<std::size_t>(fault.kind)];
  const std::string where = name + (fault.machine == kCoordinators ? " on the coordinator's machine"
                                                                   : " on h" + std::to_string(fault.machine));
  const std::string lasting = ", for " + rendezvous::to_string(fault.lasting);
  const std::string worker = ", worker " + std::to_string(fault.worker);
  switch (fault.kind) {
    case FaultKind::WorkerExits:
      return where + worker + ", with code " + std::to_string(fault.number);
    case FaultKind::WorkerCrashes:
      return where + worker + ", by " + rendezvous::signal_name(fault.number);
    case FaultKind::WorkerHangs:
      return where + worker;
    case FaultKind::WorkerStuck:
      return where + worker + lasting;
    case FaultKind::UserStops:
      return where + ", with " + rendezvous::signal_name(fault.number);
    case FaultKind::UserStopsTwice:
      return where + ", with " + rendezvous::signal_name(fault.number) + ", again after " +
             rendezvous::to_string(fault.lasting);
    case FaultKind::LinkFlaps:
      return where + ", " + std::to_string(fault.number) + " times, every " + rendezvous::to_string(fault.lasting);
    case FaultKind::HalfOpen:
    case FaultKind::Partition: {
      static constexpr std::array<const char*, 3> kLost = {"", ", on the way to the coordinator only",
                                                           ", on the way to the agent only"};
      return where + kLost[static_cast<std::size_t>(fault.number)] +
             (fault.kind == FaultKind::Partition ? lasting : "");
    }
    case FaultKind::CoordinatorKilled:
      return name + " after " + std::to_string(fault.number) + " more actions" + lasting;
    case FaultKind::CoordinatorStopped:
    case FaultKind::EtcdStalls:
      return name + lasting;
    case FaultKind::StoreKilled:
      return name + ", with " + std::to_string(fault.number) + " connections";
    case FaultKind::AgentStarts:
    case FaultKind::SecretDiffers:
      return name;
    case FaultKind::RankTaken:
      return name + ", of machine " + std::to_string(fault.worker);
    case FaultKind::ShapeDiffers:
      return name + ", variant " + std::to_string(fault.number);
    default:
      return where + (fault.lasting.count() == 0 ? "" : lasting);
  }
}

std::string describe(const Plan& plan) {
  const auto ms = [](milliseconds time) { return std::to_string(time.count()) + " ms"; };
  const rendezvous::JobShape& job = plan.job;
  std::string text = "seed " + std::to_string(plan.seed) + ": --nnodes " + std::to_string(job.min_nodes) + ":" +
                     std::to_string(job.max_nodes) + (job.node_ranks_given ? ", static" : "") +
                     (plan.has_etcd ? ", etcd" : "") +
                     (!job.survivors_stay             ? ""
                      : job.min_nodes < job.max_nodes ? ", --on-failure shrink"
                                                      : ", --on-failure replace") +
                     (plan.on_hang == launcher::OnHang::Restart ? ", --on-hang restart"
                      : plan.on_hang == launcher::OnHang::Stop  ? ", --on-hang stop"
                                                                : "") +
                     ", --max-restarts " + std::to_string(job.max_restarts) +
                     (job.restart_window.count() == 0 ? "" : " within " + ms(job.restart_window)) +
                     (job.exclude_after == 0 ? "" : ", --exclude-after " + std::to_string(job.exclude_after)) +
                     ", join " + ms(plan.join_timeout) + ", last call " + ms(plan.last_call) + ", lost after " +
                     ms(plan.lost_after) + ", shutdown " + ms(plan.shutdown_timeout) + ", delay " + ms(plan.delay) +
                     ", work " + ms(plan.work_least) + " to " + ms(plan.work_most) + "\n";
  for (std::size_t i = 0; i < plan.machines.size() && i < 16; ++i) {
    text += "  machine " + std::to_string(i) + ": " + std::to_string(plan.machines[i].slots) + " workers, starts at " +
            ms(plan.machines[i].starts_at) + "\n";
  }
  static constexpr std::array<const char*, 5> kLies = {"", "strangers lie", "claimants lie", "the coordinator lies",
                                                       "the database lies"};
  if (plan.lies != Lies::None) {
    text += std::string("  ") + kLies[static_cast<std::size_t>(plan.lies)] + " (" + std::to_string(plan.liars) +
            " agents), until " + ms(plan.lies_until) + "\n";
  }
  for (std::size_t i = 0; i < plan.faults.size(); ++i) {
    text += "  fault " + std::to_string(i) + " at " + ms(plan.faults[i].at) + ": " + describe(plan.faults[i]) + "\n";
  }
  return text;
}

}  // namespace ddp::sim
