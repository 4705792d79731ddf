// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/process/tcp_sockets.hpp"

#include <dirent.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <string>

#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/machine/process_folder.hpp"

// Linux 5.6 has it; Debian 11's headers are of 5.10.
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

namespace ddp::launcher {

namespace {

using rendezvous::Descriptor;

// States of include/net/tcp_states.h, as the tables show them.
constexpr unsigned kEstablished = 1, kSynSent = 2;

struct TcpConnection {
  unsigned state = 0;
  unsigned remote_port = 0;
};

struct OpenSocket {
  int descriptor = 0;  // in that process
  ino_t inode = 0;
};

// Returns a process's TCP sockets.
std::vector<OpenSocket> open_sockets(const std::string& process) {
  std::vector<OpenSocket> sockets;
  const std::string folder = process + "/fd";
  DIR* const open = opendir(folder.c_str());
  while (const dirent* entry = open ? readdir(open) : nullptr) {
    const std::string path = folder + "/" + entry->d_name;
    std::array<char, 64> text = {};
    unsigned long inode = 0;
    if (readlink(path.c_str(), text.data(), text.size() - 1) < 0) continue;
    if (sscanf(text.data(), "socket:[%lu]", &inode) != 1) continue;
    std::array<char, 32> protocol = {};  // "TCP" or "TCPv6"
    if (getxattr(path.c_str(), "system.sockprotoname", protocol.data(), protocol.size() - 1) < 0) continue;
    if (strncmp(protocol.data(), "TCP", 3) == 0) sockets.push_back({atoi(entry->d_name), inode});
  }
  if (open) closedir(open);
  return sockets;
}

// Adds the sockets of one table of the process's network, by inode.
void read_table(const std::string& path, std::map<ino_t, TcpConnection>& connections) {
  std::ifstream table(path);
  for (std::string line; std::getline(table, line);) {
    TcpConnection connection;
    unsigned long inode = 0;
    // "sl: local:port remote:port state tx:rx tr:when retransmits uid timeout inode ..."; the first line has titles.
    if (sscanf(line.c_str(), " %*u: %*[0-9A-F]:%*x %*[0-9A-F]:%x %x %*s %*s %*s %*s %*s %lu", &connection.remote_port,
               &connection.state, &inode) == 3) {
      connections[inode] = connection;
    }
  }
}

std::map<ino_t, TcpConnection> read_tables(const std::string& process) {
  std::map<ino_t, TcpConnection> connections;
  read_table(process + "/net/tcp", connections);
  read_table(process + "/net/tcp6", connections);
  return connections;
}

// glibc 2.31 has neither of the two.
Descriptor open_process(pid_t pid) { return Descriptor(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))); }
Descriptor copy_descriptor(const Descriptor& process, int descriptor) {
  return Descriptor(static_cast<int>(syscall(SYS_pidfd_getfd, process.get(), descriptor, 0)));
}

}  // namespace

std::string why_not_endable(pid_t pid) {
  const Descriptor process = open_process(pid);
  if (!process) return std::string("pidfd_open: ") + strerror(errno);
  // Whether it may is checked before whether there is such a descriptor.
  if (copy_descriptor(process, 0) || errno == EBADF) return "";
  return std::string("pidfd_getfd: ") + strerror(errno);
}

int end_connections(pid_t pid, const SocketChoice& choice) {
  const Descriptor process = open_process(pid);
  if (!process) return 0;
  const std::string folder = rendezvous::process_folder(pid);
  const std::vector<OpenSocket> open = open_sockets(folder);
  const auto connections = read_tables(folder);
  int ended = 0;
  for (const auto& [descriptor, inode] : open) {
    const auto found = connections.find(inode);
    const unsigned state = found != connections.end() ? found->second.state : 0;
    if (!choice.has(inode) || (state != kEstablished && state != kSynSent)) continue;
    const Descriptor copy = copy_descriptor(process, descriptor);
    struct stat facts = {};
    if (!copy || fstat(copy.get(), &facts) != 0 || facts.st_ino != inode) continue;  // it was closed meanwhile
    if (shutdown(copy.get(), SHUT_RDWR) == 0) ++ended;
  }
  return ended;
}

TcpSockets tcp_sockets_of(pid_t pid, std::uint16_t port) {
  TcpSockets sockets;
  const std::string process = rendezvous::process_folder(pid);
  const std::vector<OpenSocket> open = open_sockets(process);
  if (open.empty()) return sockets;
  const auto connections = read_tables(process);
  for (const auto& [descriptor, inode] : open) {
    const auto found = connections.find(inode);
    if (found == connections.end() || found->second.state == kSynSent) {
      sockets.unconnected.push_back(inode);
    } else if (found->second.state == kEstablished && found->second.remote_port == port) {
      sockets.lead_to_port = true;
    }
  }
  return sockets;
}

}  // namespace ddp::launcher
