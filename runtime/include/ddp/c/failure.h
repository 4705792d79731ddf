/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Failures: what a worker leaves for its launcher's failure report, and for a person who looks for the cause.
 */
#ifndef DDP_C_FAILURE_H
#define DDP_C_FAILURE_H

#include "ddp/c/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * @defgroup failure Failures: error files and the flight recorder
 * @{
 */

/** Writes an error message for the launcher's failure report, to the file named by TORCHELASTIC_ERROR_FILE; ddprun and
 * torchrun print it. Returns 1 if it was written; 0 without that variable, or if the file cannot be written: then the
 * caller should print the message itself. */
DDP_API int ddp_error_record(const char* message);

/** Installs handlers that write crashes to the same file as ddp_error_record(): a fatal signal (SEGV, BUS, FPE, ILL,
 * ABRT, SYS, TRAP), an uncaught exception, std::terminate, or a failed check inside libddp, with its reason and a
 * backtrace. The process then dies as it would have without them: by the same signal, with the same core dump.
 *
 * ddp_session_init() does this; call it yourself to cover what happens before, and in each further thread whose stack
 * may overflow. Signals that are already handled or ignored are left alone (Python's faulthandler, sanitizers, your own
 * handlers), as is an error file that already exists. DDP_FAILURE_HANDLERS=0 in the environment turns it off.
 *
 * A backtrace names functions that their module exports (link a program with -rdynamic), and gives the offset of
 * others, such as "./train(+0x1234)[0x55...]", which `addr2line -Cfe MODULE OFFSET` turns into function and line.
 *
 * Returns 1 if crashes will be recorded; 0 without TORCHELASTIC_ERROR_FILE, or if turned off. */
DDP_API int ddp_failure_handlers_install(void);

/** Writes the last operations of each group of this process to a file at path, as JSON. It has the last 256 operations
 * of each group, or as many as DDP_FLIGHT_RECORDER_SIZE says (0: none). Any thread may call, even while operations run.
 * When an operation fails or the process crashes, libddp writes such a file itself: flight_recorder_rank<rank>.json
 * next to the error file. DDP_SYSTEM if it cannot be written. Source: the flight recorder of PyTorch's
 * ProcessGroupNCCL. */
DDP_API ddp_status ddp_flight_recorder_dump(const char* path);

/** @} */

#ifdef __cplusplus
}
#endif
#endif
