// SPDX-License-Identifier: BSD-3-Clause
// glibc's sigabbrev_np, which ddprun cannot call: glibc has it since 2.32, and portable builds start with 2.28.
#pragma once

#include <csignal>

namespace ddp::rendezvous {

// Returns "TERM" for SIGTERM, or null for a number without a name. Signal handlers may call it.
constexpr const char* signal_abbreviation(int signal) {
  // The numbers are Linux's on x86 and ARM.
  constexpr const char* kAbbreviations[] = {nullptr,  "HUP",  "INT",    "QUIT", "ILL",   "TRAP", "ABRT", "BUS",
                                            "FPE",    "KILL", "USR1",   "SEGV", "USR2",  "PIPE", "ALRM", "TERM",
                                            "STKFLT", "CHLD", "CONT",   "STOP", "TSTP",  "TTIN", "TTOU", "URG",
                                            "XCPU",   "XFSZ", "VTALRM", "PROF", "WINCH", "POLL", "PWR",  "SYS"};
  static_assert(SIGUSR1 == 10 && SIGSTKFLT == 16 && SIGCHLD == 17 && SIGSYS == 31);
  return signal > 0 && signal <= SIGSYS ? kAbbreviations[signal] : nullptr;
}

}  // namespace ddp::rendezvous
