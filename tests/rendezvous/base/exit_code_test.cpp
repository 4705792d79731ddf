// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/base/exit_code.hpp"

#include <catch2/catch.hpp>

#include <csignal>

using namespace ddp::rendezvous;

TEST_CASE("exit code: each outcome of a job has one", "[rendezvous][unit]") {
  const ExitStatus seven{.code = 7}, killed{.signal = SIGKILL};
  const struct {
    Outcome outcome;
    int ddprun, torchrun;
  } table[] = {
      {{}, 0, 0},
      {{.has_failed = true}, 1, 1},
      {{.signal = SIGINT}, 130, 1},
      {{.signal = SIGINT, .has_failed = true}, 130, 1},
      {{.first = seven}, 7, 1},
      {{.first = seven, .signal = SIGINT, .has_failed = true}, 7, 1},
      {{.first = killed}, 137, 1},
      {{.is_lost = true}, 75, 1},
      {{.is_lost = true, .first = seven, .signal = SIGINT, .has_failed = true}, 75, 1},
  };
  for (auto [outcome, ddprun, torchrun] : table) {
    CAPTURE(outcome.is_lost, outcome.first.code, outcome.first.signal, outcome.signal, outcome.has_failed);
    CHECK(exit_code(outcome) == ddprun);
    outcome.is_torchrun = true;
    CHECK(exit_code(outcome) == torchrun);
  }
}
