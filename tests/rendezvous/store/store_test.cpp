// SPDX-License-Identifier: BSD-3-Clause
// What every store promises (the values are torch 2.15's), and what only PrefixStore does.
#include "rendezvous/store/store.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <future>
#include <memory>
#include <string>

#include "rendezvous/store/file_store.hpp"
#include "rendezvous/store/hash_store.hpp"
#include "rendezvous/store/prefix_store.hpp"
#include "rendezvous/store/server.hpp"
#include "rendezvous/store/tcp_store.hpp"
#include "tests/rendezvous/store/failure_of.hpp"
#include "tests/support/process.hpp"

namespace ddp::rendezvous {
namespace {

using namespace std::chrono_literals;
using testing::kDeadline;
using Keys = std::vector<std::string>;

// A new store of one kind, and a second client of it for another thread.
struct Stores {
  explicit Stores(const std::string& kind) {
    if (kind == "tcp") {
      server = std::make_unique<StoreServer>(Keys{"127.0.0.1"}, 0);
      one = std::make_unique<TcpStore>("127.0.0.1", server->port(), kDeadline);
      two = std::make_unique<TcpStore>("127.0.0.1", server->port(), kDeadline);
    } else if (kind == "file") {
      one = std::make_unique<FileStore>(folder / "store", 2, kDeadline);
      two = std::make_unique<FileStore>(folder / "store", 2, kDeadline);
    } else {
      base = std::make_unique<HashStore>(kDeadline);
      one = std::make_unique<PrefixStore>("job", *base);
      two = std::make_unique<PrefixStore>("job", *base);
    }
  }
  testing::TemporaryFolder folder;
  std::unique_ptr<StoreServer> server;
  std::unique_ptr<Store> base, one, two;
};

Keys sorted(Keys keys) {
  std::sort(keys.begin(), keys.end());
  return keys;
}

TEST_CASE("store: keys and values are as torch.distributed's stores have them", "[rendezvous][integration]") {
  Stores stores(GENERATE("tcp", "file", "hash behind a prefix"));
  Store& store = *stores.one;
  Store& other = *stores.two;

  store.set("k", "v");
  store.set("binary", std::string("\x00\xff\n", 3));
  store.set("empty", "");
  CHECK(other.get("k") == "v");
  CHECK(other.get("binary") == std::string("\x00\xff\n", 3));
  CHECK(other.get("empty").empty());

  CHECK(store.add("n", 5) == 5);
  CHECK(other.add("n", -7) == -2);
  CHECK(store.get("n") == "-2");
  store.set("text", "12abc");
  CHECK(store.add("text", 1) == 13);

  CHECK(store.check({"k", "n"}));
  CHECK(store.check({}));
  CHECK_FALSE(store.check({"k", "none"}));

  CHECK(store.compare_set("cs", "old", "new") == "old");
  CHECK_FALSE(store.check({"cs"}));
  CHECK(store.compare_set("cs", "", "first") == "first");
  CHECK(store.compare_set("cs", "x", "y") == "first");
  CHECK(store.compare_set("cs", "first", "second") == "second");
  CHECK(other.get("cs") == "second");

  // An append has no answer, but it is done when the same client's next request is answered.
  store.append("log", "one");
  CHECK(store.check({"log"}));
  other.append("log", "+two");
  CHECK(other.check({"log"}));
  CHECK(store.get("log") == "one+two");

  CHECK(store.delete_key("k"));
  CHECK_FALSE(other.delete_key("k"));
  CHECK_FALSE(other.check({"k"}));

  store.multi_set({"m1", "m2"}, {"1", "22"});
  CHECK(other.multi_get({"m2", "m1", "m2"}, kDeadline) == Keys{"22", "1", "22"});
  CHECK(other.multi_get({}, kDeadline).empty());
  CHECK(failure_of([&] { store.multi_set({"m1"}, {}); }).code == ErrorCode::InvalidArgument);

  CHECK(sorted(other.list_keys()) == Keys{"binary", "cs", "empty", "log", "m1", "m2", "n", "text"});
  const std::int64_t counters = dynamic_cast<FileStore*>(&store) != nullptr ? 1 : 0;
  CHECK(store.num_keys() == 8 + counters);
}

TEST_CASE("store: a call that waits returns once its keys exist, whatever created them", "[rendezvous][integration]") {
  Stores stores(GENERATE("tcp", "file", "hash behind a prefix"));
  Store& store = *stores.one;
  auto waiting = std::async(std::launch::async, [&] {
    return stores.two->multi_get({"set", "add", "append", "multi", "cs"}, kDeadline);
  });
  store.set("set", "s");
  store.add("add", 1);
  store.append("append", "a");
  store.multi_set({"multi"}, {"m"});
  store.compare_set("cs", "", "c");
  CHECK(waiting.get() == Keys{"s", "1", "a", "m", "c"});
}

TEST_CASE("store: a deadline that passes names the keys and the time, and leaves the store usable",
          "[rendezvous][integration]") {
  Stores stores(GENERATE("tcp", "file", "hash behind a prefix"));
  Store& store = *stores.one;
  const std::string prefix = stores.base ? "job/" : "";
  store.set("there", "");
  const Failure get = failure_of([&] { store.get("none", 20ms); });
  CHECK(get.code == ErrorCode::Timeout);
  CHECK_THAT(get.message, Catch::EndsWith(": key \"" + prefix +
                                          "none\" not set within 20 ms (is the worker that sets it running?)"));
  CHECK_THAT(failure_of([&] {
               store.wait({"there", "none"}, 0ms);
             }).message,
             Catch::Contains(": keys \"" + prefix + "there\", \"" + prefix + "none\" not set within 0 s"));
  CHECK(failure_of([&] { store.multi_get({"none"}, 20ms); }).code == ErrorCode::Timeout);
  CHECK(failure_of([&] { store.barrier("alone", 2, 20ms); }).code == ErrorCode::Timeout);
  store.set_timeout(20ms);
  CHECK(failure_of([&] { store.get("none"); }).code == ErrorCode::Timeout);
  store.set("none", "now");
  CHECK(store.get("none", kDeadline) == "now");
}

TEST_CASE("store: queues are first in, first out, and apart from keys", "[rendezvous][integration]") {
  Stores stores(GENERATE("tcp", "hash behind a prefix"));
  Store& store = *stores.one;
  Queues& queues = queues_of(store);
  Queues& other = queues_of(*stores.two);
  CHECK(queues.queue_len("q") == 0);
  CHECK_FALSE(queues.queue_try_pop("q"));
  queues.queue_push("q", "one");
  queues.queue_push("q", "");
  CHECK(queues.queue_len("q") == 2);
  CHECK(store.check({"q"}));
  CHECK_FALSE(store.delete_key("q"));
  CHECK(store.num_keys() == 0);
  CHECK(other.queue_pop("q", kDeadline) == "one");
  CHECK(queues.queue_try_pop("q") == "");
  CHECK_FALSE(store.check({"q"}));
  const Failure failure = failure_of([&] { queues.queue_pop("q", 20ms); });
  CHECK(failure.code == ErrorCode::Timeout);
  CHECK_THAT(failure.message,
             Catch::EndsWith("q\" still empty after 20 ms (is the worker that pushes to it running?)"));
  auto popping = std::async(std::launch::async, [&] { return other.queue_pop("q", kDeadline); });
  queues.queue_push("q", "late");
  CHECK(popping.get() == "late");
}

TEST_CASE("store: a barrier opens for all once the last client has come, and stays open", "[rendezvous][integration]") {
  Stores stores(GENERATE("tcp", "file", "hash behind a prefix"));
  auto other = std::async(std::launch::async, [&] { stores.two->barrier("b", 2, kDeadline); });
  CHECK_NOTHROW(stores.one->barrier("b", 2, kDeadline));
  CHECK_NOTHROW(other.get());
  CHECK_NOTHROW(stores.one->barrier("b", 2, kDeadline));
}

TEST_CASE("store: a counter that holds no number is refused by name", "[rendezvous][integration]") {
  Stores stores(GENERATE("file", "hash behind a prefix"));
  const std::string text = GENERATE("abc", "9223372036854775808");
  stores.one->set("n", text);
  const Failure failure = failure_of([&] { stores.one->add("n", 1); });
  CHECK(failure.code == ErrorCode::InvalidArgument);
  CHECK_THAT(failure.message, Catch::EndsWith("n\": its value \"" + text + "\" is not a number of 64 bits"));
  stores.one->set("n", "");
  CHECK(stores.one->add("n", 1) == 1);
}

TEST_CASE("prefix store: joins prefix and key with a slash, outermost first", "[rendezvous][unit]") {
  HashStore base(kDeadline);
  PrefixStore outer("out", base);
  PrefixStore inner("in/", outer);
  inner.set("k", "v");
  CHECK(base.list_keys() == Keys{"out/in//k"});
  CHECK(inner.list_keys() == Keys{"k"});
  CHECK(PrefixStore("ou", base).list_keys().empty());
  base.set("other", "");
  CHECK(inner.num_keys() == 2);
  inner.queue_push("q", "v");
  CHECK(base.queue_len("out/in//q") == 1);
}

TEST_CASE("prefix store: its barrier leaves the keys that torch's leaves", "[rendezvous][integration]") {
  StoreServer server({"127.0.0.1"}, 0);
  TcpStore base("127.0.0.1", server.port(), kDeadline);
  PrefixStore("p", base).barrier("b", 1, kDeadline);
  CHECK(sorted(base.list_keys()) == Keys{"p/b/last_member", "p/b/num_members"});
  base.barrier("b", 1, kDeadline);
  CHECK(base.get("b") == "1");
}

}  // namespace
}  // namespace ddp::rendezvous
