// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Failures: what a worker leaves for its launcher's failure report.
#pragma once

#include <string>

#include "ddp/ddp.h"
#include "ddp/error.hpp"

namespace ddp {

/// Writes a message for the launcher's failure report. Call it before exiting with an error. Returns false if there is
/// no launcher that would print it.
inline bool record_error(const std::string& message) { return ddp_error_record(message.c_str()) != 0; }

/// Installs handlers that write the reason and a backtrace of a crash, or of an uncaught exception, to the same place.
/// init_process_group() does this; call it yourself to cover what happens before, and in each further thread whose
/// stack may overflow. The process dies as it would without them, and signals that have a handler are left alone; more
/// at ddp_failure_handlers_install(). Returns false if there is no launcher that would print it.
inline bool install_failure_handlers() { return ddp_failure_handlers_install() != 0; }

/// Writes the last operations of each group of this process to a file, as ddp_flight_recorder_dump() does.
inline void dump_flight_recorder(const std::string& path) { detail::check(ddp_flight_recorder_dump(path.c_str())); }

}  // namespace ddp
