// SPDX-License-Identifier: BSD-3-Clause
// The meaning of agent_fuzzer's input: a byte that chooses the agent's options, then steps. A step is one byte and its
// operands: bits 0-3 say what happens, bits 4-7 choose how.
#pragma once

#include <cstdint>

namespace ddp::fuzz {

enum class AgentStep : std::uint8_t {
  Say,        // an honest directive of kind n
  Lie,        // such a directive with some changes (lies.hpp)
  Bytes,      // followed by a length and that many bytes
  NextRound,  // an honest Run of a further round
  Beat,       // the coordinator answers
  Cut,        // the link breaks
  Up,         // it is back
  Wait,       // followed by a byte: time passes
  Started,    // the workers exist, or could not be started
  Exit,       // a worker exits
  Crash,      // a worker is killed
  Dying,      // a worker is certain to die
  Cleared,    // nothing of the workers is left
  Signal,     // the user's
  Guardian,   // is gone
  Refused,    // the coordinator refuses the handshake
};

constexpr char step_byte(AgentStep step, unsigned choice = 0) {
  return static_cast<char>(static_cast<unsigned>(step) | choice << 4);
}

}  // namespace ddp::fuzz
