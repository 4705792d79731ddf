// SPDX-License-Identifier: BSD-3-Clause
// The socket at which an agent answers processes of its own user on its own machine: workers that ask for shared
// memory, and programs that ask what the job does. rendezvous/agent_client.hpp is the other end, and lists the
// requests.
//
// The socket is in a folder that only its user may enter, and a process of another user gets no answer (SO_PEERCRED),
// root's aside. Everything happens on io's thread. Nothing runs when nobody asks.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "launcher/local/entrance.hpp"
#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/base/descriptor_message.hpp"
#include "rendezvous/net/asio.hpp"

namespace ddp::launcher {

// Returns the folder in which this user's agents have their sockets: ddprun in /run/user/UID, or /tmp/ddprun-UID where
// that does not exist.
std::string agent_socket_folder();
// Makes that folder if it is missing, and returns it. Throws rendezvous::Error if others could enter it.
std::string make_agent_socket_folder();

class AgentSocket {
 public:
  struct Answer {
    std::string text;
    std::vector<int> descriptors = {};
    std::vector<rendezvous::Descriptor> own = {};  // sent after those, and closed then
  };
  using Handle = std::function<Answer(const rendezvous::DescriptorMessage& request)>;

  // Listens at `path` until the object is destroyed, which removes the path. Throws rendezvous::Error.
  AgentSocket(rendezvous::asio::io_context& io, std::string path, Handle handle);
  ~AgentSocket();
  AgentSocket(const AgentSocket&) = delete;
  AgentSocket& operator=(const AgentSocket&) = delete;

  const std::string& path() const { return path_; }
  // Answers nobody any more, so that nothing here keeps io running.
  void stop();

 private:
  using Visitor = std::shared_ptr<rendezvous::asio::posix::stream_descriptor>;

  void welcome(rendezvous::Descriptor accepted);
  void answer(int visitor) const;

  rendezvous::asio::io_context& io_;
  const std::string path_;
  const Handle handle_;
  Entrance entrance_;
  std::list<Visitor> visitors_;  // connections without a request yet, the oldest first
};

}  // namespace ddp::launcher
