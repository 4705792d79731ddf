// SPDX-License-Identifier: BSD-3-Clause
// Runs seeds through the simulator.
//
//   sim                   runs DDPRUN_SIM_SEEDS seeds (5000), from 1, and prints what they reached. Fails if a promise
//                         is broken, or if 5000 seeds or more leave out something that must be reached
//   sim --seeds A:B       runs these seeds
//   sim --seed N          runs one seed; with --trace it prints what happens
//   sim --seeds-of F      runs the seeds that file F names, one a line; what follows the number is for readers
//   sim --hostile         with any of these: somebody lies in each seed, agents or the coordinator
//   sim --digest          prints one number for all that happens in the seeds, to compare two versions of the cores
//   sim --transcripts F   runs the scripted scenarios (scenarios.cpp) and writes what happens in each into folder F
//   sim --compare F       compares what happens in them with the files in F
//   sim --crowd           4,000 agents form a round: prints how many messages it takes, and how much longer than with
//                         1,000
//
// A seed that breaks a promise is made smaller and printed with what happened in it.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "rendezvous/base/text.hpp"
#include "tests/sim/shrink.hpp"
#include "tests/sim/transcripts/scenarios.hpp"
#include "tests/sim/world.hpp"

namespace ddp::sim {

namespace {

constexpr std::uint64_t kEnoughToReachAll = 5000;
constexpr std::uint64_t kRepeatEvery = 100;  // every hundredth seed is run twice, to see that it repeats itself
constexpr int kMostBroken = 5;               // broken seeds after which it stops
constexpr std::size_t kLinesShown = 120;

volatile std::uint64_t running_seed = 0;
bool is_hostile = false;

Plan plan_of(std::uint64_t seed) { return is_hostile ? make_hostile_plan(seed) : make_plan(seed); }

struct Fnv1a {
  std::uint64_t value = 14695981039346656037U;

  void add(std::uint64_t part) { value = (value ^ part) * 1099511628211U; }
  void add(const std::string& text) {
    for (const char letter : text) add(static_cast<unsigned char>(letter));
  }
};

unsigned long long number(std::uint64_t value) { return value; }

void on_abort(int) {
  std::fprintf(stderr, "seed %llu breaks a promise: A core's DDP_CHECK holds.\nrerun: sim%s --seed %llu --trace\n",
               number(running_seed), is_hostile ? " --hostile" : "", number(running_seed));
  std::_Exit(1);
}

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

void print_lines(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) std::printf("%s\n", line.c_str());
}

void print_violation(std::uint64_t seed, const Violation& violation) {
  std::printf("seed %llu breaks a promise: %s\n  %s\n", number(seed),
              kSentences[static_cast<std::size_t>(violation.promise)], violation.what.c_str());
}

void explain(const Plan& plan, const Violation& violation) {
  const Plan small = shrink(plan, violation.promise);
  Coverage coverage;
  Transcript transcript(Transcript::Resolution::Microseconds);
  World world(small, coverage, &transcript);
  world.run();
  std::printf("the least of it that still does: %s", describe(small).c_str());
  std::vector<std::string> lines = transcript.lines();
  const std::size_t shown = std::min(lines.size(), kLinesShown);
  lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(shown));
  print_lines(lines);
  std::printf("rerun: sim%s --seed %llu --trace\n", is_hostile ? " --hostile" : "", number(plan.seed));
}

int run_one(std::uint64_t seed, bool with_trace) {
  running_seed = seed;
  Coverage coverage;
  Transcript transcript(Transcript::Resolution::Microseconds);
  const Plan plan = plan_of(seed);
  World world(plan, coverage, with_trace ? &transcript : nullptr);
  const auto violation = world.run();
  if (with_trace) std::printf("%s", describe(plan).c_str());
  print_lines(transcript.lines());
  std::printf("hash %016llx\n", number(world.hash()));
  if (!violation) return 0;
  print_violation(seed, *violation);
  if (!with_trace) explain(plan, *violation);
  return 1;
}

bool repeats_itself(const Plan& plan, std::uint64_t hash) {
  Coverage unused;
  World again(plan, unused);
  again.run();
  return again.hash() == hash;
}

// Prints one number for everything that happens in these seeds, to the last word. A change of the code that changes no
// decision leaves the number as it is.
int run_digest(std::uint64_t first, std::uint64_t last) {
  Fnv1a digest;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    running_seed = seed;
    Coverage coverage;
    Transcript transcript(Transcript::Resolution::Microseconds);
    World world(plan_of(seed), coverage, &transcript);
    world.run();
    digest.add(world.hash());
    for (const std::string& line : transcript.lines()) digest.add(line);
  }
  std::printf("seeds %llu to %llu: digest %016llx\n", number(first), number(last), number(digest.value));
  return 0;
}

