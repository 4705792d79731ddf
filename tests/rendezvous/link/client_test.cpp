// SPDX-License-Identifier: BSD-3-Clause
// An agent's link over loopback with the real store's port and acceptor, and with other peers that may answer there.
#include "rendezvous/link/client.hpp"

#include <dlfcn.h>
#include <netdb.h>
#include <netinet/in.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/membership/handshake.hpp"
#include "rendezvous/net/listen.hpp"
#include "tests/rendezvous/link/loop.hpp"
#include "tests/rendezvous/store/hex.hpp"

namespace ddp::rendezvous {
namespace {

using namespace std::chrono_literals;

// The answers of a name server for one name; other names go to the system's resolver.
class Names {
 public:
  static Names& get() {
    static Names names;
    return names;
  }
  // Sets the name's numeric addresses; if there are none, the name is unknown.
  void set(std::vector<std::string> addresses) {
    const std::lock_guard lock(mutex_);
    addresses_ = std::move(addresses);
    is_stuck_ = false;
    changed_.notify_all();
  }
  void get_stuck() {
    const std::lock_guard lock(mutex_);
    is_stuck_ = true;
  }
  std::vector<std::string> look_up() {
    ++lookups;
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !is_stuck_; });
    return addresses_;
  }
  std::atomic<int> lookups = 0;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> addresses_;
  bool is_stuck_ = false;
};
constexpr char kName[] = "node0.test";

using GetAddrInfo = int (*)(const char*, const char*, const addrinfo*, addrinfo**);
GetAddrInfo system_lookup() { return reinterpret_cast<GetAddrInfo>(::dlsym(RTLD_NEXT, "getaddrinfo")); }

}  // namespace
}  // namespace ddp::rendezvous

// Replaces libc's getaddrinfo in this program.
extern "C" __attribute__((visibility("default"))) int getaddrinfo(const char* host, const char* port,
                                                                  const addrinfo* hints, addrinfo** found) {
  using namespace ddp::rendezvous;
  static const GetAddrInfo libc = system_lookup();
  const bool is_numeric = hints != nullptr && (hints->ai_flags & AI_NUMERICHOST) != 0;
  if (is_numeric || host == nullptr || std::strcmp(host, kName) != 0) return libc(host, port, hints, found);
  addrinfo* first = nullptr;
  addrinfo** next = &first;
  for (const std::string& address : Names::get().look_up()) {
    if (libc(address.c_str(), port, hints, next) != 0) return EAI_FAIL;
    next = &(*next)->ai_next;
  }
  *found = first;
  return first == nullptr ? EAI_NONAME : 0;
}

namespace ddp::rendezvous {
namespace {

// Short limits: loopback answers at once, so only tests of silence wait this long.
const LinkTiming kQuick = {.try_limit = 10s, .shortest_wait = 1ms, .longest_wait = 5ms};
const LinkTiming kImpatient = {.try_limit = 50ms, .shortest_wait = 1ms, .longest_wait = 5ms};

// A client that records its callbacks.
struct Recorder {
  Recorder(LinkLoop& loop, LinkTarget target, Membership secret = {}, const LinkTiming& timing = kQuick)
      : client(std::in_place, loop.io, std::move(target), std::move(secret), callbacks(), timing) {
    client->start();
  }
  Recorder(LinkLoop& loop, const std::string& host, std::uint16_t port, Membership secret = {},
           const LinkTiming& timing = kQuick)
      : Recorder(loop, LinkTarget{.hosts = {host}, .ports = {port}}, std::move(secret), timing) {}
  Recorder(LinkLoop& loop, Descriptor connected) : client(std::in_place, loop.io, std::move(connected), callbacks()) {
    client->start();
  }

  LinkClient::Callbacks callbacks() {
    return {.on_up = [this](const std::string& address) { add("up " + address); },
            .on_message = [this](const Directive& directive) { add("message " + directive.reason); },
            .on_heartbeat = [this] { add("heartbeat"); },
            .on_down = [this](const std::string& why) { add("down: " + why); },
            .on_unreachable = [this](const std::string& why) { add("unreachable: " + why); },
            .on_refused = [this](const std::string& why) { add("refused: " + why); }};
  }
  void add(const std::string& event) {
    if (!events.empty() && events.back() == event && event.starts_with("unreachable")) return;  // repeated
    events.push_back(event);
  }
  bool has(const std::string& event) const { return std::find(events.begin(), events.end(), event) != events.end(); }

