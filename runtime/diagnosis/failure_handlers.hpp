// SPDX-License-Identifier: BSD-3-Clause
// A worker that crashes tells its launcher why: at a fatal signal, an exception that nobody catches, std::terminate or
// a failed DDP_CHECK, the error file (error_file.hpp) gets the reason and a backtrace. The process then dies as it
// would have without: the same signal, the same core dump, the same words of the C++ runtime on stderr.
//
//     fatal signal   the kernel's way of death is put back, the file written, the signal sent again
//     terminate      the file is written, then whoever handled it before has the word
//
// With it the flight recorder (flight_recorder.hpp) is written beside it.
//
// What is there stays: a signal that is handled or ignored already (Python's faulthandler, a sanitizer, the program
// itself), an error file that somebody has written, and a forked child is not the worker.
#pragma once

namespace ddp::runtime {

// True if a crash of this process will be recorded: there is an error file, and DDP_FAILURE_HANDLERS is not "0". Any
// thread, any number of times; what overflows the stack is recorded of threads that have called it.
bool install_failure_handlers() noexcept;

}  // namespace ddp::runtime
