// SPDX-License-Identifier: BSD-3-Clause
// The backend "ddp" for CPU memory: the ranks of one node move data through memory that they share, and over
// TCP to the ranks of other nodes.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/host/successors/logged_collectives.hpp"
#include "ddp/backend.h"
#include "rendezvous/base/descriptor.hpp"

namespace ddp::collectives {

struct OwnPlace;

// What a group does when the process of one of its ranks dies. It is fixed when the group is formed, and equal on all
// ranks. A group on several nodes always loses the rank.
enum class AfterDeath { RankIsLost, AwaitSuccessor };

const ddp_backend_table& host_backend();

// Makes a group as the table's group_create does, of a rank that is at `place`. Throws Failure or std::exception.
ddp_backend_group* make_host_group(const ddp_backend_group_config& config, const OwnPlace& place,
                                   AfterDeath after_death = AfterDeath::RankIsLost);

// Takes the place of rank `rank`, whose process has ended and was reaped, in a group that awaits successors. `segment`
// is the descriptor of the group's memory, `position` what the dead process noted before its last mark, or
// Position{} if it had made none, and `job_ranks` the numbers of the ranks to show in error texts. The first call in
// the group must be mark(), unless there was none, followed by the calls that the dead process made after it. Throws
// Failure or std::exception.
ddp_backend_group* make_successor(rendezvous::Descriptor segment, std::uint32_t rank, const Position& position,
                                  std::vector<std::int32_t> job_ranks);

// Makes a group as the table's group_create does. It awaits successors if all ranks share memory.
ddp_backend_status create_awaiting(const ddp_backend_group_config& config, ddp_backend_group** out,
                                   ddp_backend_error* error);
// Makes the group of a process that repeats the start: make_successor() with Position{}.
ddp_backend_status create_successor(rendezvous::Descriptor segment, const ddp_backend_group_config& config,
                                    ddp_backend_group** out, ddp_backend_error* error);

// Lets a receive under way go on into other memory, of as many bytes.
void move_to(ddp_backend_message& receive, void* memory);

bool awaits_successors(const ddp_backend_group& group);
// Returns whether a process can repeat what came before the first mark, once that is passed.
bool keeps_start(const ddp_backend_group& group);
// Returns the descriptor of the group's memory, which is the group's.
int memory_descriptor(const ddp_backend_group& group);

// Tells the other ranks that this one takes part no more, as the end of the group does.
void leave(const ddp_backend_group& group);

// Has a successor that was made with Position{} go on where the dead process was, once it has made the calls that its
// predecessor made before its first mark. mark() comes next.
ddp_backend_status catch_up(ddp_backend_group* group, const Position& position, ddp_backend_error* error);

// Begins the next window, in a group that awaits successors: all ranks call it at the same place, once for each
// training step.
ddp_backend_status mark(ddp_backend_group* group, std::int64_t timeout_ms, ddp_backend_error* error);
// Returns where this rank is, for make_successor(). Store it where it outlives this process, and call mark() next.
Position position(const ddp_backend_group& group);

}  // namespace ddp::collectives
