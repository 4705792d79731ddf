// SPDX-License-Identifier: BSD-3-Clause
// The ports at which the processes of a job meet where nobody has given one: they follow from the job's number or id,
// so that all of its processes know them, and jobs that share a node have others.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ddp::rendezvous {

// Returns eight ports for the number. Each is to be tried where those before it are taken. Numbers that lie close
// together have different first ports. All lie below those that the kernel assigns, from 32768 on.
std::vector<std::uint16_t> job_ports(std::uint64_t number);

// Returns eight ports for an id.
std::vector<std::uint16_t> job_ports(const std::string& id);

}  // namespace ddp::rendezvous
