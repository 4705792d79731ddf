// SPDX-License-Identifier: BSD-3-Clause
// Schema of the error file: the JSON that a worker leaves at TORCHELASTIC_ERROR_FILE (PyTorch's @record, libddp,
// ddprun --run-path), and that ddprun and torchrun read and leave for their own launcher. Two shapes are in use
// (torch/distributed/elastic/multiprocessing/errors):
//     {"message": {"message": "ValueError: ...", "extraInfo": {"py_callstack": "...", "timestamp": "1700000000"}}}
//     {"message": "text", "timestamp": 1700000000}
// All that we write has the first one. A launcher adds "errorCode" beside "extraInfo": the exit code of the process.
// ddprun adds "failure" beside the outer "message": what it knows of the worker that failed first.
#pragma once

#include <sys/types.h>

#include <string_view>

namespace ddp::rendezvous::error_file {

// Mode of the file. A traceback quotes the program's own lines and values, which are nobody else's.
inline constexpr mode_t kMode = 0600;

// ---- Key names ----
inline constexpr char kMessage[] = "message";  // the record, and in it the text
inline constexpr char kExtraInfo[] = "extraInfo";
inline constexpr char kTrace[] = "py_callstack";
inline constexpr char kTimestamp[] = "timestamp";  // seconds since 1970, as a string or (second shape) a number
inline constexpr char kErrorCode[] = "errorCode";  // Python's convention: minus the signal that ended the process
inline constexpr char kFailure[] = "failure";      // the fields of the event job_failed of --log-format json

// ---- The first shape as text around its values, for a signal handler, which can use no JSON library ----
inline constexpr std::string_view kBeforeText = R"({"message": {"message": ")";
inline constexpr std::string_view kBeforeTrace = R"(", "extraInfo": {"py_callstack": ")";
inline constexpr std::string_view kBeforeTimestamp = R"(", "timestamp": ")";
inline constexpr std::string_view kEnd = R"("}}})";

}  // namespace ddp::rendezvous::error_file
