// SPDX-License-Identifier: BSD-3-Clause
// The error file: JSON that a worker leaves at TORCHELASTIC_ERROR_FILE (PyTorch's @record, libddp), and that a ddprun
// leaves for the launcher that started it. Two shapes are in use:
//     {"message": {"message": "ValueError: ...", "extraInfo": {"py_callstack": "...", "timestamp": "1700000000"}}}
//     {"message": "text", "timestamp": 1700000000}
// A file that is half written, or something else, is shown as text: whatever a worker leaves, reading it never fails.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "rendezvous/link/messages.hpp"

namespace ddp::launcher {

struct ErrorFile {
  std::string text;    // what it says, printable, in one or more lines; empty if there is no file or nothing in it
  std::string record;  // the JSON if it has one of the two shapes, so that other launchers can read it; else empty
  std::optional<std::int64_t> unix_seconds;  // when the record was written; nothing if there is none
};

// Reads the file without waiting, whatever it is: only a regular file, and only its first MiB.
ErrorFile read_error_file(const std::string& path);

// Returns what this ddprun writes for the launcher that started it. As with torchrun, it is the cause's own record with
// the exit code added (Python's: a signal is negative); if there is none, it is made from what is known of the failure.
// `details` are the facts of failure_details() as JSON; empty: none are added.
std::string record_for_parent(const rendezvous::WorkerFailure& cause, const std::string& details = "");
// Returns the record of an end that no worker caused.
std::string record_for_parent(const std::string& reason, std::int64_t unix_seconds);

// Replaces the file at `path`; returns false, with errno, if that fails. What is not a regular file (/dev/null) is
// written to instead; a pipe is filled as fast as it is read.
bool write_error_file(const std::string& path, const std::string& record);

}  // namespace ddp::launcher
