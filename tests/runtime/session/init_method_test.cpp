// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/session/identity/init_method.hpp"

#include <catch2/catch.hpp>

#include "rendezvous/base/error.hpp"

using Catch::Matchers::Contains;
using ddp::runtime::InitMethod;
using ddp::runtime::parse_init_method;
using Kind = InitMethod::Kind;

TEST_CASE("init method: an empty URL and env:// mean the environment", "[runtime][unit]") {
  CHECK(parse_init_method("").kind == Kind::Env);
  CHECK(parse_init_method("env://").kind == Kind::Env);
  const InitMethod method = parse_init_method("env://?rank=1&world_size=2");
  CHECK(method.kind == Kind::Env);
  CHECK(method.rank == "1");
  CHECK(method.world_size == "2");
}

TEST_CASE("init method: tcp:// names the store's host and port", "[runtime][unit]") {
  const InitMethod method = parse_init_method("tcp://node-a:29500?world_size=8&rank=3");
  CHECK(method.kind == Kind::Tcp);
  CHECK(method.host == "node-a");
  CHECK(method.port == 29500);
  CHECK(method.rank == "3");
  CHECK(method.world_size == "8");
  CHECK(parse_init_method("tcp://[fd00::1]:4711").host == "fd00::1");
  CHECK(parse_init_method("tcp://10.0.0.7:1/").host == "10.0.0.7");
  CHECK_FALSE(parse_init_method("tcp://a:1").rank);
  CHECK(parse_init_method("tcp://a:1?use_libuv=0&rank=0").rank == "0");
}

TEST_CASE("init method: file:// names a file by its absolute path", "[runtime][unit]") {
  const InitMethod method = parse_init_method("file:///shared/run 7/store?rank=0&world_size=2");
  CHECK(method.kind == Kind::File);
  CHECK(method.path == "/shared/run 7/store");
  CHECK(method.rank == "0");
}

TEST_CASE("init method: a malformed URL is an error that quotes it", "[runtime][unit]") {
  const auto refusal = [](const std::string& url, const char* why) {
    CHECK_THROWS_WITH(parse_init_method(url), Contains("init_method \"" + url + "\": ") && Contains(why));
  };
  refusal("mpi://", "expected env://, tcp://HOST:PORT or file:///PATH");
  refusal("node-a:29500", "expected env://, tcp://HOST:PORT or file:///PATH");
  refusal("env://node-a:29500", "nothing goes between env:// and");
  refusal("tcp://node-a", "the port is missing");
  refusal("tcp://node-a:", "the port is \"\": expected a whole number from 1 to 65535");
  refusal("tcp://node-a:0", "the port is \"0\"");
  refusal("tcp://node-a:65536", "the port is \"65536\"");
  refusal("tcp://node-a:80x", "the port is \"80x\"");
  refusal("tcp://:29500", "expected tcp://HOST:PORT");
  refusal("tcp://fd00::1:29500", "with brackets around an IPv6 address");
  refusal("tcp://[node-a]:29500", "with brackets around an IPv6 address");
  refusal("tcp://node-a/x:29500", "expected tcp://HOST:PORT");
  refusal("file://tmp/store", "give an absolute path, with three slashes");
  refusal("file://", "give an absolute path");
  refusal("file:///tmp/", "that is a folder");
  refusal("tcp://a:1?wordl_size=2", "\"wordl_size=2\" is neither rank=N nor world_size=N");
  refusal("tcp://a:1?rank", "\"rank\" is neither");
}
