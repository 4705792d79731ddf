// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/local/agent_socket.hpp"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/base/error.hpp"

namespace ddp::launcher {

namespace asio = rendezvous::asio;
using rendezvous::Descriptor;

namespace {

constexpr std::size_t kMostVisitors = 256;  // that have asked nothing yet

[[noreturn]] void socket_failed(const std::string& path, const std::string& what) {
  throw rendezvous::Error(rendezvous::ErrorCode::System, path + ": " + what);
}

// Between bind() and listen() a socket refuses visitors, who would take it for one of a dead agent and remove it. So
// until then it has another name.
Descriptor listen_at(const std::string& path) {
  const std::string hidden = std::string(path).insert(path.find_last_of('/') + 1, ".");
  Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (hidden.size() >= sizeof address.sun_path) socket_failed(path, "too long for a socket");
  hidden.copy(address.sun_path, hidden.size());
  if (!socket || bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      listen(socket.get(), SOMAXCONN) != 0 || rename(hidden.c_str(), path.c_str()) != 0) {
    socket_failed(path, std::string("cannot listen: ") + strerror(errno));
  }
  return socket;
}

bool is_welcome(int visitor) {
  ucred peer = {};
  socklen_t size = sizeof peer;
  return getsockopt(visitor, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && (peer.uid == geteuid() || peer.uid == 0);
}

}  // namespace

std::string agent_socket_folder() {
  const std::string uid = std::to_string(geteuid());
  const std::string of_user = "/run/user/" + uid;
  return access(of_user.c_str(), W_OK) == 0 ? of_user + "/ddprun" : "/tmp/ddprun-" + uid;
}

std::string make_agent_socket_folder() {
  std::string folder = agent_socket_folder();
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    socket_failed(folder, std::string("cannot make this folder: ") + strerror(errno));
  }
  struct stat facts = {};
  if (lstat(folder.c_str(), &facts) != 0) socket_failed(folder, strerror(errno));
  if (!S_ISDIR(facts.st_mode) || facts.st_uid != geteuid() || (facts.st_mode & 077) != 0) {
    socket_failed(folder, "is not a folder of mode 0700 that belongs to this user (remove it, if you may)");
  }
  return folder;
}

AgentSocket::AgentSocket(asio::io_context& io, std::string path, Handle handle)
    : io_(io),
      path_(std::move(path)),
      handle_(std::move(handle)),
      entrance_(io, listen_at(path_), [this](Descriptor accepted) { welcome(std::move(accepted)); }) {}

AgentSocket::~AgentSocket() { unlink(path_.c_str()); }

void AgentSocket::stop() {
  visitors_.clear();
  entrance_.close();
}

void AgentSocket::welcome(Descriptor accepted) {
  if (!is_welcome(accepted.get())) return;
  if (visitors_.size() == kMostVisitors) visitors_.pop_front();
  const auto visitor = std::make_shared<asio::posix::stream_descriptor>(io_, accepted.release());
  visitors_.push_back(visitor);
  visitor->async_wait(asio::posix::stream_descriptor::wait_read,
                      [this, weak = std::weak_ptr(visitor)](const auto& error) {
                        const Visitor asking = weak.lock();
                        if (error || !asking) return;
                        answer(asking->native_handle());
                        visitors_.remove(asking);
                      });
}

void AgentSocket::answer(int visitor) const {
  const auto request = rendezvous::receive_with_descriptors(visitor);
  if (!request || request->text.empty()) return;  // it has gone
  const Answer answer = handle_(*request);
  std::vector<int> descriptors = answer.descriptors;
  for (const rendezvous::Descriptor& descriptor : answer.own) descriptors.push_back(descriptor.get());
  rendezvous::send_with_descriptors(visitor, answer.text, descriptors);
}

}  // namespace ddp::launcher