  std::vector<std::string> events;
  std::optional<LinkClient> client;
};

std::string heard_by(LinkLoop& loop, const Recorder& recorder) {
  loop.until([&] { return !recorder.events.empty(); });
  return recorder.events.empty() ? "nothing" : recorder.events.front();
}

std::string at(std::uint16_t port) { return "127.0.0.1:" + std::to_string(port); }

// Returns a port on which no process listens now.
std::uint16_t unused_port() { return listen_on({"127.0.0.1"}, 0).port; }

// Listens, and answers each connection with fixed bytes or with an echo.
class Other {
 public:
  enum class Answer { Fixed, Echo };
  explicit Other(std::string bytes, Answer answer = Answer::Fixed)
      : listeners_(listen_on({"127.0.0.1"}, 0)), bytes_(std::move(bytes)), answer_(answer) {}
  std::uint16_t port() const { return listeners_.port; }

  // Answers what has come.
  void answer() {
    if (const int fd = ::accept4(listeners_.sockets[0].get(), nullptr, nullptr, SOCK_CLOEXEC); fd >= 0) {
      connections_.emplace_back(fd);
      if (answer_ == Answer::Fixed) connections_.back().send(bytes_);
    }
    for (RawConnection& connection : connections_) {
      char bytes[256];
      const auto got = ::recv(connection.fd(), bytes, sizeof bytes, MSG_DONTWAIT);
      if (answer_ == Answer::Echo && got > 0) connection.send({bytes, static_cast<std::size_t>(got)});
    }
  }

  // Runs the loop until the client has had a callback.
  std::string heard_by(LinkLoop& loop, const Recorder& recorder) {
    loop.until([&] {
      answer();
      return !recorder.events.empty();
    });
    return recorder.events.empty() ? "nothing" : recorder.events.front();
  }

