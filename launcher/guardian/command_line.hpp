// SPDX-License-Identifier: BSD-3-Clause
// The words that ps and `pkill -f` show for this process.
#pragma once

namespace ddp::launcher {

// Overwrites the command line of this process, which was forked and did not execute a program, with a name.
void rename_command_line(const char* name);

}  // namespace ddp::launcher
