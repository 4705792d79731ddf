// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/link/stream.hpp"

#include <sys/socket.h>

#include <catch2/catch.hpp>

using namespace ddp::rendezvous;

namespace {

template <typename Message>
struct End {
  std::shared_ptr<LinkStream<Message>> stream;
  std::vector<Message> messages;
  std::string closed;

  End(asio::io_context& io, int fd) {
    typename LinkStream<Message>::Callbacks callbacks;
    callbacks.on_message = [this](Message message) { messages.push_back(std::move(message)); };
    callbacks.on_closed = [this](const std::string& why) { closed = why; };
    stream = std::make_shared<LinkStream<Message>>(link_socket(io, Descriptor(fd)), std::move(callbacks));
    stream->start();
  }
};

struct Link {
  asio::io_context io;
  int fds[2] = {-1, -1};
  Link() { REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0); }
};

AgentState short_state() {
  AgentState state;
  state.epoch = "e";
  state.incarnation = "i";
  return state;
}

}  // namespace

TEST_CASE("link stream: everything that was sent before stop() arrives, then the end", "[rendezvous][unit]") {
  Link link;
  End<Directive> agent(link.io, link.fds[0]);
  End<AgentState> coordinator(link.io, link.fds[1]);
  AgentState state = short_state();
  for (state.round = 1; state.round <= 3; ++state.round) agent.stream->send(state);
  agent.stream->stop();
  link.io.run();
  CHECK(coordinator.messages.size() == 3);
  CHECK(coordinator.messages.back().round == 3);
  CHECK(coordinator.closed == "the other side closed the connection");
  CHECK(agent.closed.empty());
}

TEST_CASE("link stream: bytes that do not fit the kernel's buffer follow when the other side reads",
          "[rendezvous][unit]") {
  Link link;
  End<Directive> agent(link.io, link.fds[0]);
  AgentState state = short_state();
  state.role = std::string(4000, 'x');
  state.addresses.assign(1000, "255.255.255.255");
  for (state.round = 1; state.round <= 30; ++state.round) agent.stream->send(state);
  End<AgentState> coordinator(link.io, link.fds[1]);
  while (coordinator.messages.size() < 30 && link.io.run_one() > 0) {
  }
  REQUIRE(coordinator.messages.size() == 30);
  for (int i = 0; i < 30; ++i) CHECK(coordinator.messages[static_cast<std::size_t>(i)].round == i + 1);
}
