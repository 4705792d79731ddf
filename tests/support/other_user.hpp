// SPDX-License-Identifier: BSD-3-Clause
// Another user of this machine, 65534 (nobody). Only root can act as one: elsewhere the test is skipped.
#pragma once

#include <sys/types.h>

#include <functional>

namespace ddp::testing {

inline constexpr uid_t kOtherUser = 65534;

// Runs `act` as the other user, on a thread of its own, and waits for it. Sockets that it opens stay the other user's.
void as_other_user(const std::function<void()>& act);

// A process of the other user that runs `act` and then waits until this object ends. The constructor returns once
// `act` did.
class OtherUsersProcess {
 public:
  explicit OtherUsersProcess(const std::function<void()>& act);
  ~OtherUsersProcess();
  OtherUsersProcess(const OtherUsersProcess&) = delete;
  OtherUsersProcess& operator=(const OtherUsersProcess&) = delete;

  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
};

}  // namespace ddp::testing
