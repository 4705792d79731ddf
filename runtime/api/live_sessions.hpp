// SPDX-License-Identifier: BSD-3-Clause
// The sessions of this process, in the order in which they were made. The first is the default one, as in
// torch.distributed. The handle of a group does not lead to its session, so that is looked up here. Any thread may
// call.
#pragma once

#include "runtime/session/session.hpp"

namespace ddp::runtime {

void enlist(Session& session);
void strike(Session& session);  // call it before the session ends
Session* first_session();       // null if there is none
// Returns the session that owns the group. Throws rendezvous::Error if there is none, or none any more.
Session& session_of(const ProcessGroup& group);

}  // namespace ddp::runtime
