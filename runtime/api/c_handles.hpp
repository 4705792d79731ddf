// SPDX-License-Identifier: BSD-3-Clause
// Handles are the objects themselves under a C name.
#pragma once

#include "ddp/ddp.h"
#include "runtime/group/process_group.hpp"
#include "runtime/session/session.hpp"

namespace ddp::runtime {

inline Session* of(ddp_session* handle) { return reinterpret_cast<Session*>(handle); }
inline const Session* of(const ddp_session* handle) { return reinterpret_cast<const Session*>(handle); }
inline ddp_session* handle_of(Session* session) { return reinterpret_cast<ddp_session*>(session); }
inline ProcessGroup* of(ddp_group* handle) { return reinterpret_cast<ProcessGroup*>(handle); }
inline const ProcessGroup* of(const ddp_group* handle) { return reinterpret_cast<const ProcessGroup*>(handle); }
inline ddp_group* handle_of(ProcessGroup* group) { return reinterpret_cast<ddp_group*>(group); }

}  // namespace ddp::runtime
