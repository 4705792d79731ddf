// SPDX-License-Identifier: BSD-3-Clause
// Reads where hosts are in the network (--topology): Slurm's topology.conf, of its plug-ins tree and block, which
// NVIDIA's topograph writes as well.
//
//     SwitchName=leaf1 Nodes=gpu[01-16]              BlockName=rack1 Nodes=gpu[01-18]
//     SwitchName=spine Switches=leaf[1-4]            BlockSizes=18
#pragma once

#include <map>
#include <string>

namespace ddp::launcher {

// Returns a number for each host: hosts below one switch, or in one block, have numbers that follow one another, and so
// have switches below one switch. Throws Error with the line that it cannot read.
std::map<std::string, int> host_places(const std::string& text);
// Reads a file. Errors begin with its name.
std::map<std::string, int> read_host_places(const std::string& path);

}  // namespace ddp::launcher
