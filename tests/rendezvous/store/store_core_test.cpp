// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/store/store_core.hpp"

#include <catch2/catch.hpp>
#include <chrono>
#include <map>

#include "tests/rendezvous/store/hex.hpp"
#include "tests/rendezvous/store/requests.hpp"

namespace ddp::rendezvous {
namespace {

constexpr char kGone[] = "closed";  // what ask() returns when the store closes the connection instead

// A store and its clients, by number. ask() returns what the asking client was sent, heard() what another client was.
class World {
 public:
  std::string ask(ConnectionId from, const Request& request) {
    Replies replies;
    apply(core_, from, request, replies);
    sent_[from] += replies.answer;
    for (const Replies::Send& send : replies.others) sent_[send.to] += send.bytes;
    return replies.close.empty() ? heard(from) : kGone;
  }
  std::string heard(ConnectionId by) { return std::exchange(sent_[by], ""); }
  StoreCore& core() { return core_; }

  std::string set(ConnectionId from, const std::string& key, const std::string& value) {
    return ask(from, {.op = Op::Set, .keys = {key}, .values = {value}});
  }
  std::string get(ConnectionId from, const std::string& key) { return ask(from, {.op = Op::Get, .keys = {key}}); }
  std::string add(ConnectionId from, const std::string& key, std::int64_t delta) {
    return ask(from, {.op = Op::Add, .keys = {key}, .number = delta});
  }
  std::string wait(ConnectionId from, const std::vector<std::string>& keys) {
    return ask(from, {.op = Op::Wait, .keys = keys});
  }
  std::string check(ConnectionId from, const std::vector<std::string>& keys) {
    return ask(from, {.op = Op::Check, .keys = keys});
  }
  std::string compare_set(ConnectionId from, const std::string& key, const std::string& expected,
                          const std::string& desired) {
    return ask(from, {.op = Op::CompareSet, .keys = {key}, .values = {expected, desired}});
  }
  std::string push(ConnectionId from, const std::string& queue, const std::string& value) {
    return ask(from, {.op = Op::QueuePush, .keys = {queue}, .values = {value}});
  }
  std::string barrier(ConnectionId from, const std::string& key, std::int64_t world_size) {
    return ask(from, {.op = Op::Barrier, .keys = {key}, .number = world_size});
  }
  std::string remove(ConnectionId from, const std::string& key) {
    return ask(from, {.op = Op::DeleteKey, .keys = {key}});
  }
  std::string cancel(ConnectionId from) { return ask(from, {.op = Op::CancelWait}); }

