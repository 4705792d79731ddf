// SPDX-License-Identifier: BSD-3-Clause
// The meaning of coordinator_fuzzer's input: two bytes for the job's shape, then steps. A step is one byte and its
// operands: bits 0-2 say which agent, bits 3-6 what it does, bit 7 is a choice.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rendezvous/link/messages.hpp"
#include "tests/fuzz/script.hpp"

namespace ddp::fuzz {

inline constexpr std::size_t kPeers = 5;

enum class Step : std::uint8_t {
  Open,        // a link
  Close,       // that link
  Honest,      // says its state
  Obey,        // carries out its newest directive, and says so
  Succeed,     // its workers exit with 0
  Fail,        // a worker fails
  Lie,         // says its state with one or two changes (lies.hpp)
  LieForEver,  // changes its state
  Repeat,      // says what it said before; a byte says which
  Claim,       // says the state of another agent; a byte says whose
  Bytes,       // followed by a length and that many bytes
  Beat,        // a heartbeat
  Wait,        // followed by a byte: time passes
  Store,       // the store is open, or cannot be
  Signal,      // its user sends SIGTERM, or SIGKILL as a second signal
  Leave,
};

constexpr char step_byte(std::size_t peer, Step step, bool choice = false) {
  return static_cast<char>(peer | static_cast<unsigned>(step) << 3 | (choice ? 128U : 0U));
}

inline rendezvous::JobShape read_shape(Script& script) {
  const unsigned nodes = script.byte(), more = script.byte();
  rendezvous::JobShape shape{.id = "job"};
  shape.min_nodes = 1 + static_cast<int>(nodes % 3);
  shape.max_nodes = shape.min_nodes + static_cast<int>(nodes / 4 % 3);
  shape.max_restarts = static_cast<int>(more % 4);
  shape.node_ranks_given = shape.min_nodes == shape.max_nodes && (more & 4) != 0;
  return shape;
}

}  // namespace ddp::fuzz
