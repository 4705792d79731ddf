// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/store/server.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <csignal>
#include <fstream>
#include <future>
#include <mutex>
#include <thread>

#include "rendezvous/base/error.hpp"
#include "rendezvous/net/listen.hpp"
#include "rendezvous/store/tcp_store.hpp"
#include "tests/rendezvous/store/hex.hpp"
#include "tests/rendezvous/store/raw_connection.hpp"
#include "tests/rendezvous/store/speakers.hpp"
#include "tests/support/other_user.hpp"
#include "tests/support/process.hpp"

namespace ddp::rendezvous {
namespace {

using namespace std::chrono_literals;
using testing::kDeadline;

const std::string kHello = from_hex("00 cef7853c 0d 34120000");
const std::string kHelloAnswer = from_hex("34120000");

TcpStore client(const StoreServer& server) { return {"127.0.0.1", server.port(), kDeadline}; }

RawConnection greeted(const StoreServer& server) {
  RawConnection raw = RawConnection::to(server.port());
  REQUIRE(raw.send(kHello));
  REQUIRE(raw.receive(kHelloAnswer.size()) == kHelloAnswer);
  return raw;
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  DIR* open = ::opendir(directory.c_str());
  while (const dirent* entry = ::readdir(open)) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  ::closedir(open);
  return names;
}

TEST_CASE("store server: what one client sets another gets", "[rendezvous][integration]") {
  StoreServer server({"127.0.0.1"}, 0);
  TcpStore a = client(server);
  TcpStore b = client(server);
  const std::string binary("\0\xff\n", 3);
  a.set("k", binary);
  CHECK(b.get("k") == binary);
  CHECK(b.add("n", 5) == 5);
  CHECK(a.add("n", -7) == -2);
  CHECK(a.compare_set("c", "", "first") == "first");
  CHECK(b.compare_set("c", "other", "x") == "first");
  CHECK(b.check({"k", "n"}));
  CHECK_FALSE(b.check({"k", "none"}));
  CHECK(b.delete_key("k"));
  CHECK_FALSE(a.delete_key("k"));
}

TEST_CASE("store server: a client waits until another sets the key", "[rendezvous][integration]") {
  StoreServer server({"127.0.0.1"}, 0);
  auto waiting = std::async(std::launch::async, [&server] { return client(server).get("late"); });
  client(server).set("late", "v");
  CHECK(waiting.get() == "v");
}

TEST_CASE("store server: its owner sets keys too", "[rendezvous][integration]") {
  StoreServer server({"127.0.0.1"}, 0);
  TcpStore waiting = client(server);
  server.set("/ddprun/failure", "rank 5 on node b was killed by SIGKILL");
  CHECK(waiting.get("ddprun/failure") == "rank 5 on node b was killed by SIGKILL");
}

TEST_CASE("store server: many clients at once lose nothing", "[rendezvous][integration]") {
  StoreServer server({"127.0.0.1"}, 0);
  constexpr int kClients = 16;
  constexpr int kAdds = 200;
  std::vector<std::future<std::string>> running;
  for (int rank = 0; rank < kClients; ++rank) {
    running.push_back(std::async(std::launch::async, [&server, rank] {
      TcpStore store = client(server);
      for (int i = 0; i < kAdds; ++i) store.add("count", 1);
      store.set("rank" + std::to_string(rank), std::to_string(rank));
      return store.get("rank" + std::to_string((rank + 1) % kClients));
    }));
  }
  for (int rank = 0; rank < kClients; ++rank) {
    CHECK(running[static_cast<std::size_t>(rank)].get() == std::to_string((rank + 1) % kClients));
  }
  CHECK(client(server).add("count", 0) == kClients * kAdds);
}

TEST_CASE("store server: a reset closes every connection and empties the store", "[rendezvous][integration]") {
  StoreServer server({"127.0.0.1"}, 0);
  TcpStore old = client(server);
  old.set("k", "v");
  RawConnection waiting = greeted(server);
  REQUIRE(waiting.send(from_hex("06 0100000000000000 0200000000000000 2f78")));
  RawConnection silent = RawConnection::to(server.port());
  REQUIRE(old.check({"k"}));

  server.reset();
  CHECK(waiting.ended());
  CHECK(silent.ended());
  CHECK_THAT(message_of([&] { old.check({"k"}); }), Catch::Contains("the store closed the connection"));
  TcpStore fresh = client(server);
  CHECK_FALSE(fresh.check({"k"}));
  fresh.set("x", "1");
  CHECK(fresh.get("x") == "1");
}

TEST_CASE("store server: ends at once while clients are connected", "[rendezvous][integration]") {
  auto server = std::make_unique<StoreServer>(std::vector<std::string>{"127.0.0.1"}, std::uint16_t{0});
  RawConnection waiting = greeted(*server);
  REQUIRE(waiting.send(from_hex("06 0100000000000000 0200000000000000 2f78")));
  RawConnection silent = RawConnection::to(server->port());
  server.reset();
  CHECK(waiting.ended());
  CHECK(silent.ended());
}

TEST_CASE("store server: half a request does not disturb other clients", "[rendezvous][integration]") {
  StoreServer server({"127.0.0.1"}, 0);
  RawConnection half = greeted(server);
  REQUIRE(half.send(from_hex("01 0200000000000000 2f")));
  TcpStore other = client(server);
  other.set("other", "v");
  CHECK(other.get("other") == "v");
  REQUIRE(half.send(from_hex("6b 0100000000000000 76")));
  CHECK(other.get("k") == "v");
}

TEST_CASE("store server: nonsense costs its sender the connection, and no other client", "[rendezvous][integration]") {
  StoreServer server({"127.0.0.1"}, 0);
  TcpStore other = client(server);
  RawConnection web = RawConnection::to(server.port());
  REQUIRE(web.send("GET / HTTP/1.1\r\n\r\n"));
  CHECK(web.ended());
  RawConnection text_counter = greeted(server);
  other.set("text", "abc");
  REQUIRE(other.check({"text"}));
  REQUIRE(text_counter.send(from_hex("04 0500000000000000 2f74657874 0100000000000000")));
  CHECK(text_counter.ended());
  CHECK(other.get("text") == "abc");
}

TEST_CASE("store server: half of a first request's first bytes has a deadline, silence has none",
          "[rendezvous][integration]") {
  StoreServer::Options impatient;
  impatient.preface_limit = std::chrono::milliseconds(20);
  StoreServer server({"127.0.0.1"}, 0, impatient);
  RawConnection silent = RawConnection::to(server.port());
  RawConnection half = RawConnection::to(server.port());
  REQUIRE(half.send(from_hex("00 ce f7")));
  CHECK(half.ended());
  CHECK(server.statistics().dropped == 1);
  REQUIRE(silent.send(kHello));
  CHECK(to_hex(silent.receive(4)) == "34120000");
}

TEST_CASE("store server: why a client was closed is logged once a second, and counted", "[rendezvous][integration]") {
  std::mutex mutex;
  std::vector<std::string> lines;
  StoreServer::Options talkative;
  talkative.log = [&](const std::string& line) {
    const std::lock_guard lock(mutex);
    lines.push_back(line);
  };
  StoreServer server({"127.0.0.1"}, 0, talkative);
  const auto begun = std::chrono::steady_clock::now();
  for (int i = 0; i < 50; ++i) {
    RawConnection raw = RawConnection::to(server.port());
    REQUIRE(raw.send("GET / HTTP/1.1\r\n\r\n"));
    CHECK(raw.ended());
  }
  CHECK(server.statistics().dropped == 50);
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(std::chrono::steady_clock::now() - begun).count();
  const std::lock_guard lock(mutex);
  REQUIRE_FALSE(lines.empty());
  CHECK(lines.size() <= static_cast<std::size_t>(seconds));
  CHECK_THAT(lines.front(), Catch::StartsWith("store: closed 127.0.0.1:"));
  CHECK_THAT(lines.front(), Catch::EndsWith(": unknown operation 71"));
}

TEST_CASE("store server: a client that would fill it loses the connection, others keep their data",
          "[rendezvous][integration]") {
  StoreServer::Options small;
  small.max_bytes = 1 << 20;
  StoreServer server({"127.0.0.1"}, 0, small);
  TcpStore other = client(server);
  other.set("k", "v");
  REQUIRE(other.check({"k"}));

  RawConnection greedy = greeted(server);
  std::string set;
  append_request(set, {.op = Op::Set, .keys = {"/large"}, .values = {std::string(1 << 20, 'v')}});
  greedy.send(set);
  CHECK(greedy.ended());
  CHECK(server.statistics().size.bytes < small.max_bytes);
  CHECK(other.get("k") == "v");

  // Incomplete requests are limited too, all together.
  std::vector<RawConnection> halves;
  for (int i = 0; i < 8; ++i) {
    halves.push_back(greeted(server));
    halves.back().send(std::string_view(set).substr(0, set.size() / 4));
  }
  std::size_t ended = 0;
  while (ended == 0) {
    for (RawConnection& half : halves) ended += half.has_ended();
  }
  CHECK(server.statistics().held_bytes <= small.max_bytes);
  CHECK(other.get("k") == "v");
}

TEST_CASE("store server: counts what it does", "[rendezvous][integration]") {
  StoreServer server({"127.0.0.1"}, 0);
  {
    TcpStore store = client(server);
    store.set("k", "value");
    CHECK(store.add("n", 2) == 2);
    const StoreStatistics during = server.statistics();
    CHECK(during.open == 1);
    CHECK(during.requests[static_cast<std::size_t>(Op::Set)] == 1);
    CHECK(during.requests[static_cast<std::size_t>(Op::Add)] == 1);
    CHECK(during.size.keys == 2);
    CHECK(during.size.bytes >= 2 + 5 + 2 + 1);
    CHECK(during.bytes_in > 0);
    CHECK(during.bytes_out >= 8);
  }
  while (server.statistics().open > 0) {
  }
  CHECK(server.statistics().accepted == 1);
  CHECK(server.statistics().dropped == 0);
}

TEST_CASE("store server: what came before the nonsense is answered", "[rendezvous][integration]") {
  StoreServer server({"127.0.0.1"}, 0);
  RawConnection raw = RawConnection::to(server.port());
  REQUIRE(raw.send(kHello + from_hex("07 63")));
  CHECK(to_hex(raw.receive(12)) ==
        "34120000"
        "0000000000000000");
  CHECK(raw.ended());
}

TEST_CASE("store server: a client that does not read delays no other, and gets every answer",
          "[rendezvous][integration]") {
  StoreServer server({"127.0.0.1"}, 0);
  TcpStore other = client(server);
  const std::string value(1024 * 1024, 'v');
  other.set("large", value);
  REQUIRE(other.check({"large"}));  // the answer shows that the value is there
  RawConnection slow = greeted(server);
  constexpr std::size_t kGets = 64;
  std::string gets;
  for (std::size_t i = 0; i < kGets; ++i) append_request(gets, {.op = Op::Get, .keys = {"/large"}});
  REQUIRE(slow.send(gets));
  CHECK(other.get("large") == value);
  for (std::size_t i = 0; i < kGets; ++i) {
    REQUIRE(slow.receive(8) == from_hex("0000100000000000"));
    REQUIRE(slow.receive(value.size()) == value);
  }
  REQUIRE(slow.send(from_hex("07")));
  CHECK(slow.receive(8) == from_hex("0100000000000000"));
}

TEST_CASE("store server: many small requests in one go are answered in order", "[rendezvous][integration]") {
  StoreServer server({"127.0.0.1"}, 0);
  RawConnection raw = greeted(server);
  std::string requests;
  std::string answers;
  for (int i = 1; i <= 5000; ++i) {
    append_request(requests, {.op = Op::Add, .keys = {"/n"}, .number = 1});
    append_i64(answers, i);
  }
  auto sending = std::async(std::launch::async, [&] { return raw.send(requests); });
  CHECK(raw.receive(answers.size()) == answers);
  CHECK(sending.get());
}

TEST_CASE("store server: PyTorch 1.9 deletes a key, and its silent second connection stays",
          "[rendezvous][integration]") {
  StoreServer server({"127.0.0.1"}, 0);
  RawConnection silent = RawConnection::to(server.port());
  RawConnection main = RawConnection::to(server.port());
  REQUIRE(main.send(from_hex("00 0200000000000000 2f6b 0100000000000000 76")));
  REQUIRE(main.send(from_hex("08 0200000000000000 2f6b")));
  CHECK(to_hex(main.receive(8)) == "0100000000000000");
  REQUIRE(silent.send(from_hex("07 0200000000000000 2f6b")));
  CHECK(to_hex(silent.receive(1)) == "03");
  REQUIRE(main.send(from_hex("00 0200000000000000 2f6b 0100000000000000 77")));
  CHECK(to_hex(silent.receive(28)) ==
        "01"
        "02000000000000002f6b"
        "0000000000000000"
        "010000000000000077");
}

// A server that keeps the agents' links it hands over.
struct FrontDoor {
  struct Link {
    RawConnection socket;
    std::string first_bytes;
  };
  std::mutex mutex;
  std::vector<Link> links;
  StoreServer server{
      {"127.0.0.1", "127.0.0.2"}, 0, {.on_agent_link = [this](Descriptor socket, std::string first_bytes) {
        const std::lock_guard lock(mutex);
        links.push_back({RawConnection(socket.release()), std::move(first_bytes)});
      }}};
};

TEST_CASE("store server: an agent's link is handed over, and forgotten", "[rendezvous][integration]") {
  FrontDoor door;
  {
    RawConnection agent = RawConnection::to(door.server.port());
    REQUIRE(agent.send(from_hex("dd 64647072756e 01")));
    while (door.server.statistics().agent_links == 0) {
    }
    CHECK(door.server.statistics().open == 0);
    CHECK(door.server.statistics().dropped == 0);
    door.server.reset();  // the link is none of its connections any more
    const std::lock_guard lock(door.mutex);
    REQUIRE(door.links.size() == 1);
    CHECK(to_hex(door.links[0].first_bytes) == "dd64647072756e01");
    const int fd = door.links[0].socket.fd();
    CHECK((::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    CHECK((::fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
    REQUIRE(agent.send("more"));
    CHECK(door.links[0].socket.receive(4) == "more");
    REQUIRE(door.links[0].socket.send("answer"));
    CHECK(agent.receive(6) == "answer");
  }
  TcpStore store = client(door.server);
  store.set("k", "v");
  CHECK(store.get("k") == "v");
}

TEST_CASE("store server: only an agent's link is taken for one, also when bytes come one by one",
          "[rendezvous][integration]") {
  FrontDoor door;
  std::uint64_t sent = 0;
  std::vector<RawConnection> connections;
  for (const Speaker& speaker : kSpeakers) {
    INFO(speaker.name);
    const std::string bytes = from_hex(speaker.first_bytes);
    connections.push_back(RawConnection::to(door.server.port()));
    const std::uint64_t links_before = door.server.statistics().agent_links;
    for (const char byte : bytes.substr(0, speaker.decided_by)) {
      REQUIRE(connections.back().send({&byte, 1}));
      ++sent;
      while (door.server.statistics().bytes_in < sent) {
      }
    }
    const bool is_agent = bytes.front() == kAgentLinkByte;
    CHECK(door.server.statistics().agent_links == links_before + (is_agent ? 1 : 0));
    const bool is_nonsense = speaker.taken_for.starts_with("unknown") || speaker.taken_for.starts_with("a key of");
    if (is_agent) {
      CHECK_FALSE(connections.back().has_ended());
    } else if (is_nonsense) {
      CHECK(connections.back().ended());
    }
  }
}

TEST_CASE("store server: of all first bytes only one is an agent's", "[rendezvous][integration]") {
  FrontDoor door;
  std::vector<RawConnection> connections;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const char first = static_cast<char>(byte);
    connections.push_back(RawConnection::to(door.server.port()));
    REQUIRE(connections.back().send({&first, 1}));
    while (door.server.statistics().bytes_in <= byte) {
    }
    CHECK(door.server.statistics().agent_links == (byte >= 0xdd ? 1 : 0));
  }
}

TEST_CASE("store server: a reset hands over links whose first byte is there", "[rendezvous][integration]") {
  FrontDoor door;
  std::vector<RawConnection> agents;
  for (int i = 0; i < 100; ++i) {
    agents.push_back(RawConnection::to(door.server.port()));
    REQUIRE(agents.back().send("\xddmore"));
    if (i % 10 == 0) door.server.reset();
  }
  door.server.reset();
  CHECK(door.server.statistics().agent_links == 100);
  const std::lock_guard lock(door.mutex);
  REQUIRE(door.links.size() == 100);
  for (FrontDoor::Link& link : door.links) {
    CHECK(link.first_bytes + link.socket.receive(5 - link.first_bytes.size()) == "\xddmore");
  }
}

TEST_CASE("store server: an agent's link is nonsense if no function takes it over", "[rendezvous][integration]") {
  StoreServer server({"127.0.0.1"}, 0);
  RawConnection agent = RawConnection::to(server.port());
  REQUIRE(agent.send(from_hex("dd 64647072756e 01")));
  CHECK(agent.ended());
  CHECK(server.statistics().dropped == 1);
}

// Returns a connection from 127.0.0.1, or another of this machine's many loopback addresses, to 127.0.0.2.
RawConnection from(const std::string& address, const StoreServer& server) {
  RawConnection raw = RawConnection::unconnected();
  sockaddr_in own = RawConnection::loopback(0);
  REQUIRE(::inet_pton(AF_INET, address.c_str(), &own.sin_addr) == 1);
  REQUIRE(::bind(raw.fd(), reinterpret_cast<const sockaddr*>(&own), sizeof own) == 0);
  sockaddr_in to = RawConnection::loopback(server.port());
  REQUIRE(::inet_pton(AF_INET, "127.0.0.2", &to.sin_addr) == 1);
  REQUIRE(::connect(raw.fd(), reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
  return raw;
}

bool is_admitted(const std::string& address, const StoreServer& server) {
  RawConnection raw = from(address, server);
  REQUIRE(raw.send(kHello));
  return raw.receive(kHelloAnswer.size()) == kHelloAnswer;
}

TEST_CASE("store server: only a round's addresses are admitted", "[rendezvous][integration]") {
  FrontDoor door;
  StoreServer& server = door.server;
  CHECK(is_admitted("127.0.0.9", server));  // without a call of admit_only() all are admitted

  RawConnection silent = from("127.0.0.9", server);
  RawConnection known = from("127.0.0.9", server);
  REQUIRE(known.send(kHello));
  REQUIRE(known.receive(kHelloAnswer.size()) == kHelloAnswer);
  server.admit_only({"::ffff:127.0.0.5", "127.0.0.06", "not an address", "fd00::7"});
  CHECK(is_admitted("127.0.0.5", server));
  CHECK_FALSE(is_admitted("127.0.0.9", server));
  CHECK_FALSE(is_admitted("127.0.0.1", server));
  CHECK_FALSE(is_admitted("127.0.0.2", server));  // from and to one address, but 127.0.0.1 is not listed

  CHECK_FALSE(silent.has_ended());  // it has sent nothing
  REQUIRE(silent.send(kHello));
  CHECK(silent.ended());
  REQUIRE(known.send(from_hex("0d 34120000")));  // it was admitted before
  CHECK(known.receive(4) == kHelloAnswer);

  server.admit_only({"127.0.0.1"});
  CHECK(is_admitted("127.0.0.1", server));
  CHECK(is_admitted("127.0.0.2", server));  // from the address it connects to, so it is on this machine
  CHECK_FALSE(is_admitted("127.0.0.5", server));

  server.admit_only({});
  CHECK_FALSE(is_admitted("127.0.0.1", server));
  server.reset();  // does not change who is admitted
  CHECK_FALSE(is_admitted("127.0.0.1", server));

  RawConnection agent = from("127.0.0.9", server);  // a new node is in no round yet
  REQUIRE(agent.send("\xdd"));
  while (server.statistics().agent_links == 0) {
  }
}

TEST_CASE("store server: a client that is not admitted is logged with its address", "[rendezvous][integration]") {
  std::promise<std::string> line;
  StoreServer server({"127.0.0.2"}, 0, {.log = [&line](const std::string& text) { line.set_value(text); }});
  server.admit_only({"127.0.0.1"});
  CHECK_FALSE(is_admitted("127.0.0.9", server));
  const std::string said = line.get_future().get();
  CHECK_THAT(said, Catch::StartsWith("store: closed 127.0.0.9:"));
  CHECK_THAT(said, Catch::EndsWith(": 127.0.0.9 is not an address of this round's nodes"));
}

TEST_CASE("store server: listens on every address at one port", "[rendezvous][integration]") {
  StoreServer server({"127.0.0.1", "127.0.0.2", "::1"}, 0);  // ::1 is left out where there is no IPv6
  TcpStore("127.0.0.1", server.port(), kDeadline).set("k", "v");
  TcpStore second("127.0.0.2", server.port(), kDeadline);
  CHECK(second.get("k") == "v");
  CHECK(second.local_address() == "127.0.0.1");
}

TEST_CASE("store server: a taken port is named, with who has it and what to do", "[rendezvous][integration]") {
  StoreServer server({"127.0.0.1"}, 0);
  const std::string port = std::to_string(server.port());
  const std::string message = message_of([&] { StoreServer second({"127.0.0.1"}, server.port()); });
  CHECK_THAT(message, Catch::StartsWith("cannot listen on 127.0.0.1:" + port + ": port " + port + " is taken by pid " +
                                        std::to_string(::getpid())));
  CHECK_THAT(message, Catch::EndsWith("choose another port"));
}

TEST_CASE("store server: an address that is not ours, or not numeric, is refused by name",
          "[rendezvous][integration]") {
  CHECK_THAT(message_of([] { StoreServer server({"192.0.2.1"}, 0); }),
             Catch::StartsWith("cannot listen on 192.0.2.1:0: this machine does not have that address"));
  CHECK(message_of([] { StoreServer server({"localhost"}, 0); }) ==
        "cannot listen on \"localhost\": not a numeric address");
  CHECK(message_of([] { StoreServer server({}, 0); }) == "cannot listen: no address given");
}

TEST_CASE("store server: nothing it opens is inherited by a program started meanwhile", "[rendezvous][integration]") {
  StoreServer server({"127.0.0.1"}, 0);
  RawConnection raw = greeted(server);
  int sockets = 0;
  for (const std::string& name : names_in("/proc/self/fd")) {
    char target[64] = {};
    if (::readlink(("/proc/self/fd/" + name).c_str(), target, sizeof target - 1) <= 0) continue;
    const std::string what = target;
    const bool loop = what.starts_with("anon_inode:[event") || what == "anon_inode:[timerfd]";
    if (!loop && !what.starts_with("socket:")) continue;
    sockets += loop ? 0 : 1;
    INFO(name << " is " << what);
    CHECK((::fcntl(std::stoi(name), F_GETFD) & FD_CLOEXEC) != 0);
  }
  CHECK(sockets >= 3);  // the listener and both ends
}

TEST_CASE("store server: its thread takes no signals", "[rendezvous][integration]") {
  StoreServer server({"127.0.0.1"}, 0);
  RawConnection raw = greeted(server);  // so the thread runs and has its name
  int threads = 0;
  for (const std::string& id : names_in("/proc/self/task")) {
    std::ifstream status("/proc/self/task/" + id + "/status");
    bool ours = false;
    for (std::string line; std::getline(status, line);) {
      if (line == "Name:\tddprun-store") ours = true;
      if (!ours || !line.starts_with("SigBlk:")) continue;
      ++threads;
      const auto blocked = std::stoull(line.substr(8), nullptr, 16);
      for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD, SIGUSR1, SIGPIPE}) {
        CHECK((blocked >> (signal - 1) & 1) == 1);
      }
    }
  }
  CHECK(threads == 1);
}

TEST_CASE("store server: without file descriptors it goes on serving, and accepts clients when some are free",
          "[rendezvous][integration]") {
  StoreServer server({"127.0.0.1"}, 0);
  TcpStore connected = client(server);
  RawConnection late = RawConnection::unconnected();

  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const rlimit low{std::min<rlim_t>(before.rlim_cur, 200), before.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &low);
  std::vector<int> fillers;
  for (int fd = 0; (fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;) fillers.push_back(fd);

  const bool reached_backlog = late.connect(server.port()) && late.send(kHello);
  std::int64_t served = 0;
  for (int i = 0; i < 100; ++i) served = connected.add("n", 1);
  for (const int fd : fillers) ::close(fd);
  ::setrlimit(RLIMIT_NOFILE, &before);

  CHECK(reached_backlog);
  CHECK(served == 100);
  CHECK(late.receive(kHelloAnswer.size()) == kHelloAnswer);
}

// Makes this thread, and those that it starts, fail to open sockets of netlink, and files.
void forbid_to_ask_who_connects() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 3, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[0])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_NETLINK, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {std::size(filter), filter};
  REQUIRE(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  REQUIRE(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

TEST_CASE("store server: where nothing says who connects, it says so once, and addresses decide",
          "[rendezvous][integration]") {
  std::mutex mutex;
  std::vector<std::string> lines;
  std::unique_ptr<StoreServer> server;
  std::thread([&] {
    forbid_to_ask_who_connects();
    server = std::make_unique<StoreServer>(std::vector<std::string>{"127.0.0.1"}, std::uint16_t{0},
                                           StoreServer::Options{.log = [&](const std::string& line) {
                                             const std::lock_guard lock(mutex);
                                             lines.push_back(line);
                                           }});
  }).join();
  for (int i = 1; i <= 3; ++i) CHECK(client(*server).add("n", 1) == i);
  CHECK(server->statistics().by_address == 3);
  server->admit_only({});
  RawConnection refused = RawConnection::to(server->port());
  REQUIRE(refused.send(kHello));
  CHECK(refused.ended());
  server.reset();
  REQUIRE(lines.size() == 2);
  CHECK(lines[0] ==
        "store: cannot tell which user of this machine connects: neither NETLINK_SOCK_DIAG nor /proc/net/tcp shows "
        "sockets here; all users of this machine are admitted");
  CHECK_THAT(lines[1], Catch::EndsWith("127.0.0.1 is not an address of this round's nodes"));
}

TEST_CASE("store server: connections of other users are refused and counted, also those it finds at a reset",
          "[rendezvous][integration]") {
  FrontDoor door;
  std::vector<RawConnection> others;
  testing::as_other_user([&] {
    for (int i = 0; i < 10; ++i) {
      others.push_back(RawConnection::to(door.server.port()));
      others.back().send("\xdd");  // may fail: it may be refused already
      if (i % 3 == 0) door.server.reset();
    }
  });
  for (RawConnection& other : others) CHECK(other.ended());
  const StoreStatistics now = door.server.statistics();
  CHECK(now.other_users == 10);
  CHECK(now.dropped == 10);
  CHECK(now.agent_links == 0);
  CHECK(now.open == 0);
}

TEST_CASE("store server: a client that sends and goes before it is seen is refused, one that only looks is not counted",
          "[rendezvous][integration]") {
  std::promise<void> seen, go;
  std::atomic<bool> is_first = true;
  // The log is called on the server's thread, so nothing is accepted meanwhile.
  StoreServer::Options options;
  options.log = [&](const std::string&) {
    if (!is_first.exchange(false)) return;
    seen.set_value();
    go.get_future().wait();
  };
  StoreServer busy({"127.0.0.1"}, 0, options);
  RawConnection nonsense = RawConnection::to(busy.port());
  REQUIRE(nonsense.send("GET / HTTP/1.1\r\n"));
  seen.get_future().wait();
  RawConnection::to(busy.port());
  std::string set(1, '\x01');
  append_bytes(set, "/k");
  append_bytes(set, "v");
  REQUIRE(RawConnection::to(busy.port()).send(kHello + set));
  go.set_value();
  CHECK_FALSE(client(busy).check({"k"}));
  CHECK(busy.statistics().other_users == 1);
  CHECK(busy.statistics().dropped == 2);
}

// Lowers the limit of open files while it exists.
class FewFiles {
 public:
  explicit FewFiles(rlim_t files) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit low{std::min(before_.rlim_cur, files), before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &low);
  }
  ~FewFiles() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  FewFiles(const FewFiles&) = delete;
  FewFiles& operator=(const FewFiles&) = delete;

 private:
  rlimit before_{};
};

TEST_CASE("store server: when files are scarce, it closes silent connections and half requests for new clients",
          "[rendezvous][integration]") {
  const FewFiles few(300);
  std::mutex mutex;
  std::vector<std::string> lines;
  const std::string whose = GENERATE("a stranger's", "anybody's", "the own user's");
  INFO("the silent connections are " << whose);
  StoreServer::Options options;
  options.any_user = whose != "the own user's";
  if (whose == "the own user's") options.preface_limit = 0ms;  // they have had time to speak
  options.log = [&](const std::string& line) {
    const std::lock_guard lock(mutex);
    lines.push_back(line);
  };
  StoreServer server({"127.0.0.1", "127.0.0.2"}, 0, options);
  if (whose == "a stranger's") server.admit_only({"127.0.0.1", "127.0.0.5"});

  // As PyTorch 1.9 – 2.0 do it: each worker has a connection on which it speaks, and one that is silent.
  std::vector<RawConnection> speaking, quiet;
  for (int i = 0; i < 10; ++i) {
    quiet.push_back(from("127.0.0.5", server));
    speaking.push_back(from("127.0.0.5", server));
    REQUIRE(speaking.back().send(kHello));
    REQUIRE(speaking.back().receive(kHelloAnswer.size()) == kHelloAnswer);
  }
  // The test's ends take as many descriptors as the server's.
  std::vector<RawConnection> strangers;
  while (server.statistics().silent_closed == 0) {
    strangers.push_back(from("127.0.0.9", server));
    // Half a SET of PyTorch 1.9: its length lacks a byte. From strangers, nothing is taken.
    if (whose == "anybody's") REQUIRE(strangers.back().send(from_hex("00 07000000000000")));
    REQUIRE(strangers.size() < 200);
  }
  CHECK(client(server).add("n", 1) == 1);

  CHECK(strangers.front().ended());
  CHECK_FALSE(strangers.back().has_ended());
  for (RawConnection& connection : quiet) CHECK_FALSE(connection.has_ended());
  for (RawConnection& connection : speaking) {
    REQUIRE(connection.send(from_hex("0d 34120000")));
    CHECK(connection.receive(4) == kHelloAnswer);
  }
  const std::lock_guard lock(mutex);
  REQUIRE(!lines.empty());
  CHECK_THAT(lines.front(), Catch::StartsWith("store: closed 127.0.0.9:"));
  CHECK_THAT(lines.front(), Catch::Contains("it was silent, and its place was needed"));
}

TEST_CASE("store server: when files are scarce and nobody is silent, a line says why clients wait",
          "[rendezvous][integration]") {
  const FewFiles few(300);
  std::promise<std::string> line;
  StoreServer server({"127.0.0.1"}, 0, {.log = [&, first = true](const std::string& text) mutable {
                       if (std::exchange(first, false)) line.set_value(text);
                     }});
  std::vector<RawConnection> clients;
  auto said = line.get_future();
  while (said.wait_for(0s) != std::future_status::ready) {
    RawConnection raw = RawConnection::to(server.port());
    REQUIRE(raw.send(kHello));
    pollfd answered{raw.fd(), POLLIN, 0};
    while (::poll(&answered, 1, 1) == 0 && said.wait_for(0s) != std::future_status::ready) {
    }
    clients.push_back(std::move(raw));
    REQUIRE(clients.size() < 200);
  }
  CHECK_THAT(said.get(), Catch::Contains("the limit of open files (300)") &&
                             Catch::Contains("of which are silent; raise it (ulimit -n)"));
  CHECK(server.statistics().silent_closed == 0);
}

TEST_CASE("store server: the last file descriptors are left to the process, whatever took the rest",
          "[rendezvous][integration]") {
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const rlimit low{std::min<rlim_t>(before.rlim_cur, 300), before.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &low);
  {
    constexpr int kReserved = 300 - 64;  // the first descriptor that is reserved
    constexpr std::size_t kAgents = 150;
    FrontDoor door;
    std::vector<RawConnection> agents;
    for (std::size_t i = 0; i < kAgents; ++i) {  // the test's ends take descriptors too
      agents.push_back(RawConnection::to(door.server.port()));
      REQUIRE(agents.back().send("\xdd"));
    }
    // Counts without opening a descriptor, which the server would find taken.
    for (int fd = 0; fd < kReserved; ++fd) {
      while (::fcntl(fd, F_GETFD) < 0) {
      }
    }
    for (int i = 0; i < 1000; ++i) CHECK(door.server.statistics().agent_links < kAgents);
    {
      const std::lock_guard lock(door.mutex);
      const auto is_reserved = [](const FrontDoor::Link& link) { return link.socket.fd() >= kReserved; };
      CHECK(std::count_if(door.links.begin(), door.links.end(), is_reserved) <=
            1);  // the one that showed that the rest is reserved
      door.links.clear();
    }
    while (door.server.statistics().agent_links < kAgents) {
    }
  }
  ::setrlimit(RLIMIT_NOFILE, &before);
}

TEST_CASE("listening: a port's owner is found, and none where no process listens", "[rendezvous][integration]") {
  StoreServer server({"127.0.0.1"}, 0);
  CHECK_THAT(port_owner(server.port()), Catch::StartsWith("pid " + std::to_string(::getpid()) + " ("));
  CHECK(port_owner(0).empty());
}

}  // namespace
}  // namespace ddp::rendezvous
