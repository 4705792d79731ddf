// SPDX-License-Identifier: BSD-3-Clause
// TCP ports of the loopback interface.
#pragma once

namespace ddp::testing {

// One that is free just now; two jobs one after another may have it.
int free_port();

// May a server listen there now?
bool is_free(int port);

// To whoever listens there: the kernel accepts it, even if nobody else does.
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