 private:
  StoreCore core_;
  std::map<ConnectionId, std::string> sent_;
};

std::string number(std::int64_t value) {
  std::string out;
  append_i64(out, value);
  return out;
}
std::string text(const std::string& value) {
  std::string out;
  append_bytes(out, value);
  return out;
}
const std::string kNothing;
const std::string kStopWaiting("\0", 1);
const std::string kWaitCanceled("\1", 1);
const std::string kReady("\0", 1);
const std::string kNotReady("\1", 1);

TEST_CASE("store: set answers nothing, get gives the value back", "[rendezvous][unit]") {
  World world;
  CHECK(world.set(1, "/k", std::string("\0\xff", 2)) == kNothing);
  CHECK(world.get(2, "/k") == text(std::string("\0\xff", 2)));
}

TEST_CASE("store: get of a missing key is an empty value", "[rendezvous][unit]") {
  World world;
  CHECK(world.get(1, "/k") == text(""));
  CHECK(world.ask(1, {.op = Op::GetNumKeys}) == number(0));
}

TEST_CASE("store: ping comes back", "[rendezvous][unit]") {
  World world;
  CHECK(to_hex(world.ask(1, {.op = Op::Ping, .number = 0x1234})) == "34120000");
}

TEST_CASE("store: compare_set on a missing key sets only if nothing was expected", "[rendezvous][unit]") {
  World world;
  CHECK(world.compare_set(1, "/k", "old", "new") == text("old"));  // answers the expected value, and stores nothing
  CHECK(world.check(1, {"/k"}) == kNotReady);
  CHECK(world.compare_set(1, "/k", "", "new") == text("new"));
  CHECK(world.get(1, "/k") == text("new"));
}

TEST_CASE("store: compare_set on a key answers what is there afterwards", "[rendezvous][unit]") {
  World world;
  world.set(1, "/k", "a");
  CHECK(world.compare_set(1, "/k", "b", "c") == text("a"));
  CHECK(world.compare_set(1, "/k", "", "c") == text("a"));
  CHECK(world.compare_set(1, "/k", "a", "c") == text("c"));
  world.set(1, "/empty", "");
  CHECK(world.compare_set(1, "/empty", "", "now") == text("now"));
}

TEST_CASE("store: add counts in decimal text, from 0", "[rendezvous][unit]") {
  World world;
  CHECK(world.add(1, "/n", 5) == number(5));
  CHECK(world.add(2, "/n", -13) == number(-8));
  CHECK(world.get(1, "/n") == text("-8"));
}

TEST_CASE("store: add reads what it finds like stoll", "[rendezvous][unit]") {
  World world;
  const auto after = [&](const std::string& before) {
    world.set(1, "/n", before);
    return world.add(1, "/n", 1);
  };
  CHECK(after("12abc") == number(13));
  CHECK(after(" +12") == number(13));
  CHECK(after("\t\n-3") == number(-2));
  CHECK(after("9223372036854775807") == number(INT64_MIN));  // wraps around
  for (const char* bad : {"", "abc", "- 1", "9223372036854775808"}) {
    CAPTURE(bad);
    CHECK(after(bad) == kGone);
    CHECK(world.get(2, "/n") == text(bad));  // other clients do not notice
  }
}

TEST_CASE("store: wait returns at once if every key exists, or none was named", "[rendezvous][unit]") {
  World world;
  world.set(1, "/a", "");
  CHECK(world.wait(2, {"/a", "/a"}) == kStopWaiting);
  CHECK(world.wait(2, {}) == kStopWaiting);
}

TEST_CASE("store: wait returns once every key exists", "[rendezvous][unit]") {
  World world;
  CHECK(world.wait(1, {"/a", "/b", "/a"}) == kNothing);
  world.set(2, "/a", "1");
  CHECK(world.heard(1) == kNothing);
  world.set(2, "/a", "2");
  CHECK(world.heard(1) == kNothing);
  world.set(2, "/b", "1");
  CHECK(world.heard(1) == kStopWaiting);
  world.set(2, "/b", "2");
  CHECK(world.heard(1) == kNothing);
}

TEST_CASE("store: every operation that creates a key ends a wait for it", "[rendezvous][unit]") {
  World world;
  CHECK(world.wait(1, {"/k"}) == kNothing);
  SECTION("set") { world.set(2, "/k", ""); }
  SECTION("add") { world.add(2, "/k", 0); }
  SECTION("append") { world.ask(2, {.op = Op::Append, .keys = {"/k"}, .values = {""}}); }
  SECTION("multi_set") { world.ask(2, {.op = Op::MultiSet, .keys = {"/j", "/k"}, .values = {"", ""}}); }
  SECTION("compare_set") { world.compare_set(2, "/k", "", "v"); }
  SECTION("queue_push") { world.push(2, "/k", "v"); }
  CHECK(world.heard(1) == kStopWaiting);
}

TEST_CASE("store: a compare_set that stores nothing wakes no client", "[rendezvous][unit]") {
  World world;
  world.wait(1, {"/k"});
  CHECK(world.compare_set(2, "/k", "x", "y") == text("x"));
  CHECK(world.heard(1) == kNothing);
}

TEST_CASE("store: a key that was set and deleted counts for clients that waited then", "[rendezvous][unit]") {
  World world;
  world.wait(1, {"/a", "/b"});
  world.set(2, "/a", "");
  CHECK(world.remove(2, "/a") == number(1));
  world.set(2, "/b", "");
  CHECK(world.heard(1) == kStopWaiting);
}

TEST_CASE("store: cancel_wait answers one 01, whether or not a wait was pending", "[rendezvous][unit]") {
  World world;
  CHECK(world.cancel(1) == kWaitCanceled);
  world.wait(1, {"/k"});
  CHECK(world.cancel(1) == kWaitCanceled);
  world.set(2, "/k", "");
  CHECK(world.heard(1) == kNothing);
}

TEST_CASE("store: a second wait replaces the first", "[rendezvous][unit]") {
  World world;
  world.wait(1, {"/a"});
  world.wait(1, {"/b"});
  world.set(2, "/a", "");
  CHECK(world.heard(1) == kNothing);
  world.set(2, "/b", "");
  CHECK(world.heard(1) == kStopWaiting);
}

TEST_CASE("store: today's clients may ask while they wait", "[rendezvous][unit]") {
  World world;
  world.wait(1, {"/k"});
  CHECK(world.get(1, "/j") == text(""));
  world.set(2, "/k", "");
  CHECK(world.heard(1) == kStopWaiting);
}

TEST_CASE("store: a new request of an old client ends its wait", "[rendezvous][unit]") {
  World world;
  const auto old = GENERATE(Generation::Old, Generation::A, Generation::C);
  world.ask(1, {.op = Op::Wait, .keys = {"/k"}, .generation = old});
  CHECK(world.ask(1, {.op = Op::Get, .keys = {"/j"}, .generation = old}) == text(""));
  world.set(2, "/k", "");
  CHECK(world.heard(1) == kNothing);
}

TEST_CASE("store: check sees keys and queues that are not empty", "[rendezvous][unit]") {
  World world;
  world.set(1, "/k", "");
  world.push(1, "/q", "");
  CHECK(world.check(1, {"/k", "/q"}) == kReady);
  CHECK(world.check(1, {"/k", "/q", "/x"}) == kNotReady);
  CHECK(world.check(1, {}) == kReady);
  world.ask(1, {.op = Op::QueuePop, .keys = {"/q"}});
  CHECK(world.check(1, {"/q"}) == kNotReady);
}

TEST_CASE("store: append creates, then appends", "[rendezvous][unit]") {
  World world;
  CHECK(world.ask(1, {.op = Op::Append, .keys = {"/k"}, .values = {"one"}}) == kNothing);
  world.ask(1, {.op = Op::Append, .keys = {"/k"}, .values = {"+two"}});
  CHECK(world.get(1, "/k") == text("one+two"));
}

TEST_CASE("store: delete says whether there was a key, and leaves queues alone", "[rendezvous][unit]") {
  World world;
  world.set(1, "/k", "");
  world.push(1, "/q", "v");
  CHECK(world.remove(1, "/k") == number(1));
  CHECK(world.remove(1, "/k") == number(0));
  CHECK(world.remove(1, "/q") == number(0));
  CHECK(world.ask(1, {.op = Op::QueueLen, .keys = {"/q"}}) == number(1));
}

TEST_CASE("store: num_keys counts all clients' keys and no queue", "[rendezvous][unit]") {
  World world;
  world.add(1, "init/", 1);
  world.set(2, "/k", "");
  world.push(2, "/q", "v");
  CHECK(world.ask(3, {.op = Op::GetNumKeys}) == number(2));
}

TEST_CASE("store: multi_get answers the values only, empty for what is missing", "[rendezvous][unit]") {
  World world;
  world.ask(1, {.op = Op::MultiSet, .keys = {"/a", "/b", "/a"}, .values = {"1", "22", "3"}});
  CHECK(world.ask(1, {.op = Op::MultiGet, .keys = {"/a", "/x", "/b"}}) == text("3") + text("") + text("22"));
  CHECK(world.ask(1, {.op = Op::MultiGet}) == kNothing);
}

TEST_CASE("store: an answer that would be too long ends the connection instead", "[rendezvous][unit]") {
  World world;
  world.set(1, "/k", std::string(kMaxValueBytes, 'v'));
  const std::size_t most = kMaxReplyBytes / (kMaxValueBytes + 8);
  CHECK(world.ask(1, {.op = Op::MultiGet, .keys = std::vector<std::string>(most, "/k")}).size() >
        most * kMaxValueBytes);
  CHECK(world.ask(1, {.op = Op::MultiGet, .keys = std::vector<std::string>(most + 1, "/k")}) == kGone);
}

TEST_CASE("store: list_keys names every key and no queue", "[rendezvous][unit]") {
  World world;
  CHECK(world.ask(1, {.op = Op::ListKeys}) == number(0));
  world.add(1, "init/", 1);
  world.push(1, "/q", "v");
  CHECK(world.ask(1, {.op = Op::ListKeys}) == number(1) + text("init/"));
}

TEST_CASE("store: queue_pop answers the length before, and the first element", "[rendezvous][unit]") {
  World world;
  CHECK(world.ask(1, {.op = Op::QueuePop, .keys = {"/q"}}) == number(0));
  CHECK(world.push(1, "/q", "a") == kNothing);
  world.push(1, "/q", "bb");
  CHECK(world.ask(2, {.op = Op::QueuePop, .keys = {"/q"}}) == number(2) + text("a"));
  CHECK(world.ask(2, {.op = Op::QueuePop, .keys = {"/q"}}) == number(1) + text("bb"));
  CHECK(world.ask(2, {.op = Op::QueuePop, .keys = {"/q"}}) == number(0));
  CHECK(world.ask(2, {.op = Op::QueueLen, .keys = {"/q"}}) == number(0));
}

TEST_CASE("store: a push wakes one waiter, in order of arrival", "[rendezvous][unit]") {
  World world;
  world.wait(1, {"/q", "/never"});
  world.wait(2, {"/q"});
  world.wait(3, {"/q"});
  world.push(4, "/q", "a");
  CHECK(world.heard(1) == kNothing);
  CHECK(world.heard(2) == kStopWaiting);
  CHECK(world.heard(3) == kNothing);
  world.push(4, "/q", "b");
  CHECK(world.heard(3) == kStopWaiting);
}

TEST_CASE("store: a wait for a queue with elements and a missing key ends when the key comes", "[rendezvous][unit]") {
  World world;
  world.push(1, "/q", "a");
  CHECK(world.wait(2, {"/q", "/k"}) == kNothing);
  world.set(1, "/k", "");
  CHECK(world.heard(2) == kStopWaiting);
}

TEST_CASE("store: a barrier releases all clients when the last one arrives", "[rendezvous][unit]") {
  World world;
  CHECK(world.barrier(1, "/b", 3) == kNothing);
  CHECK(world.barrier(2, "/b", 3) == kNothing);
  CHECK(world.get(4, "/b") == text("2"));
  CHECK(world.barrier(3, "/b", 3) == kStopWaiting);
  CHECK(world.heard(1) == kStopWaiting);
  CHECK(world.heard(2) == kStopWaiting);
}

TEST_CASE("store: a barrier is never reset, and no arrival is taken back", "[rendezvous][unit]") {
  World world;
  CHECK(world.barrier(1, "/b", 2) == kNothing);
  SECTION("cancelled") { CHECK(world.cancel(1) == kWaitCanceled); }
  SECTION("disconnected") { world.core().disconnected(1); }
  CHECK(world.barrier(2, "/b", 2) == kStopWaiting);
  CHECK(world.barrier(3, "/b", 2) == kStopWaiting);
  CHECK(world.heard(1) == kNothing);
}

TEST_CASE("store: a barrier of no clients, or on text, does not park", "[rendezvous][unit]") {
  World world;
  CHECK(world.barrier(1, "/zero", 0) == kStopWaiting);
  CHECK(world.barrier(1, "/minus", -1) == kStopWaiting);
  world.set(1, "/text", "abc");
  CHECK(world.barrier(1, "/text", 2) == kGone);
}

TEST_CASE("store: an arrival at a barrier wakes no wait on its key, its release does", "[rendezvous][unit]") {
  World world;
  world.wait(1, {"/b"});
  world.barrier(2, "/b", 2);
  CHECK(world.heard(1) == kNothing);
  world.barrier(3, "/b", 2);
  CHECK(world.heard(1) == kStopWaiting);
}

TEST_CASE("store: a write to a barrier's key releases the clients parked there", "[rendezvous][unit]") {
  World world;
  world.barrier(1, "/b", 5);
  SECTION("set") { world.set(2, "/b", "x"); }
  SECTION("add") { world.add(2, "/b", 1); }
  SECTION("append") { world.ask(2, {.op = Op::Append, .keys = {"/b"}, .values = {"0"}}); }
  SECTION("multi_set") { world.ask(2, {.op = Op::MultiSet, .keys = {"/b"}, .values = {""}}); }
  SECTION("compare_set, even in vain") { world.compare_set(2, "/b", "no", "x"); }
  SECTION("queue_push") { world.push(2, "/b", "x"); }
  CHECK(world.heard(1) == kStopWaiting);
}

TEST_CASE("store: a smaller barrier on the same key stays parked", "[rendezvous][unit]") {
  World world;
  world.barrier(1, "/b", 2);
  CHECK(world.barrier(2, "/b", 3) == kNothing);
  CHECK(world.heard(1) == kNothing);
}

TEST_CASE("store: a watcher gets every change of its key", "[rendezvous][unit]") {
  World world;
  CHECK(to_hex(world.ask(1, {.op = Op::WatchKey, .keys = {"/k"}, .generation = Generation::A})) == "03");
  world.set(2, "/k", "a");
  CHECK(world.heard(1) == "\1" + text("/k") + text("") + text("a"));
  world.add(2, "/other", 1);
  CHECK(world.heard(1) == kNothing);
  world.set(2, "/k", "b");
  CHECK(world.heard(1) == std::string("\0", 1) + text("/k") + text("a") + text("b"));
  world.remove(2, "/k");
  CHECK(world.heard(1) == "\2" + text("/k") + text("b") + text(""));
  world.core().disconnected(1);
  world.set(2, "/k", "c");
  CHECK(world.heard(1) == kNothing);
}

TEST_CASE("store: keys outlive their writer, its wait does not", "[rendezvous][unit]") {
  World world;
  world.set(1, "/k", "v");
  world.wait(1, {"/a", "/a", "/b"});
  world.core().disconnected(1);
  CHECK(world.get(2, "/k") == text("v"));
  world.set(2, "/a", "");
  world.set(2, "/b", "");
  CHECK(world.heard(1) == kNothing);
}

TEST_CASE("store: a reset leaves nothing behind", "[rendezvous][unit]") {
  World world;
  world.set(1, "/k", "v");
  world.push(1, "/q", "v");
  world.wait(2, {"/w"});
  world.ask(3, {.op = Op::WatchKey, .keys = {"/w"}, .generation = Generation::A});
  world.core().reset();
  CHECK(world.ask(4, {.op = Op::GetNumKeys}) == number(0));
  CHECK(world.check(4, {"/q"}) == kNotReady);
  world.set(4, "/w", "");
  CHECK(world.heard(2) == kNothing);
  CHECK(world.heard(3) == kNothing);
}

TEST_CASE("store: 20000 waiters time out, and disconnect, each at its own cost", "[rendezvous][unit]") {
  World world;
  constexpr ConnectionId kClients = 20000;
  for (ConnectionId id = 1; id <= kClients; ++id) world.wait(id, {"/never", "/own" + std::to_string(id)});
  // A search through all waiters for each would be 4e8 steps, beyond the tests' time limit.
  for (ConnectionId id = 1; id <= kClients / 2; ++id) REQUIRE(world.cancel(id) == kWaitCanceled);
  for (ConnectionId id = kClients / 2 + 1; id <= kClients; ++id) world.core().disconnected(id);
  world.set(1, "/never", "");
  for (ConnectionId id = 1; id <= kClients; ++id) REQUIRE(world.heard(id) == kNothing);
}

}  // namespace
}  // namespace ddp::rendezvous
