// SPDX-License-Identifier: BSD-3-Clause
// What passes between the head and the ddprun on a host, once the latter has greeted (greeting.hpp), in the frames of
// rendezvous/wire/frame.hpp:
//
//     head to host   JobHeader   Beat   Signal (a number as text)
//     host to head   Hello   Stdout and Stderr (bytes)   Exit (the code as text)   Failed: why it cannot go on
//                    CannotBegin: exit code, blank, why its part of the job cannot begin   Report: bytes of the job's
//
// The job header has the command line that the user typed, where and with which variables, and the host's place in the
// job. Both ends are the same build of ddprun.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/membership/secret.hpp"
#include "rendezvous/wire/frame.hpp"

namespace ddp::launcher {

// A header may have more than a kernel takes as arguments and environment.
inline constexpr std::size_t kMostInHeader = 4 << 20, kMostInFrame = 256 << 10;
inline constexpr rendezvous::FrameLimit kHostFrames[] = {{rendezvous::FrameKind::Beat, 0},
                                                         {rendezvous::FrameKind::JobHeader, kMostInHeader},
                                                         {rendezvous::FrameKind::Signal, kMostInFrame},
                                                         {rendezvous::FrameKind::Hello, kMostInFrame},
                                                         {rendezvous::FrameKind::Stdout, kMostInFrame},
                                                         {rendezvous::FrameKind::Stderr, kMostInFrame},
                                                         {rendezvous::FrameKind::Exit, kMostInFrame},
                                                         {rendezvous::FrameKind::Failed, kMostInFrame},
                                                         {rendezvous::FrameKind::CannotBegin, kMostInFrame},
                                                         {rendezvous::FrameKind::Report, kMostInFrame}};

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
