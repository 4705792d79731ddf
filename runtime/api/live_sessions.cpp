// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/api/live_sessions.hpp"

#include <mutex>
#include <vector>

#include "rendezvous/base/error.hpp"

namespace ddp::runtime {
namespace {

struct Sessions {
  std::mutex mutex;
  std::vector<Session*> list;
};

// Returns the list, which is never destroyed: a session in a static variable of the program may
// end later than static variables of this library.
Sessions& sessions() {
  static Sessions* const all = new Sessions;
  return *all;
}

}  // namespace

void enlist(Session& session) {
  const std::lock_guard lock(sessions().mutex);
  sessions().list.push_back(&session);
}

void strike(Session& session) {
  const std::lock_guard lock(sessions().mutex);
  std::erase(sessions().list, &session);
}

Session* first_session() {
  const std::lock_guard lock(sessions().mutex);
  return sessions().list.empty() ? nullptr : sessions().list.front();
}

Session& session_of(const ProcessGroup& group) {
  const std::lock_guard lock(sessions().mutex);
  for (Session* session : sessions().list) {
    if (session->owns(group)) return *session;
  }
  throw rendezvous::Error(rendezvous::ErrorCode::InvalidArgument, "there is no such group (was it destroyed?)");
}

}  // namespace ddp::runtime
