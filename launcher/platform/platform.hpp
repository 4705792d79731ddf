// SPDX-License-Identifier: BSD-3-Clause
// What a platform says about the job: a scheduler such as Slurm, or a service such as SkyPilot, that starts one ddprun
// on each of several nodes and describes the job in the environment. Each platform is a row of the table in
// platform.cpp; the first row that recognises its variables counts.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/membership/secret.hpp"
#include "rendezvous/process_manager/exchange.hpp"

namespace ddp::launcher {

// What the nodes of a job agree on that an MPI's starter has started: where they meet, and a secret.
struct Agreement {
  rendezvous::MeetingPoint point;
  std::optional<rendezvous::Secret> secret = {};  // a new one, which only processes of this starter know
};

// Must be called before there are threads. Removes the variables of the starter from the environment: it is done with
// this process, and workers that found them would take themselves for its ranks. Throws rendezvous::Error.
Agreement agree_by_starter(rendezvous::KeyValueStore store, int node_rank);

// Where ddprun was started. A test makes one from recorded variables.
struct Surroundings {
  std::function<std::string(const char* name)> variable;     // the value of a variable; empty if it is not set
  std::function<std::string(const std::string& path)> file;  // the content of a file; empty if it cannot be read
  std::string host;                                          // this machine's name
  std::function<Agreement(rendezvous::KeyValueStore, int node_rank)> agree_by_starter = {};  // see there
};

// Returns the surroundings of this process.
Surroundings own_surroundings();

struct PlatformJob {
  std::string platform;                   // its name, for messages: "SkyPilot"
  std::optional<int> nodes = {};          // more than one; absent: the platform does not say
  std::optional<int> node_rank = {};      // the rank of this node
  std::string host = {};                  // name or address of node rank 0; empty: the platform does not say
  std::vector<std::uint16_t> ports = {};  // where node rank 0 may listen; the first that is free counts. Empty: unsaid
  std::optional<int> workers = {};        // GPUs of this node, where the platform counts them
  std::string id = {};  // different for any two jobs that could meet; empty: the platform does not say

  // Whether node rank 0 can tell the others its address, by the store of the program that started them all.
  std::optional<rendezvous::KeyValueStore> exchange = {};

  // Not empty: there are several ddprun here that nothing makes one job, and this is what to do instead.
  std::string refusal = {};
  // Not empty: the job has several nodes, and ddprun runs on one of them only. This command, with ddprun's own command
  // line behind it, starts it on all of them.
  std::vector<std::string> start_on_all = {};
};

// Returns what the first platform says that recognises its variables. Nothing if there is none, if there is one node
// only, and in a worker of ddprun or torchrun, where the variables are those of the job around it.
std::optional<PlatformJob> find_platform(const Surroundings& surroundings);

// Whether Slurm's slurmstepd has started this very process, so that it is the parent.
bool is_task_of_slurm(const Surroundings& surroundings, int pid);

// Whether this is a worker of ddprun or torchrun, or was started by one.
bool is_within_worker(const Surroundings& surroundings);

// Returns the name of each platform, in the order in which they are looked for.
std::vector<std::string> platform_names();

}  // namespace ddp::launcher
