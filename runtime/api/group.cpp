// SPDX-License-Identifier: BSD-3-Clause
// Exported functions that make groups, end them and describe their members.
#include <chrono>

#include "ddp/ddp.h"
#include "rendezvous/base/error.hpp"
#include "runtime/api/arguments.hpp"
#include "runtime/api/c_guard.hpp"
#include "runtime/api/c_handles.hpp"
#include "runtime/api/live_sessions.hpp"
#include "runtime/session/group_members.hpp"
#include "runtime/session/session.hpp"

namespace {

using ddp::rendezvous::Error;
using ddp::rendezvous::ErrorCode;
using ddp::runtime::all_members;
using ddp::runtime::guard;
using ddp::runtime::handle_of;
using ddp::runtime::Members;
using ddp::runtime::not_null;
using ddp::runtime::of;
using ddp::runtime::ProcessGroup;
using ddp::runtime::Session;
using ddp::runtime::session_of;

ddp::runtime::GroupOptions group_options(const ddp_group_options* caller) {
  const ddp_group_options given = DDP_OPTIONS(ddp_group_options, timeout_ms, caller);
  ddp::runtime::GroupOptions options;
  if (given.timeout_ms < 0) throw Error(ErrorCode::InvalidArgument, "a group's timeout is negative; 0: as its session");
  if (given.name != nullptr) options.name = given.name;
  if (given.backend != nullptr) options.backend = given.backend;
  options.timeout = std::chrono::milliseconds(given.timeout_ms);
  return options;
}

}  // namespace

ddp_status ddp_group_new(ddp_session* handle, const int32_t* ranks, size_t count, const ddp_group_options* options,
                         ddp_group** out) {
  return guard([&] {
    not_null(out, "the group to fill in") = nullptr;
    Session& session = not_null(of(handle), "the session");
    const int world_size = session.info().world_size;
    const Members members =
        ranks != nullptr ? ddp::runtime::sorted_members(ranks, count, world_size) : all_members(world_size);
    *out = handle_of(session.new_group(members, group_options(options)));
  });
}

ddp_status ddp_group_split(ddp_group* handle, int32_t color, int32_t key, const ddp_group_options* options,
                           ddp_group** out) {
  return guard([&] {
    not_null(out, "the group to fill in") = nullptr;
    ProcessGroup& parent = not_null(of(handle), "the parent group");
    *out = handle_of(session_of(parent).split(parent, color, key, group_options(options)));
  });
}

ddp_status ddp_group_destroy(ddp_group* handle) {
  return guard([&] {
    if (handle != nullptr) session_of(*of(handle)).destroy(*of(handle));
    ddp::runtime::forget_groups();
  });
}

const char* ddp_group_backend(const ddp_group* handle) {
  const char* backend = "";
  guard([&] {
    if (handle != nullptr) backend = session_of(*of(handle)).backend_of(*of(handle)).c_str();
  });
  return backend;
}

int32_t ddp_group_global_rank(const ddp_group* handle, int32_t rank) {
  int32_t found = -1;
  guard([&] {
    const ProcessGroup& group = not_null(of(handle), "the group");
    const Members& members = session_of(group).members_of(group);
    if (rank >= 0 && rank < group.size()) found = members[static_cast<std::size_t>(rank)];
  });
  return found;
}

int32_t ddp_group_group_rank(const ddp_group* handle, int32_t global_rank) {
  int32_t found = -1;
  guard([&] {
    const ProcessGroup& group = not_null(of(handle), "the group");
    found = ddp::runtime::rank_in(session_of(group).members_of(group), global_rank);
  });
  return found;
}

ddp_group* ddp_group_default(void) {
  Session* const session = ddp::runtime::first_session();
  return session != nullptr ? handle_of(&session->world()) : nullptr;
}
