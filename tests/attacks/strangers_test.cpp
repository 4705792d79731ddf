// SPDX-License-Identifier: BSD-3-Clause
// Strangers who reach the port of a job and speak something else.
#include <signal.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/integration/ddprun.hpp"
#include "tests/rendezvous/store/raw_connection.hpp"
#include "tests/support/ports.hpp"

using Catch::Matchers::Contains;
using ddp::rendezvous::RawConnection;
using ddp::testing::count;
using ddp::testing::ddprun;
using ddp::testing::free_port;
using ddp::testing::Process;

namespace {

// The first bytes of a client of each protocol that a port scanner or a misdirected program speaks.
const std::vector<std::string> kOtherProtocols = {
    "GET / HTTP/1.1\r\nHost: node0\r\n\r\n",
    std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11),  // TLS 1.3's ClientHello
    "SSH-2.0-OpenSSH_9.2\r\n",
    "*1\r\n$4\r\nPING\r\n",                                                           // Redis
    std::string("\x00\x00\x00\x85\xff\x53\x4d\x42\x72", 9) + std::string(128, '\0'),  // SMB
    std::string(4096, '\xff'),
};

}  // namespace

TEST_CASE("strangers: other protocols at the job's port are closed at once, cost few lines, and the job goes on",
          "[attacks][integration]") {
  const int port = free_port();
  Process job(ddprun({"--nproc-per-node=2", "--master-port=" + std::to_string(port)},
                     {"count", "note=USR1", "say=up", "until=USR1", "count", "exit=0"}));
  job.wait_for("up", 2);
  for (int again = 0; again < 20; ++again) {
    for (const std::string& bytes : kOtherProtocols) {
      RawConnection stranger = RawConnection::to(static_cast<std::uint16_t>(port));
      CHECK(stranger.send(bytes));
      CHECK(stranger.ended());
    }
  }
  for (const pid_t worker : ddp::testing::children_of(ddp::testing::agent_of(job))) ::kill(worker, SIGUSR1);
  const auto result = job.wait();
  CHECK(result.code == 0);
  CHECK(count(result.err, "store: closed ") <= 10);  // at most one a second
  CHECK(job.left_over().empty());
}
