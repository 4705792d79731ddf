// SPDX-License-Identifier: BSD-3-Clause
// The command that starts ddprun on a host: the launch agent (ssh, or what the user names), the host, and one word that
// is a line for a shell there. The line is the same for all hosts and jobs of one build of ddprun. Nothing of the
// user's is in it, so that no shell has to be told how to quote; sh, csh and fish read it alike.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "launcher/hosts/host_list.hpp"

namespace ddp::launcher {

// The argument that makes ddprun the one on a host.
inline constexpr char kOnHost[] = "--on-host";

// What has to lie in the cache of a host.
struct Build {
  std::string id;        // hexadecimal
  std::size_t size = 0;  // the program's size in bytes
};

// Returns the build of this program. Throws rendezvous::Error if it has no id.
Build own_build();

// Returns the line: it looks for ~/.cache/ddprun/ID/ddprun, asks for the program if it is not there or damaged, takes
// it from stdin, and becomes it. The line refuses files and folders of other users, and folders in which other users
// may write.
std::string launch_line(const Build& build);

// Returns the words of a launch agent such as "ssh -J jump", in which quotes hold words together. Throws
// rendezvous::Error.
std::vector<std::string> split_agent(const std::string& text);

// Returns the command for a host. {host} and {port} in the agent's words stand for the host's; if {host} is in none of
// them, the host is added. An agent with the name ssh gets the options that make it end by itself when the host does
// not answer or asks for a password, and the host's port. Throws rendezvous::Error if there is a port and no place for
// it.
std::vector<std::string> launch_command(const std::vector<std::string>& agent, const Host& host,
                                        const std::string& line);

}  // namespace ddp::launcher
