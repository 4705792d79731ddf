// SPDX-License-Identifier: BSD-3-Clause
// Runs seeds through the simulator.
//
//   sim                    DDPRUN_SIM_SEEDS seeds (10000) from 1; prints coverage; 1 if a promise is broken
//   sim --seeds A:B        these
//   sim --seed N           this one; --trace prints what happens
//   sim --crowd            4,000 agents join: messages, and time against 1,000
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

volatile std::uint64_t running_seed = 0;

void on_abort(int) {
  std::fprintf(stderr, "seed %llu: a DDP_CHECK of a core failed; rerun with: sim --seed %llu --trace\n",
               static_cast<unsigned long long>(running_seed), static_cast<unsigned long long>(running_seed));
  std::_Exit(1);
}

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

void print_lines(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) std::printf("%s\n", line.c_str());
}

const char* sentence(const Violation& violation) { return kSentences[static_cast<std::size_t>(violation.promise)]; }

void explain(const Plan& plan, const Violation& violation) {
  std::printf("seed %llu breaks a promise: %s\n  %s\n", static_cast<unsigned long long>(plan.seed), sentence(violation),
              violation.what.c_str());
  const Plan small = shrink(plan, violation.promise);
  Coverage coverage;
  std::vector<std::string> lines;
  World world(small, coverage, &lines);
  world.run();
  std::printf("the least that still breaks it: %s", in_words(small).c_str());
  const std::size_t last = 120;
  if (lines.size() > last) lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(last));
  print_lines(lines);
  std::printf("rerun: sim --seed %llu --trace\n", static_cast<unsigned long long>(plan.seed));
}

int run_one(std::uint64_t seed, bool with_trace) {
  running_seed = seed;
  Coverage coverage;
  std::vector<std::string> lines;
  const Plan plan = make_plan(seed);
  World world(plan, coverage, with_trace ? &lines : nullptr);
  const auto violation = world.run();
  if (with_trace) std::printf("%s", in_words(plan).c_str());
  print_lines(lines);
  std::printf("hash %016llx\n", static_cast<unsigned long long>(world.hash()));
  if (violation) explain(plan, *violation);
  return violation ? 1 : 0;
}

int run_many(std::uint64_t first, std::uint64_t last) {
  Coverage coverage;
  const double start = cpu_seconds();
  int broken = 0;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    running_seed = seed;
    const Plan plan = make_plan(seed);
    World world(plan, coverage);
    const auto violation = world.run();
    if (violation) {
      if (++broken == 1)
        explain(plan, *violation);
      else
        std::printf("seed %llu: %s %s\n", static_cast<unsigned long long>(seed), sentence(*violation),
                    violation->what.c_str());
    }
    if (broken >= 10) break;
    if (seed % 100 == 0) {  // the same seed, the same run
      Coverage unused;
      World again(plan, unused);
      again.run();
      if (again.hash() != world.hash()) {
        std::printf("seed %llu does not repeat itself\n", static_cast<unsigned long long>(seed));
        ++broken;
      }
    }
  }
  if (broken > 0) return 1;
  if (last > first) coverage.print();
  const auto missing = coverage.missing();
  if (last - first >= 4999) print_lines(missing);
  std::printf("%llu seeds, %.2f ms each\n", static_cast<unsigned long long>(last - first + 1),
              1000 * (cpu_seconds() - start) / static_cast<double>(last - first + 1));
  return last - first >= 4999 && !missing.empty() ? 1 : 0;
}

}  // namespace

}  // namespace ddp::sim

int main(int argc, char** argv) {
  using namespace ddp::sim;
  std::signal(SIGABRT, on_abort);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const char* count = std::getenv("DDPRUN_SIM_SEEDS");
  std::uint64_t first = 1, last = count ? std::strtoull(count, nullptr, 10) : 10000;
  std::optional<std::uint64_t> one;
  bool with_trace = false;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : "";
    if (option == "--trace") with_trace = true;
    if (option == "--seed") one = std::strtoull(value, nullptr, 10);
    if (option == "--seeds") {
      first = std::strtoull(value, nullptr, 10);
      const char* colon = std::strchr(value, ':');
      last = colon ? std::strtoull(colon + 1, nullptr, 10) : first;
    }
  }
  return one ? run_one(*one, with_trace) : run_many(first, last);
}
