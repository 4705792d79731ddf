// SPDX-License-Identifier: BSD-3-Clause
// Writes agent_fuzzer's first inputs: whole lives of an agent, with one lie of each kind in the middle.
// usage: agent_seeds CORPUS_FOLDER
#include <string>

#include "tests/fuzz/agent_script.hpp"
#include "tests/fuzz/seeds/seeds.hpp"

namespace {

using ddp::fuzz::AgentStep;
using ddp::fuzz::step_byte;

// Two rounds; workers fail in the first, and `middle` happens while they run.
std::string life(char options, const std::string& middle) {
  const std::string wait = {step_byte(AgentStep::Say, 0)}, stop = {step_byte(AgentStep::Say, 2), 0},
                    exit = {step_byte(AgentStep::Say, 3), 0}, started = {step_byte(AgentStep::Started)};
  const std::string fails = {step_byte(AgentStep::Exit, 2), step_byte(AgentStep::Crash, 1),
                             step_byte(AgentStep::Cleared)};
  const std::string succeeds = {step_byte(AgentStep::Exit, 0), step_byte(AgentStep::Exit, 1),
                                step_byte(AgentStep::Cleared)};
  return options + wait + step_byte(AgentStep::Say, 1) + started + middle + stop + fails +
         step_byte(AgentStep::NextRound) + started + step_byte(AgentStep::Beat) + succeeds + exit;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  ddp::fuzz::Seeds seeds(argv[1]);
  for (const char options : {'\0', '\1', '\2', '\3'}) seeds.write(life(options, ""));
  for (const AgentStep step : {AgentStep::Cut, AgentStep::Signal, AgentStep::Guardian, AgentStep::Refused,
                               AgentStep::NextRound, AgentStep::Dying, AgentStep::Beat}) {
    seeds.write(life(1, {step_byte(step), step_byte(AgentStep::Wait), 30, step_byte(AgentStep::Up)}));
  }
  for (unsigned kind = 0; kind < 4; ++kind) {
    for (char field = 0; field < 20; ++field) {
      for (const unsigned value : {0U, 9U, 240U, 241U, 246U}) {
        const std::string operand = kind >= 2 ? std::string(1, '\1') : "";
        const std::string lie = {field, static_cast<char>(value), 'a', 'b', 'c'};
        seeds.write(life(0, step_byte(AgentStep::Lie, kind) + operand + lie));
      }
    }
  }
  return seeds.count() > 0 ? 0 : 1;
}
