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
      {{.why = Why::Succeeded}, 0, 0},
      {{.why = Why::Failed}, 1, 1},
      {{.signal = SIGINT}, 130, 1},
      {{.why = Why::Failed, .signal = SIGINT}, 130, 1},
      {{.first = seven}, 7, 1},
      {{.why = Why::WorkerFailed, .first = seven, .signal = SIGINT}, 7, 1},
      {{.first = killed}, 137, 1},
      {{.why = Why::NodeLost}, 75, 1},
      {{.why = Why::NodeLost, .first = seven, .signal = SIGINT}, 75, 1},
  };
  for (auto [outcome, ddprun, torchrun] : table) {
    CAPTURE(static_cast<int>(outcome.why), outcome.first.code, outcome.first.signal, outcome.signal);
    CHECK(exit_code(outcome) == ddprun);
    outcome.is_torchrun = true;
    CHECK(exit_code(outcome) == torchrun);
  }
}
