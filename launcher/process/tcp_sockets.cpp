// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/process/tcp_sockets.hpp"

#include <dirent.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <string>

namespace ddp::launcher {

namespace {

// States of include/net/tcp_states.h, as the tables show them.
constexpr unsigned kEstablished = 1, kSynSent = 2;

struct Connection {
  unsigned state = 0;
  unsigned remote_port = 0;
};

// Returns the inodes of a process's TCP sockets.
std::vector<ino_t> tcp_inodes(const std::string& process) {
  std::vector<ino_t> inodes;
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
    if (strncmp(protocol.data(), "TCP", 3) == 0) inodes.push_back(inode);
  }
  if (open) closedir(open);
  return inodes;
}

// Adds the sockets of one table of the process's network, by inode.
void read_table(const std::string& path, std::map<ino_t, Connection>& connections) {
  std::ifstream table(path);
  for (std::string line; std::getline(table, line);) {
    Connection connection;
    unsigned long inode = 0;
    // "sl: local:port remote:port state tx:rx tr:when retransmits uid timeout inode ..."; the first line has titles.
    if (sscanf(line.c_str(), " %*u: %*[0-9A-F]:%*x %*[0-9A-F]:%x %x %*s %*s %*s %*s %*s %lu", &connection.remote_port,
               &connection.state, &inode) == 3) {
      connections[inode] = connection;
    }
  }
}

}  // namespace

TcpSockets tcp_sockets_of(pid_t pid, std::uint16_t port) {
  TcpSockets sockets;
  const std::string process = "/proc/" + std::to_string(pid);
  const std::vector<ino_t> inodes = tcp_inodes(process);
  if (inodes.empty()) return sockets;
  std::map<ino_t, Connection> connections;
  read_table(process + "/net/tcp", connections);
  read_table(process + "/net/tcp6", connections);
  for (const ino_t inode : inodes) {
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
