// SPDX-License-Identifier: BSD-3-Clause
// The sessions of this process, in the order they were made: the first is the default, as torch.distributed has one. A
// group's handle says nothing of its session, so that is looked up here. From any thread.
#pragma once

#include "runtime/session/session.hpp"

namespace ddp::runtime {

void enlist(Session& session);
void strike(Session& session);  // before it ends
Session* first_session();       // null: there is none
// Throws rendezvous::Error if it is no session's, or not any more.
Session& session_of(const ProcessGroup& group);

}  // namespace ddp::runtime
