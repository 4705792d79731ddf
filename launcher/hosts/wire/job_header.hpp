// SPDX-License-Identifier: BSD-3-Clause
// What the head tells the ddprun on a host: the command line that the user typed, where and with which variables, and
// the host's place in the job. And what the host tells before that: where the others may meet it.
//
// Both are pairs of a name and a value, each behind its length in 4 bytes, the highest first.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/membership/secret.hpp"

namespace ddp::launcher {

// A node's place in a job that the head has started.
struct HostPlace {
  int nodes = 1;
  int node_rank = 0;
  std::string master_addr = {};
  std::uint16_t master_port = 0;
  std::string id = {};                            // the job's
  std::optional<rendezvous::Secret> secret = {};  // which all nodes have
  std::optional<int> workers = {};                // slots of this host
  std::string gpus = {};                          // its chosen slots; empty: all
};

struct JobHeader {
  HostPlace place = {};
  std::vector<std::string> arguments = {};  // without argv[0]
  std::vector<std::string> variables = {};  // "NAME=value"
  std::string folder = {};
  std::string called_as = {};   // argv[0]
  std::string own_folder = {};  // where ddprun lies on the head: programs beside it are found there
  std::string python = {};      // interpreter of the environment that ddprun was called in
  std::chrono::seconds shutdown_timeout{30};
  std::chrono::seconds silence{15};  // without a word from the head ends the host's part of the job
};

std::string to_text(const JobHeader& header);
// Throws rendezvous::Error with what is wrong.
JobHeader job_header_from(std::string_view text);

// What a host says of itself.
struct Hello {
  std::string host = {};            // its name
  std::string address = {};         // where other hosts may reach it
  std::string caller_address = {};  // from where the head has reached it; empty: unknown
  std::uint16_t port = 0;           // free, and reserved until the process ends
  std::string machine = {};         // equal for hosts that share a machine and its network; empty: unknown
};

std::string to_text(const Hello& hello);
// Throws rendezvous::Error with what is wrong.
Hello hello_from(std::string_view text);

}  // namespace ddp::launcher
