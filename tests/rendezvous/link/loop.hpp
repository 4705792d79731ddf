// SPDX-License-Identifier: BSD-3-Clause
// Helpers of the agent link's tests: a loop that the test's own thread runs until a condition is true, so that
// assertions need no lock, and a coordinator's end of the link, wired as the coordinator does it.
#pragma once

#include <dirent.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/link/acceptor.hpp"
#include "rendezvous/link/stream.hpp"
#include "rendezvous/net/asio.hpp"
#include "rendezvous/store/server.hpp"
#include "tests/rendezvous/store/raw_connection.hpp"

namespace ddp::rendezvous {

inline const Secret kSecret = Secret(Secret::Bytes{7});

class LinkLoop {
 public:
  asio::io_context io{1};

  // Runs the loop until the condition is true. Returns false only if that takes more than 20 s.
  bool until(const std::function<bool()>& is_true) {
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!is_true()) {
      if (std::chrono::steady_clock::now() > give_up) return false;
      io.run_one_for(std::chrono::milliseconds(5));  // is_true() may depend on what no handler changes
    }
    return true;
  }

  // Runs everything that is due now.
  void settle() { io.poll(); }

  // Returns `size` bytes, or fewer if they do not come or the connection ends.
  std::string receive(RawConnection& raw, std::size_t size) {
    std::string bytes;
    until([&raw, &bytes, size] {
      char part[65536];
      ssize_t got = 1;
      while (bytes.size() < size && got > 0) {
        got = ::recv(raw.fd(), part, std::min(sizeof part, size - bytes.size()), MSG_DONTWAIT);
        if (got > 0) bytes.append(part, static_cast<std::size_t>(got));
      }
      return bytes.size() == size || got == 0 || errno != EAGAIN;
    });
    return bytes;
  }

 private:
  asio::executor_work_guard<asio::io_context::executor_type> work_{io.get_executor()};
};

// A store's port with an acceptor behind it. Its links answer heartbeats.
class LinkCoordinator {
 public:
  struct Agent {
    std::string address;
    std::shared_ptr<LinkStream<AgentState>> link;  // null once it is closed
    std::vector<AgentState> states;
    std::string closed_because;
  };

  LinkCoordinator(LinkLoop& loop, LinkAcceptor::Options options, std::uint16_t port = 0)
      : io(loop.io),
        acceptor(loop.io, with_lines(std::move(options)), [this](AcceptedLink link) { add(std::move(link)); }),
        server({"127.0.0.1"}, port, {.on_agent_link = [this](Descriptor socket, std::string first_bytes) {
                 acceptor.accept(std::move(socket), std::move(first_bytes));
               }}) {}
  ~LinkCoordinator() {
    for (auto& [number, agent] : agents) {
      if (agent.link) agent.link->stop();
    }
  }
  LinkCoordinator(const LinkCoordinator&) = delete;
  LinkCoordinator& operator=(const LinkCoordinator&) = delete;

  asio::io_context& io;
  std::map<std::size_t, Agent> agents;  // in the order they came, from 0
  std::vector<std::string> lines;
  LinkAcceptor acceptor;
  StoreServer server;  // last, so that it ends first

 private:
  LinkAcceptor::Options with_lines(LinkAcceptor::Options options) {
    options.log = [this](const std::string& line) { lines.push_back(line); };
    return options;
  }

  void add(AcceptedLink accepted) {
    const std::size_t number = agents.size();
    Agent& agent = agents[number];
    agent.address = accepted.address;
    agent.link = std::make_shared<LinkStream<AgentState>>(
        link_socket(io, std::move(accepted.socket)),
        LinkStream<AgentState>::Callbacks{
            .on_message = [&agent](AgentState state) { agent.states.push_back(std::move(state)); },
            .on_heartbeat = [&agent] { agent.link->send(Heartbeat{}); },
            .on_closed =
                [&agent](const std::string& why) {
                  agent.closed_because = why;
                  agent.link.reset();
                }},
        std::move(accepted.cipher));
    agent.link->start(accepted.first_bytes);
  }
};

inline std::size_t open_descriptors() {
  std::size_t count = 0;
  DIR* directory = ::opendir("/proc/self/fd");
  while (::readdir(directory) != nullptr) ++count;
  ::closedir(directory);
  return count;
}

}  // namespace ddp::rendezvous
