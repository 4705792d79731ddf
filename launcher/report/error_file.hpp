// SPDX-License-Identifier: BSD-3-Clause
// The error file: JSON that a worker leaves at TORCHELASTIC_ERROR_FILE (PyTorch's @record, libddp), and that a ddprun
// leaves for the launcher that started it. Two shapes are in use:
//     {"message": {"message": "ValueError: ...", "extraInfo": {"py_callstack": "...", "timestamp": "1700000000"}}}
//     {"message": "text", "timestamp": 1700000000}
// A file that is half written or something else is shown as text: a worker's last words are never an error of ours.
#pragma once

#include <cstdint>
#include <string>

#include "rendezvous/link/messages.hpp"

namespace ddp::launcher {

struct ErrorFile {
  std::string text;    // what it says, in one or more lines, printable; empty if there is no file or nothing in it
  std::string record;  // the JSON, if it has one of the two shapes, so that every launcher can read it; else empty
};

// Whatever is there, it is read without waiting: only a regular file, and only its first MiB.
ErrorFile read_error_file(const std::string& path);

// What this ddprun leaves for the launcher that started it: the cause's own record with its exit code added (Python's:
// minus the signal), as torchrun does; without one, what is known of the failure.
std::string record_for_parent(const rendezvous::WorkerFailure& cause);
// The same of an end that no worker caused.
std::string record_for_parent(const std::string& reason, std::int64_t unix_seconds);

// In the place of what is there; false, with errno, if that cannot be done. A path that is no regular file (/dev/null)
// is written to, not replaced.
bool write_error_file(const std::string& path, const std::string& record);

}  // namespace ddp::launcher
