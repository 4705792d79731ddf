// SPDX-License-Identifier: BSD-3-Clause
// The error file that a worker leaves for its launcher before it exits with an error.
#pragma once

#include <cstdint>
#include <string>

namespace ddp::runtime {

// Returns the file's JSON (rendezvous/error_file_schema.hpp). ddprun and torchrun print `trace` in their reports.
std::string error_file_text(const std::string& message, const std::string& trace, std::int64_t unix_seconds);

// Writes the record to the file that TORCHELASTIC_ERROR_FILE names. Returns false if that is not set or cannot be
// written. Never throws, since the program is about to report a worse error than this one.
bool record_error(const std::string& message) noexcept;
// `trace` is the message and where it happened.
bool record_error(const std::string& message, const std::string& trace) noexcept;

}  // namespace ddp::runtime
