// SPDX-License-Identifier: BSD-3-Clause
// Prints with ddp/rank_zero.hpp and ddp/training/progress_bar.hpp: `rank_zero_worker SCENARIO`.
#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>

#include "ddp/ddp.hpp"
#include "ddp/training.hpp"

namespace {

// Redraws at every tick.
ddp::ProgressOptions eager() {
  ddp::ProgressOptions options;
  options.redraw = options.line = ddp::Milliseconds(0);
  return options;
}

void only() {
  ddp::log_rank_zero("on one rank");
  const auto number = ddp::rank_zero_only([] { return 7; });
  ddp::rank_zero_only([&] { ddp::log_rank_zero(std::to_string(*number)); });
  if (number.has_value() != ddp::is_rank_zero()) throw std::runtime_error("the wrong rank has a number");
}

void only_in_a_session() {
  const ddp::Session session = ddp::init_process_group();
  if (ddp::job_rank() != session.rank()) throw std::runtime_error("the rank is not the session's");
  ddp::log_rank_zero("rank " + std::to_string(session.rank()) + " of " + std::to_string(session.world_size()));
  session.world().barrier();
}

void bar() {
  ddp::ProgressBar progress(100, "train", eager());
  for (int step = 0; step < 100; ++step) {
    progress.set_postfix("loss 1");
    progress.tick();
  }
}

void patient_bar() {
  ddp::ProgressBar progress(100);
  for (int step = 0; step < 100; ++step) progress.tick();
}

void bar_and_lines() {
  {
    ddp::ProgressBar progress(100, "train", eager());
    progress.tick();
    ddp::log_rank_zero("a line");
  }
  ddp::log_rank_zero("after it");
}

void ticks() {
  using Clock = std::chrono::steady_clock;
  auto best = Clock::duration::max();  // the best of several, since other programs run here
  ddp::ProgressBar progress(0);
  for (int times = 0; times < 20; ++times) {
    const Clock::time_point begin = Clock::now();
    for (int i = 0; i < 10'000; ++i) progress.tick();
    best = std::min(best, (Clock::now() - begin) / 10'000);
  }
  progress.finish();
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(best).count();
  ddp::log_rank_zero(ns < 1000 ? std::to_string(ns) + " ns: cheap" : std::to_string(ns) + " ns");
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, std::function<void()>> scenarios = {{"only", only},
                                                                  {"only in a session", only_in_a_session},
                                                                  {"bar", bar},
                                                                  {"patient bar", patient_bar},
                                                                  {"bar and lines", bar_and_lines},
                                                                  {"ticks", ticks}};
  if (argc != 2) return 2;
  scenarios.at(argv[1])();
}
