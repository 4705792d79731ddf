// SPDX-License-Identifier: BSD-3-Clause
// Reads the kernel's log (/dev/kmsg), often for root only. A record is "3,712,98765432,-;text": priority, sequence
// number, time in us of a monotonic clock. Any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace ddp::launcher {

// Returns whether the pids in the log are those that this process sees: not in a container with pids of its own.
bool kernel_log_has_our_pids();
// Returns the present time on the clock of the records.
std::int64_t kernel_log_now();
// Returns whether this record has a time, and is not from before `since`.
bool is_record_since(std::string_view record, std::int64_t since);
// Calls `fits` for each record, from the oldest one, until it returns true; returns whether it did.
bool search_kernel_log(const std::function<bool(std::string_view record)>& fits);

}  // namespace ddp::launcher
