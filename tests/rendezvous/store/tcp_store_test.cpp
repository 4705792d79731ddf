// SPDX-License-Identifier: BSD-3-Clause
// The client with a real server, and with one that a test plays byte by byte.
#include "rendezvous/store/tcp_store.hpp"

#include <catch2/catch.hpp>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <utility>

#include "rendezvous/store/c10d_protocol.hpp"
#include "rendezvous/store/server.hpp"
#include "tests/rendezvous/store/failure_of.hpp"
#include "tests/rendezvous/store/hex.hpp"
#include "tests/rendezvous/store/raw_connection.hpp"
#include "tests/support/process.hpp"

namespace ddp::rendezvous {
namespace {

using namespace std::chrono_literals;
using testing::kDeadline;
constexpr std::size_t kHelloBytes = 6;  // VALIDATE, GETNUMKEYS

// A socket bound to a free port of this machine: refuses connections until it listens.
class Port {
 public:
  Port() : socket_(RawConnection::unconnected()) {
    sockaddr_in address = RawConnection::loopback(0);
    socklen_t size = sizeof address;
    auto* raw = reinterpret_cast<sockaddr*>(&address);
    const int on = 1;
    ::setsockopt(socket_.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (::bind(socket_.fd(), raw, size) != 0 || ::getsockname(socket_.fd(), raw, &size) != 0) std::abort();
    number = ntohs(address.sin_port);
  }
  void listen() { ::listen(socket_.fd(), 8); }
  RawConnection accept() { return RawConnection(::accept4(socket_.fd(), nullptr, nullptr, SOCK_CLOEXEC)); }
  // Accepts a client and tells it that there are no keys.
  RawConnection accept_and_greet() {
    RawConnection client = accept();
    client.receive(kHelloBytes);
    client.send(std::string(8, '\0'));
    return client;
  }
  std::uint16_t number = 0;

 private:
  RawConnection socket_;
};

std::string at(std::uint16_t port) { return "store 127.0.0.1:" + std::to_string(port) + ": "; }

TEST_CASE("tcp store: waits for a server that comes late", "[rendezvous][integration]") {
  Port port;
  auto connecting =
      std::async(std::launch::async, [&] { return TcpStore("127.0.0.1", port.number, kDeadline).add("n", 1); });
  StoreServer server({"127.0.0.1"}, port.number);  // the reserved port does not listen, so the server can bind it
  CHECK(connecting.get() == 1);
}

TEST_CASE("tcp store: gives up at its deadline when no server listens, and says so", "[rendezvous][integration]") {
  const Port port;
  const Failure failure = failure_of([&] { TcpStore("127.0.0.1", port.number, 100ms); });
  CHECK(failure.code == ErrorCode::Timeout);
  CHECK(failure.message ==
        at(port.number) + "no answer in 100 ms: Connection refused (is the agent on node 0, or rank 0, running?)");
}

TEST_CASE("tcp store: a server that accepts and says nothing does not hold it", "[rendezvous][integration]") {
  Port port;
  port.listen();
  const Failure failure = failure_of([&] { TcpStore("127.0.0.1", port.number, 100ms); });
  CHECK(failure.code == ErrorCode::Timeout);
  CHECK_THAT(failure.message, Catch::StartsWith(at(port.number) + "no answer in 100 ms"));
}

TEST_CASE("tcp store: tries again when the server closes during the greeting", "[rendezvous][integration]") {
  Port port;
  port.listen();
  auto connecting = std::async(std::launch::async, [&] { TcpStore("127.0.0.1", port.number, kDeadline); });
  { const RawConnection overrun = port.accept(); }
  RawConnection second = port.accept_and_greet();
  CHECK_NOTHROW(connecting.get());
}

TEST_CASE("tcp store: knows that something else answers", "[rendezvous][integration]") {
  Port port;
  port.listen();
  auto connecting = std::async(std::launch::async,
                               [&] { return failure_of([&] { TcpStore("127.0.0.1", port.number, kDeadline); }); });
  RawConnection web = port.accept();
  web.send("HTTP/1.1 400 Bad Request\r\n");
  CHECK(connecting.get().message == at(port.number) + "what answers there is not a store; is the port right?");
}

TEST_CASE("tcp store: names a host that cannot be resolved", "[rendezvous][integration]") {
  const Failure failure = failure_of([] { TcpStore("no-such-host.invalid", 1, 50ms); });
  CHECK(failure.code == ErrorCode::Timeout);
  CHECK_THAT(failure.message, Catch::Contains("store no-such-host.invalid:1: ") && Catch::Contains("cannot resolve"));
}

TEST_CASE("tcp store: a key that never comes is named, and the connection stays usable", "[rendezvous][integration]") {
  StoreServer server({"127.0.0.1"}, 0);
  TcpStore store("127.0.0.1", server.port(), kDeadline);
  const Failure one = failure_of([&] { store.get("absent", 20ms); });
  CHECK(one.code == ErrorCode::Timeout);
  CHECK(one.message == at(server.port()) + "key \"absent\" not set within 20 ms (is the worker that sets it running?)");
  CHECK_THAT(failure_of([&] { store.wait({"a", "b"}, 0ms); }).message, Catch::Contains("keys \"a\", \"b\" not set"));
  store.set("absent", "v");
  CHECK(store.get("absent") == "v");
  CHECK(store.add("n", 3) == 3);
}

TEST_CASE("tcp store: a release that crosses the cancellation counts", "[rendezvous][integration]") {
  Port port;
  port.listen();
  auto waiting = std::async(std::launch::async, [&] {
    TcpStore store("127.0.0.1", port.number, kDeadline);
    store.wait({"k"}, 20ms);
    return store.check({"k"});
  });
  RawConnection client = port.accept_and_greet();
  CHECK(to_hex(client.receive(19 + 1)) ==
        "06"
        "0100000000000000"
        "0200000000000000"
        "2f6b"
        "0c");
  client.send(from_hex("00 01"));
  CHECK(to_hex(client.receive(19)) ==
        "05"
        "0100000000000000"
        "0200000000000000"
        "2f6b");
  client.send(from_hex("00"));
  CHECK(waiting.get());
}

TEST_CASE("tcp store: an answer that comes after its deadline is not taken for the next one",
          "[rendezvous][integration]") {
  Port port;
  port.listen();
  auto asking = std::async(std::launch::async, [&] {
    TcpStore store("127.0.0.1", port.number, 200ms);
    const Failure failure = failure_of([&] { store.add("n", 1); });
    return std::pair(failure, store.get("k", kDeadline));
  });
  RawConnection client = port.accept_and_greet();
  client.receive(19);                                           // ADD /n 1: no answer until the client
  CHECK(to_hex(client.receive(19)).starts_with("06"));          // has given up and asks something else
  client.send(from_hex("07000000000000") + from_hex("00 00"));  // now both, in two halves
  CHECK(to_hex(client.receive(11)).starts_with("03"));
  client.send(from_hex("0100000000000000 76"));
  const auto [failure, value] = asking.get();
  CHECK(failure.code == ErrorCode::Timeout);
  CHECK_THAT(failure.message, Catch::StartsWith(at(port.number) + "no answer in 200 ms to adding to key \"n\""));
  CHECK(value == "v");
}

TEST_CASE("tcp store: an announced length that no store sends is refused at once, before it is believed",
          "[rendezvous][integration]") {
  struct Row {
    std::string answer;  // its beginning
    std::function<void(TcpStore&)> ask;
    std::size_t request_bytes;
    std::string what;
  };
  const Row row = GENERATE_REF(
      Row{"00 0000000000000010", [](TcpStore& store) { store.get("k"); }, 19, "reading key \"k\""},
      Row{"1100001000000000", [](TcpStore& store) { store.compare_set("k", "", "v"); }, 28,
          "comparing and setting key \"k\""},
      Row{"ffffffffffffffff", [](TcpStore& store) { store.list_keys(); }, 1, "listing its keys"},
      Row{"0100000000000000 ffffffffffffffff", [](TcpStore& store) { store.list_keys(); }, 1, "listing its keys"},
      Row{"0100000000000000 0000000000000080", [](TcpStore& store) { store.queues()->queue_try_pop("q"); }, 11,
          "using queue \"q\""});
  CAPTURE(row.answer);
  Port port;
  port.listen();
  auto asking = std::async(std::launch::async, [&] {
    TcpStore store("127.0.0.1", port.number, kDeadline);
    const Failure failure = failure_of([&] { row.ask(store); });
    return std::pair(failure, failure_of([&] { store.num_keys(); }));
  });
  RawConnection client = port.accept_and_greet();
  client.receive(row.request_bytes);
  client.send(from_hex(row.answer));
  const auto [failure, later] = asking.get();
  CHECK(failure.code == ErrorCode::System);
  CHECK_THAT(failure.message, Catch::StartsWith(at(port.number) + row.what + ": the store announces an answer of "));
  CHECK_THAT(failure.message, Catch::EndsWith(" (is another program at this port?)"));
  client.receive(100);  // a request that it sent before
  CHECK(client.has_ended());
  CHECK_THAT(later.message, Catch::Contains("counting its keys: the store announces an answer of "));
}

TEST_CASE("tcp store: a store that sends without end what nobody asked for is refused", "[rendezvous][integration]") {
  Port port;
  port.listen();
  auto setting = std::async(std::launch::async, [&] {
    TcpStore store("127.0.0.1", port.number, kDeadline);
    return failure_of([&] {
      while (true) store.set("k", std::string(kMaxValueBytes, 'v'));  // which is not read, so it stays under way
    });
  });
  RawConnection client = port.accept_and_greet();
  const std::string junk(1 << 20, 'j');
  std::size_t sent = 0;
  while (client.send(junk)) sent += junk.size();
  CHECK(setting.get().message ==
        at(port.number) + "setting key \"k\": the store sends bytes that no request asked for; it may send " +
            std::to_string(kMaxReplyBytes + 16) + " (is another program at this port?)");
  CHECK(sent < 2 * kMaxReplyBytes);
}

TEST_CASE("tcp store: a lost connection is an error that names key and cause, now and later",
          "[rendezvous][integration]") {
  StoreServer server({"127.0.0.1"}, 0);
  TcpStore store("127.0.0.1", server.port(), kDeadline);
  server.reset();
  const std::string cause = "the store closed the connection (did the job end or restart?)";
  const Failure now = failure_of([&] { store.get("k"); });
  CHECK(now.code == ErrorCode::System);
  CHECK(now.message == at(server.port()) + "reading key \"k\": " + cause);
  CHECK(failure_of([&] { store.set("j", ""); }).message == at(server.port()) + "setting key \"j\": " + cause);
}

TEST_CASE("tcp store: a request that the server would not accept is refused before it is sent",
          "[rendezvous][integration]") {
  StoreServer server({"127.0.0.1"}, 0);
  TcpStore store("127.0.0.1", server.port(), kDeadline);
  const std::string value(8 * 1024 * 1024, 'v');
  CHECK(failure_of([&] { store.set(std::string(8192, 'k'), ""); }).code == ErrorCode::InvalidArgument);
  CHECK(failure_of([&] { store.set("k", value + "v"); }).code == ErrorCode::InvalidArgument);
  store.set(std::string(8191, 'k'), value);
  CHECK(store.get(std::string(8191, 'k')) == value);
}

TEST_CASE("tcp store: tells which of this machine's addresses reaches the store", "[rendezvous][integration]") {
  StoreServer server({"127.0.0.1"}, 0);
  CHECK(TcpStore("localhost", server.port(), kDeadline).local_address() == "127.0.0.1");
}

TEST_CASE("tcp store: at a deadline a call that waits for another thread's gives up too", "[rendezvous][integration]") {
  Port port;
  port.listen();
  auto connecting =
      std::async(std::launch::async, [&] { return std::make_unique<TcpStore>("127.0.0.1", port.number, kDeadline); });
  RawConnection client = port.accept_and_greet();
  const auto store = connecting.get();
  auto waiting = std::async(std::launch::async, [&] { store->wait({"k"}, kDeadline); });
  client.receive(19);  // its WAIT has come: the connection is busy
  store->set_timeout(20ms);
  const Failure failure = failure_of([&] { store->num_keys(); });
  CHECK(failure.code == ErrorCode::Timeout);
  CHECK(failure.message ==
        at(port.number) + "counting its keys: another thread's call kept the connection busy for 20 ms");
  client.send(from_hex("00"));
  CHECK_NOTHROW(waiting.get());
}

TEST_CASE("tcp store: a server without queues is distinguished from a broken one", "[rendezvous][integration]") {
  Port port;
  port.listen();
  auto pushing = std::async(std::launch::async, [&] {
    TcpStore store("127.0.0.1", port.number, kDeadline);
    return failure_of([&] { store.queue_push("q", "v"); });
  });
  {
    RawConnection client = port.accept_and_greet();
    client.receive(11);
  }
  CHECK(pushing.get().message ==
        at(port.number) +
            "using queue \"q\": the store closed the connection (PyTorch's server has queues from 2.8 on, "
            "and never with use_libuv=False)");
}

TEST_CASE("tcp store: a counter that holds no number is the likely cause when adding ends the connection",
          "[rendezvous][integration]") {
  StoreServer server({"127.0.0.1"}, 0);
  TcpStore store("127.0.0.1", server.port(), kDeadline);
  store.set("n", "abc");
  CHECK(failure_of([&] { store.add("n", 1); }).message ==
        at(server.port()) +
            "adding to key \"n\": the store closed the connection (is its value a number? did the job "
            "end or restart?)");
}

TEST_CASE("tcp store: two poppers of one queue get an element each", "[rendezvous][integration]") {
  StoreServer server({"127.0.0.1"}, 0);
  TcpStore store("127.0.0.1", server.port(), kDeadline);
  const auto pop = [&] { return TcpStore("127.0.0.1", server.port(), kDeadline).queue_pop("q", kDeadline); };
  auto first = std::async(std::launch::async, pop);
  auto second = std::async(std::launch::async, pop);
  store.queue_push("q", "a");
  store.queue_push("q", "b");
  const std::string popped = first.get() + second.get();
  CHECK((popped == "ab" || popped == "ba"));
}

TEST_CASE("tcp store: a key of a queue's name does not end the wait for an element", "[rendezvous][integration]") {
  StoreServer server({"127.0.0.1"}, 0);
  TcpStore store("127.0.0.1", server.port(), kDeadline);
  store.set("q", "a key");
  const Failure failure = failure_of([&] { store.queue_pop("q", 50ms); });
  CHECK(failure.message ==
        at(server.port()) + "queue \"q\" still empty after 50 ms (is the worker that pushes to it running?)");
}

TEST_CASE("tcp store: a barrier that not all reach names itself and how long it waited", "[rendezvous][integration]") {
  StoreServer server({"127.0.0.1"}, 0);
  TcpStore store("127.0.0.1", server.port(), kDeadline);
  const Failure failure = failure_of([&] { store.barrier("b", 2, 20ms); });
  CHECK(failure.code == ErrorCode::Timeout);
  CHECK(failure.message ==
        at(server.port()) + "barrier \"b\" of 2 not complete within 20 ms (are all workers running?)");
}

TEST_CASE("tcp store: an interrupted wait ends at once, and so does every later call", "[rendezvous][integration]") {
  StoreServer server({"127.0.0.1"}, 0);
  TcpStore store("127.0.0.1", server.port(), kDeadline);
  auto waiting = std::async(std::launch::async, [&] { return failure_of([&] { store.get("never", 1h); }); });
  while (server.statistics().requests[static_cast<std::size_t>(Op::Wait)] == 0) std::this_thread::yield();
  const auto before = std::chrono::steady_clock::now();
  store.interrupt();
  const Failure failure = waiting.get();
  CHECK(std::chrono::steady_clock::now() - before < kDeadline);
  CHECK(failure.code == ErrorCode::System);
  CHECK(failure.message == at(server.port()) + "reading key \"never\": interrupted by this process");
  store.interrupt();
  CHECK(failure_of([&] { store.set("k", "v"); }).message ==
        at(server.port()) + "setting key \"k\": interrupted by this process");
}

TEST_CASE("tcp store: is counted in where PyTorch's servers wait for their workers", "[rendezvous][integration]") {
  StoreServer server({"127.0.0.1"}, 0);
  TcpStore store("127.0.0.1", server.port(), kDeadline);
  store.count_in();
  CHECK(store.num_keys() == 1);
  CHECK(store.list_keys().empty());
}

}  // namespace
}  // namespace ddp::rendezvous
