// SPDX-License-Identifier: BSD-3-Clause
// The error file: JSON that a worker leaves at TORCHELASTIC_ERROR_FILE (PyTorch's @record, libddp's record_error).
// Two shapes are in use:
//     {"message": {"message": "ValueError: ...", "extraInfo": {"py_callstack": "...", "timestamp": "1700000000"}}}
//     {"message": "text", "timestamp": 1700000000}
// A file that is half written or something else is shown as text: a worker's last words are never an error of ours.
#pragma once

#include <string>

namespace ddp::launcher {

// What the file says, in one or more lines; empty if there is no file or nothing in it.
std::string read_error_file(const std::string& path);

}  // namespace ddp::launcher
