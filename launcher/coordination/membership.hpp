// SPDX-License-Identifier: BSD-3-Clause
// Finds what this node proves to the other nodes that it belongs to the job (--secret).
//
//     auto        the first of these that is there:
//                   the file that DDPRUN_SECRET_FILE names
//                   /run/secrets/ddprun/secret, where containers have secrets mounted
//                   MUNGE, in a step of Slurm
//     none        nothing
//     [file:]PATH the secret in this file
#pragma once

#include <functional>
#include <string>

#include "launcher/config/launch_config.hpp"
#include "rendezvous/membership/membership.hpp"

namespace ddp::launcher {

struct FoundMembership {
  rendezvous::Membership membership;
  std::string said;  // what it is or why there is none, to go on after "the job's secret: "
};

// Reads `secret` and `agreed_secret` of the configuration, and the variables DDPRUN_SECRET_FILE, SLURM_JOB_ID and
// SLURM_STEP_ID. Throws rendezvous::Error if there is a secret that cannot be used.
FoundMembership find_membership(const LaunchConfig& config);

}  // namespace ddp::launcher
