// SPDX-License-Identifier: BSD-3-Clause
// TCP ports on the loopback interface.
#pragma once

namespace ddp::testing {

// Returns a port that is free at the moment. Two jobs, one after the other, may get the same one.
int free_port();

// Returns whether a server could listen at this port now.
bool is_free(int port);
// Returns whether a process of this network namespace listens at this port. Unlike is_free(), it takes the port from
// nobody meanwhile.
bool is_listened_at(int port);

// A connection to this port of the loopback interface. The kernel accepts it even if the server
// does not.
class Connection {
 public:
  explicit Connection(int port);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

 private:
  int fd_;
};

}  // namespace ddp::testing
