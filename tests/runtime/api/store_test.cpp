// SPDX-License-Identifier: BSD-3-Clause
// The stores of ddp/store.hpp, and the C functions under it where C++ cannot make the same mistake.
#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "ddp/store.hpp"
#include "rendezvous/store/server.hpp"
#include "tests/support/process.hpp"

namespace {

using Catch::Matchers::Contains;
using Keys = std::vector<std::string>;
using ddp::testing::TemporaryFolder;
using namespace std::chrono_literals;

struct Failure {
  ddp::Status status = ddp::Status::Ok;
  std::string message;
};

Failure failure_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const ddp::Error& e) {
    return {e.status(), e.what()};
  }
  return {};
}

void every_call(const ddp::Store& store) {
  store.set("k", std::string("a\0b", 3));
  CHECK(store.get("k") == std::string("a\0b", 3));
  CHECK(store.add("n", 40) + store.add("n", 1) == 81);
  store.append("n", "0");
  CHECK(store.multi_get({"n", "k"}) == Keys{"410", std::string("a\0b", 3)});
  store.multi_set({"x", "y"}, {"1", ""});
  CHECK(store.check({"x", "y"}));
  store.wait({"x", "y"});
  CHECK(store.compare_set("x", "1", "2") == "2");
  CHECK(store.compare_set("x", "1", "3") == "2");
  Keys keys = store.list_keys();
  std::sort(keys.begin(), keys.end());
  CHECK(keys == Keys{"k", "n", "x", "y"});
  CHECK(store.num_keys() >= 4);
  CHECK(store.delete_key("x"));
  CHECK_FALSE(store.delete_key("x"));
  store.barrier("b", 1);
  CHECK(failure_of([&] { store.get("none", 10ms); }).status == ddp::Status::Timeout);
}

void queues(const ddp::Store& store) {
  CHECK_FALSE(store.queue_try_pop("q"));
  store.queue_push("q", "one");
  store.queue_push("q", "");
  CHECK(store.queue_len("q") == 2);
  CHECK(store.queue_pop("q") == "one");
  CHECK(store.queue_try_pop("q") == std::string());
  CHECK_THAT(failure_of([&] { store.queue_pop("q", 10ms); }).message, Contains("still empty after 10 ms"));
}

}  // namespace

TEST_CASE("ddp::Store: every call works on every kind of store", "[runtime][integration]") {
  SECTION("TcpStore") {
    const ddp::rendezvous::StoreServer server({"127.0.0.1"}, 0);
    const ddp::TcpStore store("127.0.0.1", server.port());
    every_call(store);
    queues(store);
  }
  SECTION("FileStore") {
    const TemporaryFolder folder;
    const ddp::FileStore store(folder / "store", 1);
    every_call(store);
    CHECK(failure_of([&] { store.queue_push("q", "v"); }).status == ddp::Status::InvalidArgument);
  }
  SECTION("PrefixStore") {
    const ddp::rendezvous::StoreServer server({"127.0.0.1"}, 0);
    const ddp::TcpStore base("127.0.0.1", server.port());
    const ddp::PrefixStore store("p", base);
    every_call(store);
    queues(store);
    CHECK(base.get("p/n") == "410");
  }
}

TEST_CASE("ddp::Store: an error names host, port, key and how long", "[runtime][integration]") {
  const ddp::rendezvous::StoreServer server({"127.0.0.1"}, 0);
  const ddp::TcpStore store("127.0.0.1", server.port());
  const Failure failure = failure_of([&] { store.get("model/lr", 20ms); });
  CHECK(failure.status == ddp::Status::Timeout);
  CHECK(failure.message == "store 127.0.0.1:" + std::to_string(server.port()) +
                               ": key \"model/lr\" not set within 20 ms (is the worker that sets it running?)");
  store.set_timeout(20ms);
  CHECK(failure_of([&] { store.get("model/lr"); }).message == failure.message);
}

TEST_CASE("ddp::Store: wrong arguments are refused", "[runtime][unit]") {
  const TemporaryFolder folder;
  const ddp::FileStore store(folder / "store");
  CHECK(failure_of([&] { store.set(std::string("a\0b", 3), ""); }).message == "store: a key must not hold a NUL byte");
  CHECK(failure_of([&] { store.multi_set({"a"}, {}); }).status == ddp::Status::InvalidArgument);
  CHECK(failure_of([&] { store.get("k", -1ms); }).message == "store: a timeout is negative; 0 means the default");
  CHECK(failure_of([&] { store.barrier("b", 0); }).message == "store: a barrier of 0 workers");
  CHECK(failure_of([] { const ddp::TcpStore none("localhost", 0); }).message == "store localhost: 0 is no port");
  const ddp_sink nowhere = {nullptr, nullptr};
  store.set("k", "v");
  CHECK(ddp_store_get(store.c(), "k", 0, nowhere) == DDP_INVALID_ARGUMENT);
  CHECK(ddp_store_get(nullptr, "k", 0, nowhere) == DDP_INVALID_ARGUMENT);
  CHECK(ddp_store_set(store.c(), nullptr, {nullptr, 0}) == DDP_INVALID_ARGUMENT);
  CHECK(ddp_store_set(store.c(), "k", {nullptr, 1}) == DDP_INVALID_ARGUMENT);
  CHECK(ddp_store_set(store.c(), "k", {nullptr, 0}) == DDP_OK);
  CHECK(ddp_store_wait(store.c(), nullptr, 1, 0) == DDP_INVALID_ARGUMENT);
  CHECK(ddp_store_wait(store.c(), nullptr, 0, 0) == DDP_OK);
  CHECK(ddp_store_create_file("store", -1, 0, nullptr) == DDP_INVALID_ARGUMENT);
  ddp_store_destroy(nullptr);
}

TEST_CASE("ddp::Store: the longest timeout waits, without an overflow", "[runtime][unit]") {
  const TemporaryFolder folder;
  const ddp::FileStore store(folder / "store");
  auto waiting = std::async(std::launch::async, [&] { return store.get("k", ddp::Milliseconds::max()); });
  store.set("k", "v");
  CHECK(waiting.get() == "v");
}

TEST_CASE("ddp::Store: views stay valid when a store is moved", "[runtime][unit]") {
  const TemporaryFolder folder;
  ddp::FileStore first(folder / "store");
  const ddp::Store view = first;
  const ddp::FileStore second = std::move(first);
  view.set("k", "v");
  CHECK(second.get("k") == "v");
}
