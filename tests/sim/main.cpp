// SPDX-License-Identifier: BSD-3-Clause
// Runs seeds through the simulator.
//
//   sim                   DDPRUN_SIM_SEEDS seeds (10000), from 1; prints what was reached. Fails if a promise is
//   broken,
//                         or if something that must be reached never was (5000 seeds or more)
//   sim --seeds A:B       these
//   sim --seed N          this one; with --trace all that happens
//   sim --crowd           4,000 agents form a round: how many messages, and how much longer than 1,000 take
//
// A seed that breaks a promise is made smaller, and printed with what happened in it.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>

#include "tests/sim/shrink.hpp"
#include "tests/sim/world.hpp"

namespace ddp::sim {

namespace {

constexpr std::uint64_t kEnoughToReachAll = 5000;
constexpr std::uint64_t kRepeatEach = 100;  // how often a seed is run twice, to see that it repeats itself
constexpr int kTellBroken = 5;              // then it stops
constexpr std::size_t kLinesTold = 120;

volatile std::uint64_t running_seed = 0;

unsigned long long number(std::uint64_t value) { return value; }

void on_abort(int) {
  std::fprintf(stderr, "seed %llu breaks a promise: A core's DDP_CHECK holds.\nrerun: sim --seed %llu --trace\n",
               number(running_seed), number(running_seed));
  std::_Exit(1);
}

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

void print_lines(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) std::printf("%s\n", line.c_str());
}

void tell(std::uint64_t seed, const Violation& violation) {
  std::printf("seed %llu breaks a promise: %s\n  %s\n", number(seed),
              kSentences[static_cast<std::size_t>(violation.promise)], violation.what.c_str());
}

void explain(const Plan& plan, const Violation& violation) {
  const Plan small = shrink(plan, violation.promise);
  Coverage coverage;
  std::vector<std::string> lines;
  World world(small, coverage, &lines);
  world.run();
  std::printf("the least of it that still does: %s", describe(small).c_str());
  const std::size_t told = std::min(lines.size(), kLinesTold);
  lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(told));
  print_lines(lines);
  std::printf("rerun: sim --seed %llu --trace\n", number(plan.seed));
}

int run_one(std::uint64_t seed, bool with_trace) {
  running_seed = seed;
  Coverage coverage;
  std::vector<std::string> lines;
  const Plan plan = make_plan(seed);
  World world(plan, coverage, with_trace ? &lines : nullptr);
  const auto violation = world.run();
  if (with_trace) std::printf("%s", describe(plan).c_str());
  print_lines(lines);
  std::printf("hash %016llx\n", number(world.hash()));
  if (!violation) return 0;
  tell(seed, *violation);
  if (!with_trace) explain(plan, *violation);
  return 1;
}

bool repeats_itself(const Plan& plan, std::uint64_t hash) {
  Coverage unused;
  World again(plan, unused);
  again.run();
  return again.hash() == hash;
}

int run_many(std::uint64_t first, std::uint64_t last, bool can_explain) {
  const std::uint64_t count = last - first + 1;
  Coverage coverage;
  const double start = cpu_seconds();
  int broken = 0;
  for (std::uint64_t seed = first; seed <= last && broken < (can_explain ? kTellBroken : 1); ++seed) {
    running_seed = seed;
    const Plan plan = make_plan(seed);
    World world(plan, coverage);
    if (const auto violation = world.run()) {
      tell(seed, *violation);
      if (++broken == 1 && can_explain) explain(plan, *violation);
    } else if (seed % kRepeatEach == 0 && !repeats_itself(plan, world.hash())) {
      std::printf("seed %llu does not repeat itself\n", number(seed));
      ++broken;
    }
  }
  if (broken > 0) return 1;
  coverage.print();
  std::printf("%llu seeds, %.2f ms each\n", number(count), 1000 * (cpu_seconds() - start) / static_cast<double>(count));
  if (count < kEnoughToReachAll) return 0;
  const auto missing = coverage.missing();
  print_lines(missing);
  return missing.empty() ? 0 : 1;
}

// Seconds; nothing: a promise was broken.
std::optional<double> run_crowd(int agents, bool fails) {
  Coverage coverage;
  const double start = cpu_seconds();
  World world(make_crowd(agents, fails), coverage);
  if (const auto violation = world.run()) {
    tell(0, *violation);
    return std::nullopt;
  }
  const double seconds = cpu_seconds() - start;
  int messages = 0, most = 0;
  for (const Process& process : world.scene().processes) {
    const int mine = process.reports_sent + process.directives_got + process.news_got;
    messages += mine;
    most = std::max(most, mine);
  }
  std::printf("%d agents%s: %d messages but heartbeats, at most %d for one; %.2f s\n", agents,
              fails ? ", and all workers fail" : "", messages, most, seconds);
  // It comes, is told to wait, to run, it runs, is done, is told to leave, has left; and that each of 8 workers failed.
  return most <= (fails ? 17 : 8) ? std::optional(seconds) : std::nullopt;
}

bool is_linear(bool fails) {
  double least[2] = {0, 0};
  for (int repeat = 0; repeat < 3; ++repeat) {  // the quickest: other programs run as well
    for (const int size : {0, 1}) {
      const auto seconds = run_crowd(size == 0 ? 1000 : 4000, fails);
      if (!seconds) return false;
      least[size] = repeat == 0 ? *seconds : std::min(least[size], *seconds);
    }
  }
  // Four times as many, and caches that are too small; squares would be sixteen.
  std::printf("%.1f times as long\n", least[1] / least[0]);
  return least[1] < 10 * least[0];
}

int run_crowds() {
  const bool joins = is_linear(false), fails = is_linear(true);
  return joins && fails ? 0 : 1;
}

struct Options {
  std::uint64_t first = 1, last = 10000;
  std::optional<std::uint64_t> one;
  bool with_trace = false, crowd = false, brief = false;
};

std::uint64_t to_number(const char* text) { return std::strtoull(text, nullptr, 10); }

Options parse(int argc, char** argv) {
  Options options;
  if (const char* count = std::getenv("DDPRUN_SIM_SEEDS")) options.last = to_number(count);
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : "";
    if (option == "--trace") options.with_trace = true;
    if (option == "--crowd") options.crowd = true;
    if (option == "--brief") options.brief = true;  // does not explain: for scripts/stress/mutants
    if (option == "--seed") options.one = to_number(value);
    if (option == "--seeds") {
      options.first = to_number(value);
      const char* colon = std::strchr(value, ':');
      options.last = colon ? to_number(colon + 1) : options.first;
    }
  }
  return options;
}

}  // namespace

}  // namespace ddp::sim

int main(int argc, char** argv) {
  using namespace ddp::sim;
  std::signal(SIGABRT, on_abort);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const Options options = parse(argc, argv);
  if (options.crowd) return run_crowds();
  if (options.one) return run_one(*options.one, options.with_trace);
  return run_many(options.first, options.last, !options.brief);
}
