// SPDX-License-Identifier: BSD-3-Clause
// Tells a host which others it is to start, by which launch agent, and with which variables: the payload of
// FrameKind::Share.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/hosts/host_list.hpp"
#include "launcher/hosts/wire/job_header.hpp"

namespace ddp::launcher {

struct RankedHost {
  std::size_t rank = 0;  // the host's node rank
  Host host;
};

struct Share {
  std::vector<std::string> agent = {};      // words of the launch agent
  std::vector<std::string> variables = {};  // "NAME=value", for the launch agents
  std::vector<RankedHost> hosts = {};
};

std::string to_text(const Share& share);
// Throws rendezvous::Error with what is wrong.
Share share_from(std::string_view text);

// Returns the job's header with what it says to one host.
JobHeader header_for(JobHeader header, const RankedHost& host);

}  // namespace ddp::launcher