 private:
  Listeners listeners_;
  std::string bytes_;
  Answer answer_;
  std::vector<RawConnection> connections_;
};

TEST_CASE("link client: the agent's state arrives, the coordinator's directive too", "[rendezvous][integration]") {
  for (const auto& secret : {std::optional<Secret>(), std::optional<Secret>(kSecret)}) {
    LinkLoop loop;
    LinkCoordinator coordinator(loop, {.membership = secret});
    Recorder recorder(loop, "127.0.0.1", coordinator.server.port(), secret);
    CHECK(heard_by(loop, recorder) == "up 127.0.0.1");
    CHECK(recorder.client->local_address() == "127.0.0.1");
    AgentState state;
    state.incarnation = "b";
    state.host = "node-b";
    recorder.client->send(state);
    recorder.client->send(Heartbeat{});
    REQUIRE(loop.until([&] { return recorder.has("heartbeat"); }));
    REQUIRE(coordinator.agents.size() == 1);
    CHECK(coordinator.agents[0].states == std::vector<AgentState>{state});
    Directive directive;
    directive.epoch = "e";
    directive.reason = "waiting for 1 of 2 nodes";
    coordinator.agents[0].link->send(directive);
    CHECK(loop.until([&] { return recorder.has("message waiting for 1 of 2 nodes"); }));
    CHECK(recorder.events.size() == 3);
  }
}

TEST_CASE("link client: a coordinator that comes later is found", "[rendezvous][integration]") {
  LinkLoop loop;
  const std::uint16_t port = unused_port();
  Recorder recorder(loop, "127.0.0.1", port);
  CHECK(heard_by(loop, recorder) == "unreachable: connection refused");
  LinkCoordinator coordinator(loop, {}, port);
  CHECK(loop.until([&] { return recorder.has("up 127.0.0.1"); }));
  CHECK(recorder.events.size() == 2);
}

TEST_CASE("link client: a link that breaks is reported and made again", "[rendezvous][integration]") {
  LinkLoop loop;
  LinkCoordinator coordinator(loop, {.membership = kSecret});
  Recorder recorder(loop, "127.0.0.1", coordinator.server.port(), kSecret);
  REQUIRE(loop.until([&] { return coordinator.agents.size() == 1; }));
  coordinator.agents[0].link->stop();
  REQUIRE(loop.until([&] { return recorder.events.size() == 3; }));
  CHECK(recorder.events ==
        std::vector<std::string>{"up 127.0.0.1", "down: the other side closed the connection", "up 127.0.0.1"});
  // The store's reset leaves the links alone.
  coordinator.server.reset();
  recorder.client->send(Heartbeat{});
  CHECK(loop.until([&] { return recorder.has("heartbeat"); }));
}

TEST_CASE("link client: reconnect drops the link and makes another one", "[rendezvous][integration]") {
  LinkLoop loop;
  LinkCoordinator coordinator(loop, {});
  Recorder recorder(loop, "127.0.0.1", coordinator.server.port());
  REQUIRE(heard_by(loop, recorder) == "up 127.0.0.1");
  recorder.client->reconnect("silent for 5 s");
  CHECK(recorder.events.size() == 1);  // not from within the call
  REQUIRE(loop.until([&] { return recorder.events.size() == 3; }));
  CHECK(recorder.events[1] == "down: silent for 5 s");
  CHECK(recorder.events[2] == "up 127.0.0.1");
  REQUIRE(loop.until([&] { return coordinator.agents.size() == 2; }));
  CHECK(loop.until([&] { return !coordinator.agents[0].link; }));
}

TEST_CASE("link client: reconnect cuts a wait between two tries short", "[rendezvous][integration]") {
  LinkLoop loop;
  const std::uint16_t port = unused_port();
  Recorder recorder(loop, "127.0.0.1", port, {}, {.shortest_wait = 1h, .longest_wait = 1h});
  REQUIRE_THAT(heard_by(loop, recorder), Catch::Contains("connection refused"));
  LinkCoordinator coordinator(loop, {}, port);
  recorder.client->reconnect("somebody said it is there now");
  CHECK(loop.until([&] { return recorder.has("up 127.0.0.1"); }));
}

TEST_CASE("link client: another secret ends the tries, and the reason says which side to check",
          "[rendezvous][integration]") {
  struct Case {
    std::optional<Secret> of_agent, of_coordinator;
    std::string why;  // after "the coordinator at 127.0.0.1:…" was taken out
  };
  const std::vector<Case> cases = {
      {{}, kSecret, "refused: @ wants a secret: give --secret FILE or DDPRUN_SECRET_FILE"},
      {kSecret, {}, "refused: @ has no secret, this node has one (DDPRUN_SECRET_FILE)"},
      {kSecret, Secret::random(), "refused: the secrets of this node and of @ differ (DDPRUN_SECRET_FILE)"},
  };
  for (const Case& each : cases) {
    LinkLoop loop;
    LinkCoordinator coordinator(loop, {.membership = each.of_coordinator});
    Recorder recorder(loop, "127.0.0.1", coordinator.server.port(), each.of_agent);
    std::string heard = heard_by(loop, recorder);
    const std::string name = "the coordinator at " + at(coordinator.server.port());
    if (const auto begin = heard.find(name); begin != std::string::npos) heard.replace(begin, name.size(), "@");
    CHECK(heard == each.why);
    CHECK(loop.until([&] { return coordinator.lines.size() == 1; }));
    recorder.client->reconnect("no use");
    loop.settle();
    CHECK(recorder.events.size() == 1);
    CHECK(coordinator.agents.empty());
  }
}

TEST_CASE("link client: a coordinator of another version ends the tries", "[rendezvous][integration]") {
  LinkLoop loop;
  Other newer(from_hex("dd 64647072756e 05") + "whatever they will say then");
  Recorder recorder(loop, "127.0.0.1", newer.port());
  CHECK(newer.heard_by(loop, recorder) ==
        "refused: the coordinator at " + at(newer.port()) +
            " is of another version of ddprun (its agent link is version 5, this node's version 4): install the same "
            "on every node");
}

TEST_CASE("link client: whatever else has the port is described, and may go away", "[rendezvous][integration]") {
  LinkLoop loop;
  const auto expected = [](const std::string& how) {
    return "unreachable: what answers there is not a ddprun coordinator (" + how + ")";
  };
  Other web("HTTP/1.1 400 Bad Request\r\n\r\n");
  Recorder of_web(loop, "127.0.0.1", web.port());
  CHECK(web.heard_by(loop, of_web) == expected("first bytes: \"HTTP/1.1 400 Bad\""));

  Other echo("", Other::Answer::Echo);
  Recorder of_echo(loop, "127.0.0.1", echo.port());
  CHECK(echo.heard_by(loop, of_echo) == expected("it sends back what it is sent"));

  const StoreServer store({"127.0.0.1"}, 0);  // speaks c10d and nothing else
  Recorder of_store(loop, "127.0.0.1", store.port());
  CHECK(heard_by(loop, of_store) == expected("it closed the connection without a word"));

  Other silent("");
  Recorder of_silent(loop, "127.0.0.1", silent.port(), {}, kImpatient);
  CHECK(silent.heard_by(loop, of_silent) == "unreachable: no answer in 50 ms");
}

TEST_CASE("link client: a name is looked up in every try, and its addresses are tried in turn",
          "[rendezvous][integration]") {
  Names::get().set({});
  LinkLoop loop;
  LinkCoordinator coordinator(loop, {});
  Recorder recorder(loop, kName, coordinator.server.port());
  CHECK(heard_by(loop, recorder) == "unreachable: its name cannot be resolved: Name or service not known");
  Names::get().set({"127.0.0.2"});  // no process listens there
  CHECK(loop.until([&] { return recorder.has("unreachable: connection refused"); }));
  Names::get().set({"127.0.0.2", "127.0.0.3", "127.0.0.1"});
  CHECK(loop.until([&] { return recorder.has("up 127.0.0.1"); }));
}

TEST_CASE("link client: addresses that fail in different ways are each reported", "[rendezvous][integration]") {
  LinkLoop loop;
  const Listeners silent = listen_on({"127.0.0.2"}, 0);
  Names::get().set({"127.0.0.2", "127.0.0.3"});
  Recorder recorder(loop, kName, silent.port, {}, kImpatient);
  CHECK(heard_by(loop, recorder) == "unreachable: 127.0.0.2: no answer in 25 ms, 127.0.0.3: connection refused");
}

TEST_CASE("link client: of several ports it takes the one at which the coordinator of its job answers",
          "[rendezvous][integration]") {
  const JobTag job = job_tag("slurm-8.0");
  for (const auto& others_secret : {std::optional<Secret>(), std::optional<Secret>(Secret::random())}) {
    LinkLoop loop;
    LinkCoordinator other(loop, {.membership = others_secret, .job = job_tag("slurm-7.0")});
    Other newer(from_hex("dd 64647072756e 05") + "whatever they will say then");
    const std::uint16_t later = unused_port();
    Recorder recorder(
        loop, LinkTarget{.hosts = {"127.0.0.1"}, .ports = {other.server.port(), newer.port(), later}, .job = job});
    const std::string heard = newer.heard_by(loop, recorder);
    CHECK_THAT(heard, Catch::StartsWith("unreachable: " + at(other.server.port()) +
                                        ": the coordinator of another job answers there, " + at(newer.port()) +
                                        ": the coordinator at " + at(newer.port()) + " is of another version"));
    CHECK_THAT(heard, Catch::EndsWith(", " + at(later) + ": connection refused"));
    CHECK(other.agents.empty());
    CHECK(other.lines.empty());  // that job's user need not know

    LinkCoordinator own(loop, {.job = job}, later);
    REQUIRE(loop.until([&] {
      newer.answer();
      return recorder.has("up 127.0.0.1");
    }));
    CHECK(loop.until([&] { return own.agents.size() == 1; }));
  }
}

TEST_CASE("link client: the coordinator of its job with another secret is refused, also among several",
          "[rendezvous][integration]") {
  const JobTag job = job_tag("slurm-8.0");
  LinkLoop loop;
  LinkCoordinator coordinator(loop, {.membership = kSecret, .job = job});
  Recorder recorder(
      loop, LinkTarget{.hosts = {"127.0.0.1"}, .ports = {unused_port(), coordinator.server.port()}, .job = job});
  CHECK(heard_by(loop, recorder) == "refused: the coordinator at " + at(coordinator.server.port()) +
                                        " wants a secret: give --secret FILE or DDPRUN_SECRET_FILE");
}

TEST_CASE("link client: several hosts are tried in turn", "[rendezvous][integration]") {
  LinkLoop loop;
  LinkCoordinator coordinator(loop, {.job = job_tag("epoch")});
  Recorder recorder(
      loop,
      LinkTarget{.hosts = {"127.0.0.2", "127.0.0.1"}, .ports = {coordinator.server.port()}, .job = job_tag("epoch")});
  CHECK(heard_by(loop, recorder) == "up 127.0.0.1");
}

TEST_CASE("link client: a name server that does not answer stops neither the loop nor the end",
          "[rendezvous][integration]") {
  Names& names = Names::get();
  names.set({"127.0.0.1"});
  names.get_stuck();
  names.lookups = 0;
  LinkLoop loop;
  LinkCoordinator coordinator(loop, {});
  {
    Recorder recorder(loop, kName, coordinator.server.port(), {}, kImpatient);
    const std::string stuck = "unreachable: its name could not be resolved in 50 ms";
    CHECK(heard_by(loop, recorder) == stuck);
    recorder.events.clear();
    CHECK(heard_by(loop, recorder) == stuck);
    CHECK(names.lookups == 1);  // every try waits for the same one
    names.set({"127.0.0.1"});
    CHECK(loop.until([&] { return recorder.has("up 127.0.0.1"); }));
  }
  names.get_stuck();
  {
    const Recorder recorder(loop, kName, coordinator.server.port());
    CHECK(loop.until([&] { return names.lookups == 2; }));
  }  // destroyed while its thread still waits
  names.set({});
}

TEST_CASE("link client: over a socketpair it is up at once and needs no handshake", "[rendezvous][integration]") {
  LinkLoop loop;
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  auto other = std::make_unique<RawConnection>(ends[1]);
  Recorder recorder(loop, Descriptor(ends[0]));
  CHECK(recorder.events.empty());
  CHECK(heard_by(loop, recorder) == "up ");
  CHECK(recorder.client->local_address().empty());
  recorder.client->send(Heartbeat{});
  CHECK(loop.receive(*other, encode(Heartbeat{}).size()) == encode(Heartbeat{}));
  recorder.client->reconnect("no use");
  REQUIRE(other->send(encode(Heartbeat{})));
  REQUIRE(loop.until([&] { return recorder.has("heartbeat"); }));
  other.reset();
  REQUIRE(loop.until([&] { return recorder.events.size() == 3; }));
  CHECK(recorder.events[2] == "down: the other side closed the connection");
  recorder.client->send(Heartbeat{});
  loop.settle();
  CHECK(recorder.events.size() == 3);
}

TEST_CASE("link client: every callback may stop or destroy it", "[rendezvous][integration]") {
  enum class End { Stop, Destroy };
  for (const End end : {End::Stop, End::Destroy}) {
    for (const std::string last : {"up", "message", "heartbeat", "down", "unreachable", "refused"}) {
      INFO(last);
      LinkLoop loop;
      LinkCoordinator coordinator(loop, {.membership = last == "refused" ? Membership(kSecret) : Membership()});
      std::optional<LinkClient> client;
      std::vector<std::string> heard;
      const auto hear = [&](const std::string& what) {
        heard.push_back(what);
        if (what != last) return;
        if (end == End::Stop) {
          client->stop();
        } else {
          client.reset();
        }
      };
      const std::uint16_t port = last == "unreachable" ? unused_port() : coordinator.server.port();
      client.emplace(loop.io, LinkTarget{.hosts = {"127.0.0.1"}, .ports = {port}}, Membership(),
                     LinkClient::Callbacks{.on_up = [&](const std::string&) { hear("up"); },
                                           .on_message = [&](const Directive&) { hear("message"); },
                                           .on_heartbeat = [&] { hear("heartbeat"); },
                                           .on_down = [&](const std::string&) { hear("down"); },
                                           .on_unreachable = [&](const std::string&) { hear("unreachable"); },
                                           .on_refused = [&](const std::string&) { hear("refused"); }},
                     kQuick);
      client->start();
      if (last == "message" || last == "heartbeat" || last == "down") {
        REQUIRE(loop.until([&] { return coordinator.agents.size() == 1; }));
        auto& link = coordinator.agents[0].link;
        link->send(Directive{.epoch = "e"});
        link->send(Heartbeat{});
        link->send(Heartbeat{});
        if (last == "down") link->stop();
      }
      REQUIRE(loop.until([&] { return !heard.empty() && heard.back() == last; }));
      coordinator.server.statistics();
      loop.settle();
      CHECK(heard.back() == last);
    }
  }
}

TEST_CASE("link client: no descriptor is left behind", "[rendezvous][integration]") {
  LinkLoop waiting;
  const std::size_t before = open_descriptors();
  for (int i = 0; i < 3; ++i) {
    Names::get().set({"127.0.0.2", "127.0.0.1"});
    LinkLoop loop;
    LinkCoordinator coordinator(loop, {.membership = kSecret});
    Recorder good(loop, kName, coordinator.server.port(), kSecret);
    Recorder wrong(loop, "127.0.0.1", coordinator.server.port(), Secret::random());
    Recorder unreachable(loop, "127.0.0.1", unused_port());
    Other silent("");
    const Recorder under_way(loop, "127.0.0.1", silent.port());
    for (const Recorder* each : {&good, &wrong, &unreachable}) CHECK(heard_by(loop, *each) != "nothing");
    for (std::size_t links = 2; links < 5; ++links) {
      REQUIRE(loop.until([&] { return good.has("up 127.0.0.1"); }));
      good.events.clear();
      good.client->reconnect("once more");
    }
  }
  // The threads of lookups close their descriptors when they end.
  CHECK(waiting.until([&] { return open_descriptors() <= before; }));
}

}  // namespace
}  // namespace ddp::rendezvous
