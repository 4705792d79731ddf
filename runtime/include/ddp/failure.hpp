// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What a worker tells its launcher when it fails.
#pragma once

#include <string>

#include "ddp/ddp.h"
#include "ddp/error.hpp"

namespace ddp {

/// Leaves `message` where the launcher's failure report finds it. Call it before exiting with an error. False if there
/// is no launcher that would print it.
inline bool record_error(const std::string& message) { return ddp_error_record(message.c_str()) != 0; }

/// A crash, or an exception that nobody catches, leaves its reason and a backtrace there too. init_process_group does
/// this; before it, or in each further thread whose stack may overflow, call it yourself. It changes nothing about how
/// the process dies, and leaves signals alone that have a handler: see ddp_failure_handlers_install in ddp.h. False if
/// there is no launcher that would print it.
inline bool install_failure_handlers() { return ddp_failure_handlers_install() != 0; }

/// Writes what each group of this process did last to a file: see ddp_flight_recorder_dump().
inline void dump_flight_recorder(const std::string& path) { detail::check(ddp_flight_recorder_dump(path.c_str())); }

}  // namespace ddp
