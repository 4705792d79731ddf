// SPDX-License-Identifier: BSD-3-Clause
// What a worker leaves for its launcher before it exits with an error.
#pragma once

#include <cstdint>
#include <string>

namespace ddp::runtime {

// torch's format (torch/distributed/elastic/multiprocessing/errors): ddprun and torchrun print `trace` in their
// reports.
std::string error_file_text(const std::string& message, const std::string& trace, std::int64_t unix_seconds);

// Writes it to the file that TORCHELASTIC_ERROR_FILE names; false without that, or if it cannot. Never throws: the
// program is about to report a worse error than this one.
bool record_error(const std::string& message) noexcept;
// trace: the message and where it happened.
bool record_error(const std::string& message, const std::string& trace) noexcept;

}  // namespace ddp::runtime
