// SPDX-License-Identifier: BSD-3-Clause
// ddp_store and ddp_bench, run as a user runs them.
#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>

#include "rendezvous/store/c10d_protocol.hpp"
#include "rendezvous/store/tcp_store.hpp"
#include "tests/integration/store_process.hpp"
#include "tests/rendezvous/store/hex.hpp"
#include "tests/rendezvous/store/raw_connection.hpp"
#include "tests/support/process.hpp"
#include "tests/support/sanitizer.hpp"

using namespace ddp::testing;
using namespace std::chrono_literals;
using ddp::rendezvous::append_request;
using ddp::rendezvous::from_hex;
using ddp::rendezvous::Op;
using ddp::rendezvous::RawConnection;
using ddp::rendezvous::TcpStore;

TEST_CASE("ddp_store: serves, prints statistics on request and at its end, and exits", "[apps][integration]") {
  StoreProcess store({"--json"});
  CHECK(count(store.process.out(), "listening on 127.0.0.1:" + std::to_string(store.port) + "\n") == 1);
  TcpStore client("127.0.0.1", store.port, kDeadline);
  client.set("k", "v");
  CHECK(client.get("k") == "v");
  store.process.signal(SIGUSR1);
  store.process.wait_for(R"("set":1)");
  CHECK(count(store.process.out(), R"("connections":{"open":1,"accepted":1,"dropped":0,)") == 1);
  store.process.signal(SIGTERM);
  const Result result = store.process.wait();
  CHECK(result.code == 0);
  CHECK(count(result.out, R"("set":1)") == 2);
  CHECK(store.process.left_over().empty());
}

TEST_CASE("ddp_store: without --json its statistics are a sentence", "[apps][integration]") {
  StoreProcess store;
  TcpStore("127.0.0.1", store.port, kDeadline).add("n", 1);
  store.process.signal(SIGINT);
  const Result result = store.process.wait();
  CHECK(result.code == 0);
  CHECK(count(result.out, "1 connections (") == 1);
  CHECK(count(result.out, "1 keys, 0 waiting") == 1);
}

TEST_CASE("ddp_store: a port in use and an unknown option have different errors", "[apps][integration]") {
  const StoreProcess first;
  const Result taken = run({DDP_STORE_BINARY, "--bind", "127.0.0.1", "--port", std::to_string(first.port)});
  CHECK(taken.code == 1);
  CHECK(count(taken.err, "is taken by pid " + std::to_string(first.process.pid())) == 1);
  CHECK(run({DDP_STORE_BINARY, "--prot", "1"}).code == 2);
  CHECK(run({DDP_STORE_BINARY, "--help"}).code == 0);
}

TEST_CASE("ddp_store: a thousand hostile clients take no memory and keep no other client waiting",
          "[apps][integration]") {
  rlimit files = {};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &files) == 0);
  files.rlim_cur = files.rlim_max;
  REQUIRE(setrlimit(RLIMIT_NOFILE, &files) == 0);
  StoreProcess store;
  TcpStore client("127.0.0.1", store.port, kDeadline);
  client.set("large", std::string(1 << 20, 'v'));
  REQUIRE(client.check({"large"}));
  const std::size_t before = store.resident();

  const std::string hello = from_hex("00 cef7853c");
  std::string never_reads = hello;
  for (int i = 0; i < 8; ++i) append_request(never_reads, {.op = Op::Get, .keys = {"/large"}});
  const std::vector<std::string> openings = {
      "",                                                             // silent
      from_hex("00"),                                                 // half a preface
      hello + from_hex("01 0200000000000000 2f6b 0000800000000000"),  // a value of 8 MiB that never comes
      hello + from_hex("06 0000020000000000"),                        // 131,072 keys
      hello + from_hex("0b ffffffffffffff7f"),                        // 2^63 - 1 pairs
      hello + from_hex("03 ffffffffffffffff"),                        // a key of 16 EiB
      from_hex("ffff"),
      "GET / HTTP/1.1\r\n",
  };
  std::vector<RawConnection> hostile;
  for (int i = 0; i < 1000; ++i) {
    hostile.push_back(RawConnection::to(store.port));
    hostile.back().send(openings[static_cast<std::size_t>(i) % openings.size()]);
  }
  for (int i = 0; i < 8; ++i) {
    hostile.push_back(RawConnection::to(store.port));
    hostile.back().send(never_reads);
  }
  CHECK(client.add("still", 1) == 1);  // by now the server has read all of the above
  CHECK(client.get("large").size() == 1 << 20);
  const std::size_t after = store.resident();
  CAPTURE(before, after);
  // Each client that never reads may cost the answers of one batch; the others cost next to
  // nothing.
  if (!kIsSanitized) CHECK(after < before + 8 * 3 * (std::size_t{1} << 20) + 1000 * 2048);
}

TEST_CASE("ddp_bench: each load ends and measures something", "[apps][integration]") {
  const StoreProcess store;
  const Result result =
      run({DDP_BENCH_BINARY, "store", "--port", std::to_string(store.port), "--pid",
           std::to_string(store.process.pid()), "--seconds", "0.05", "--storm", "100", "storm", "closed", "pipelined"});
  CHECK(result.code == 0);
  CHECK(count(result.out, R"("scenario")") == 7);
  CHECK(count(result.out, R"("operations":0)") == 0);
  CHECK(run({DDP_BENCH_BINARY, "store", "--port", "1", "--pid", std::to_string(getpid()), "nonsense"}).code == 2);
}
