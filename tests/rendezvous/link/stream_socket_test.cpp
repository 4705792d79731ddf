// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/link/stream.hpp"

#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "tests/rendezvous/link/loop.hpp"

namespace ddp::rendezvous {
namespace {

// One end of a link, and a bare socket at the other end.
struct Pair {
  explicit Pair(LinkLoop& loop) {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    other = std::make_unique<RawConnection>(ends[1]);
    link = std::make_shared<LinkStream<Directive>>(
        link_socket(loop.io, Descriptor(ends[0])),
        LinkStream<Directive>::Callbacks{.on_message = [this](const Directive& d) { heard.push_back(d.reason); },
                                         .on_heartbeat = [this] { heard.emplace_back("heartbeat"); },
                                         .on_closed = [this](const std::string& why) { heard.push_back(why); }});
  }
  ~Pair() { link->stop(); }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  std::unique_ptr<RawConnection> other;
  std::shared_ptr<LinkStream<Directive>> link;
  std::vector<std::string> heard;
};

std::string directive_of(const std::string& reason) {
  Directive directive;
  directive.epoch = "e";
  directive.reason = reason;
  return encode(directive);
}

TEST_CASE("link: bytes that came with the handshake are the first bytes of the stream", "[rendezvous][integration]") {
  LinkLoop loop;
  const std::string bytes = directive_of("one") + encode(Heartbeat{}) + directive_of("two");
  for (std::size_t early = 0; early <= bytes.size(); ++early) {
    Pair pair(loop);
    pair.link->start(bytes.substr(0, early));
    CHECK(pair.heard.empty());  // no callback from within start()
    REQUIRE(pair.other->send(bytes.substr(early)));
    REQUIRE(loop.until([&] { return pair.heard.size() == 3; }));
    CHECK(pair.heard == std::vector<std::string>{"one", "heartbeat", "two"});
  }
}

TEST_CASE("link: the end of the other side is reported once, in words", "[rendezvous][integration]") {
  LinkLoop loop;
  Pair pair(loop);
  pair.link->start();
  pair.other.reset();
  REQUIRE(loop.until([&] { return !pair.heard.empty(); }));
  pair.link->send(Heartbeat{});
  loop.settle();
  CHECK(pair.heard == std::vector<std::string>{"the other side closed the connection"});
}

TEST_CASE("link: a peer that never reads is cut off before it costs much", "[rendezvous][integration]") {
  LinkLoop loop;
  Pair pair(loop);
  pair.link->start();
  AgentState large;
  large.stopped_because = std::string(1 << 20, 'x');
  std::size_t sent = 0;
  while (pair.heard.empty() && sent < 64) {
    pair.link->send(large);
    ++sent;
    loop.settle();
  }
  CHECK(pair.heard == std::vector<std::string>{"the other side does not read what it is sent"});
  CHECK(sent >= kMaxQueuedBytes >> 20);
  CHECK(sent <= (kMaxQueuedBytes >> 20) + 3);
}

TEST_CASE("link: heartbeats do not pile up while the peer does not read", "[rendezvous][integration]") {
  LinkLoop loop;
  Pair pair(loop);
  pair.link->start();
  AgentState large;
  large.stopped_because = std::string(1 << 20, 'x');
  const std::string frame = encode(large);
  pair.link->send(large);
  loop.settle();
  for (int i = 0; i < 10'000; ++i) pair.link->send(Heartbeat{});
  pair.link->send(large);
  CHECK(loop.receive(*pair.other, frame.size()) == frame);
  const std::string next = loop.receive(*pair.other, encode(Heartbeat{}).size() + frame.size());
  CHECK(next == encode(Heartbeat{}) + frame);
  pair.link->send(Heartbeat{});
  CHECK(loop.receive(*pair.other, encode(Heartbeat{}).size()) == encode(Heartbeat{}));
  CHECK(pair.heard.empty());
}

}  // namespace
}  // namespace ddp::rendezvous