// Returns 0 if each seed of a file keeps every promise; they did not once.
int run_file(const std::string& path) {
  std::ifstream file(path);
  int seeds = 0, broken = 0;
  for (std::uint64_t seed = 0; file >> seed; ++seeds) {
    broken += run_one(seed, false);
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  std::printf("%d seeds of %s, %d of them broken\n", seeds, path.c_str(), broken);
  return seeds > 0 && file.eof() && broken == 0 ? 0 : 1;
}

int run_many(std::uint64_t first, std::uint64_t last, bool can_explain) {
  const std::uint64_t count = last - first + 1;
  Coverage coverage;
  const double start = cpu_seconds();
  int broken = 0;
  for (std::uint64_t seed = first; seed <= last && broken < (can_explain ? kMostBroken : 1); ++seed) {
    running_seed = seed;
    const Plan plan = plan_of(seed);
    World world(plan, coverage);
    if (const auto violation = world.run()) {
      print_violation(seed, *violation);
      if (++broken == 1 && can_explain) explain(plan, *violation);
    } else if (seed % kRepeatEvery == 0 && !repeats_itself(plan, world.hash())) {
      std::printf("seed %llu does not repeat itself\n", number(seed));
      ++broken;
    }
  }
  if (broken > 0) return 1;
  coverage.print();
  std::printf("%llu seeds, %.2f ms each\n", number(count), 1000 * (cpu_seconds() - start) / static_cast<double>(count));
  if (count < kEnoughToReachAll || is_hostile) return 0;
  const auto missing = coverage.missing();
  print_lines(missing);
  return missing.empty() ? 0 : 1;
}

// Returns how many seconds it took; nothing: a promise was broken, or there were too many messages.
std::optional<double> run_crowd(int agents, bool fails) {
  Coverage coverage;
  const double start = cpu_seconds();
  World world(make_crowd(agents, fails), coverage);
  if (const auto violation = world.run()) {
    print_violation(0, *violation);
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
  // An agent reports that it is there, runs, is idle and leaves, and receives Wait, Run and Exit. If all fail, it
  // reports the failure of each of its 8 workers as well, and receives Stop.
  return most <= (fails ? 17 : 8) ? std::optional(seconds) : std::nullopt;
}

bool is_linear(bool fails) {
  double least[2] = {0, 0};
  for (int repeat = 0; repeat < 3; ++repeat) {  // the quickest counts: other programs run as well
    for (const int size : {0, 1}) {
      const auto seconds = run_crowd(size == 0 ? 1000 : 4000, fails);
      if (!seconds) return false;
      least[size] = repeat == 0 ? *seconds : std::min(least[size], *seconds);
    }
    // Four times as many agents take a little more than four times as long, since caches are too small. An algorithm
    // with squares would take sixteen times as long.
    std::printf("%.1f times as long\n", least[1] / least[0]);
    if (least[1] < 10 * least[0]) return true;
  }
  return false;
}

int run_crowds() {
  const bool joins = is_linear(false), fails = is_linear(true);
  return joins && fails ? 0 : 1;
}

struct Options {
  std::uint64_t first = 1, last = kEnoughToReachAll;
  std::optional<std::uint64_t> one;
  bool with_trace = false, crowd = false, brief = false, digest = false;
  std::string write_to, compare_with;  // folders with transcripts
  std::string seeds_of;
};

[[noreturn]] void refuse(const std::string& what) {
  std::fprintf(stderr, "sim: %s; the first lines of tests/sim/main.cpp list the options\n", what.c_str());
  std::exit(2);
}

std::uint64_t to_number(const std::string& text) {
  const auto number = rendezvous::parse_number<std::uint64_t>(text);
  return number ? *number : (refuse("'" + text + "' is no number"), 0);
}

Options parse(int argc, char** argv) {
  Options options;
  if (const char* count = std::getenv("DDPRUN_SIM_SEEDS")) options.last = to_number(count);
  const std::vector<std::string> words(argv + 1, argv + argc);
  for (auto word = words.begin(); word != words.end(); ++word) {
    const auto value = [&, option = *word] {
      return ++word != words.end() ? *word : (refuse(option + " needs a value"), "");
    };
    if (*word == "--trace") {
      options.with_trace = true;
    } else if (*word == "--crowd") {
      options.crowd = true;
    } else if (*word == "--hostile") {
      is_hostile = true;
    } else if (*word == "--brief") {  // without an explanation, for scripts/stress/mutants
      options.brief = true;
    } else if (*word == "--digest") {
      options.digest = true;
    } else if (*word == "--transcripts") {
      options.write_to = value();
    } else if (*word == "--compare") {
      options.compare_with = value();
    } else if (*word == "--seeds-of") {
      options.seeds_of = value();
    } else if (*word == "--seed") {
      options.one = to_number(value());
    } else if (*word == "--seeds") {
      const std::string range = value();
      const auto colon = range.find(':');
      options.first = to_number(range.substr(0, colon));
      options.last = colon == std::string::npos ? options.first : to_number(range.substr(colon + 1));
    } else {
      refuse("no option is called " + *word);
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
  if (!options.seeds_of.empty()) return run_file(options.seeds_of);
  if (!options.write_to.empty()) return write_transcripts(options.write_to) ? 0 : 1;
  if (!options.compare_with.empty()) return compare_transcripts(options.compare_with) ? 0 : 1;
  if (options.digest) return run_digest(options.first, options.last);
  return run_many(options.first, options.last, !options.brief);
}
