// SPDX-License-Identifier: BSD-3-Clause
// Tells the stacks of workers so that ranks whose main threads do the same are one entry.
#pragma once

#include <string>
#include <vector>

#include "launcher/diagnosis/stacks/stack.hpp"

namespace ddp::launcher {

// Returns lines such as
//
//     ranks 0-5, 7: in all_reduce, called at train.py:88 (step)
//         all_reduce         .../torch/distributed/distributed_c10d.py:2810
//         step               /home/me/train.py:88
//         <module>           /home/me/train.py:120
//         called from there: pthread_cond_wait
//     rank 6: in sleep, called at data.py:31 (load)
//         ...
//
// The entry with the fewest ranks comes first: there the cause of a hang is likeliest. Under each entry come its
// missing parts, and the innermost frame of other threads that run the user's Python code.
std::string describe_stacks(const std::vector<WorkerStacks>& workers);

// Returns what a stack is about: "in all_reduce, called at train.py:88 (step)".
std::string headline(const ThreadStack& thread);

// Returns what else of a worker runs code that is not a library's: "thread loader: in sleep, called at data.py:31
// (load)" for each of its other threads, and "process 4711 (pt_data_worker): ..." for each of its processes.
std::vector<std::string> beside_main_thread(const WorkerStacks& worker);

}  // namespace ddp::launcher
