// SPDX-License-Identifier: BSD-3-Clause
// What this process has made and not destroyed yet: its sessions, in the order in which they were made, and what else
// has threads, connections or files. The first session is the default one, as in torch.distributed. The handle of a
// group does not lead to its session, so that is looked up here. In a child that the process forks the list is empty:
// what the child inherits is its parent's, and the child must neither use nor end it. Any thread may call.
#pragma once

#include "runtime/api/c_guard.hpp"
#include "runtime/session/session.hpp"

namespace ddp::runtime {

void enlist(Session& session);
void enlist(const void* object);
// Returns whether the object was in the list. Call it before the object ends.
bool strike(const void* object);
Session* first_session();  // null if there is none
// Returns the session that owns the group. Throws rendezvous::Error if there is none, or none any more.
Session& session_of(const ProcessGroup& group);
// Returns the group of a handle. Throws rendezvous::Error if this process does not have it, or not any more.
ProcessGroup& group_of(ddp_group* handle);
// Called after groups have ended otherwise than with their session.
void forget_groups();

// Deletes what a handle stands for, if this process has made it.
template <typename T>
void destroy(T* object) {
  guard([&] {
    if (strike(object)) delete object;
  });
}

}  // namespace ddp::runtime
