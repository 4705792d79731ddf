// SPDX-License-Identifier: BSD-3-Clause
// Strangers who connect to a job's port and say nothing, or not enough, until it has no descriptor left.
#include <signal.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <string>

#include "rendezvous/membership/handshake.hpp"
#include "tests/integration/nodes/nodes.hpp"

using Catch::Matchers::Contains;
using namespace ddp::testing;

namespace {

constexpr int kConnections = 220;
constexpr rlim_t kFiles = 256;

// Returns a script of bash that opens kConnections, sends the same bytes on each, and keeps them open.
Words many_connections(const std::string& address, int port, const std::string& bytes) {
  std::string escaped;
  for (const char c : bytes) {
    char code[5];
    std::snprintf(code, sizeof code, "\\x%02x", static_cast<unsigned char>(c));
    escaped += code;
  }
  return {"bash", "-c",
          "for i in $(seq " + std::to_string(kConnections) + "); do exec {fd}<>/dev/tcp/" + address + "/" +
              std::to_string(port) + "; printf '" + escaped + "' >&$fd; done 2> /dev/null; echo all open; sleep 600"};
}

}  // namespace

TEST_CASE("silence: a stranger's connections keep neither a node nor its workers out where few files may be open",
          "[attacks][integration]") {
  // No secret is needed to shake hands here.
  const std::string hello = ddp::rendezvous::AgentHandshake("node0:29500", {}).preface();
  const auto& [what, bytes] = GENERATE_COPY(table<std::string, std::string>({
      {"nothing", ""},
      {"the first byte of an agent", "\xdd"},
      {"an agent's part of the handshake", hello},
  }));
  INFO("they send " << what);
  const Hosts hosts(3);
  NodesJob job(hosts, static_job(2) + Words{"--nproc-per-node=2"}, {"meet", "exit=0"});
  Process::Options few;
  few.max_open_files = kFiles;
  Process& first = job.start_ranked(0, {"--log-level=info"}, few);
  first.wait_for("waiting for nodes");
  Process stranger(hosts.on(2, many_connections(Hosts::address(0), 29500, bytes)));
  stranger.wait_for("all open");

  Process& second = job.start_ranked(1);
  CHECK(second.wait().code == 0);
  const Result result = first.wait();
  CHECK(result.code == 0);
  CHECK_THAT(result.err, Contains("its place was needed") || Contains("too many handshakes at once"));
  CHECK(count(result.out, "4") >= 2);
}
