// SPDX-License-Identifier: BSD-3-Clause
// Handlers by which a crashing worker tells its launcher why. At a fatal signal, an uncaught exception, std::terminate
// or a failed DDP_CHECK, they write the reason and a backtrace to the error file (error_file.hpp). The process then
// dies as it would have without them: the same signal, the same core dump, the same output of the C++ runtime on
// stderr.
//
//     fatal signal   write the file, restore the default action, send the signal again
//     terminate      write the file, call the terminate handler that was set before
//
// The flight recorder (flight_recorder.hpp) is written next to the error file.
//
// The handlers replace nothing that exists: neither the handler of a signal that is handled or ignored already
// (Python's faulthandler, a sanitizer, the program itself) nor an error file that is there already. A forked child is
// not the worker and writes nothing.
#pragma once

namespace ddp::runtime {

// Installs the handlers. Returns true if a crash of this process will be recorded: TORCHELASTIC_ERROR_FILE is set and
// DDP_FAILURE_HANDLERS is not "0". Any thread may call it, any number of times. Stack overflows are recorded only for
// threads that have called it.
bool install_failure_handlers() noexcept;

}  // namespace ddp::runtime
