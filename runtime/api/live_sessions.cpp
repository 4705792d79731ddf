// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/api/live_sessions.hpp"

#include <pthread.h>

#include <atomic>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "rendezvous/base/error.hpp"
#include "runtime/api/arguments.hpp"
#include "runtime/api/c_handles.hpp"

namespace ddp::runtime {
namespace {

struct Living {
  std::mutex mutex;
  std::vector<Session*> sessions;
  std::set<const void*> others;
};

// Never destroyed: a session in a static variable of the program may end later than static variables of this library.
Living* living_now = nullptr;
std::atomic<std::uint64_t> ends{0};  // how often groups may have ended

void begin_empty() {
  living_now = new Living;  // another thread may hold the mutex of the one before
  ++ends;
}

Living& living() {
  static const int once = [] {
    begin_empty();
    return pthread_atfork(nullptr, nullptr, &begin_empty);
  }();
  static_cast<void>(once);
  return *living_now;
}

}  // namespace

void enlist(Session& session) {
  const std::lock_guard lock(living().mutex);
  living().sessions.push_back(&session);
}

void enlist(const void* object) {
  const std::lock_guard lock(living().mutex);
  living().others.insert(object);
}

bool strike(const void* object) {
  const std::lock_guard lock(living().mutex);
  ++ends;
  return living().others.erase(object) + std::erase(living().sessions, object) > 0;
}

void forget_groups() { ++ends; }

Session* first_session() {
  const std::lock_guard lock(living().mutex);
  return living().sessions.empty() ? nullptr : living().sessions.front();
}

Session& session_of(const ProcessGroup& group) {
  const std::lock_guard lock(living().mutex);
  for (Session* session : living().sessions) {
    if (session->owns(group)) return *session;
  }
  throw rendezvous::Error(rendezvous::ErrorCode::InvalidArgument,
                          "there is no such group in this process: it was destroyed, its session has ended, or it "
                          "belongs to the process that forked this one");
}

// Every operation calls group_of(), so each thread remembers the group that its last call found.
ProcessGroup& group_of(ddp_group* handle) {
  thread_local std::pair<ddp_group*, std::uint64_t> found;
  if (const std::uint64_t now = ends; found != std::pair(handle, now) || handle == nullptr) {
    session_of(not_null(of(handle), "the group"));
    found = {handle, now};
  }
  return *of(handle);
}

}  // namespace ddp::runtime
