// SPDX-License-Identifier: BSD-3-Clause
// The hosts of a job as the user lists them: --hosts, --hostfile, --include and --exclude. Hostfiles are read as Open
// MPI, DeepSpeed and accelerate read them:
//
//     gpu01 slots=8            # a comment
//     me@gpu02 slots=4 max_slots=8 port=2222
//     gpu03:2                  as MPICH
//     [fd00::3]:2
//     gpu04                    a line for each worker, as PBS writes them
//     gpu04
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ddp::launcher {

struct Host {
  std::string name;                     // a name or a numeric address, without brackets
  std::string user = {};                // empty: as whom ssh connects by default
  std::optional<std::uint16_t> port{};  // where its sshd listens
  std::optional<int> slots{};           // number of workers
  std::vector<int> chosen_slots = {};   // numbers of GPUs, where --include or --exclude names some; empty: all
};

// Returns the hosts of "a:2,me@b,[fd00::1]:4". Throws rendezvous::Error.
std::vector<Host> parse_hosts(const std::string& text);

// Returns the hosts of a hostfile with this content. Throws rendezvous::Error, which names the file, the line and what
// it has read there.
std::vector<Host> parse_hostfile(const std::string& content, const std::string& path);

// Returns the hosts that are left: those that `include` names, or all but those that `exclude` names; at most one of
// the two is given. Both are as for DeepSpeed: "a@b:0,2" is host a and the slots 0 and 2 of host b. Throws
// rendezvous::Error.
std::vector<Host> choose_hosts(std::vector<Host> hosts, const std::string& include, const std::string& exclude);

// Whether the host is the machine with this name, so that no ssh is needed.
bool is_this_machine(const Host& host, const std::string& own_name);

}  // namespace ddp::launcher
