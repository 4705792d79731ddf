// SPDX-License-Identifier: BSD-3-Clause
// The rows of the table of platforms, and what they share. Each row returns nothing if its variables are not there.
#pragma once

#include "launcher/platform/platform.hpp"

namespace ddp::launcher {

// Services that start one process on each node.
std::optional<PlatformJob> find_skypilot(const Surroundings& here);
std::optional<PlatformJob> find_dstack(const Surroundings& here);
std::optional<PlatformJob> find_sagemaker(const Surroundings& here);
std::optional<PlatformJob> find_lepton(const Surroundings& here);
std::optional<PlatformJob> find_aws_batch(const Surroundings& here);

// Programs that start MPI's ranks.
std::optional<PlatformJob> find_open_mpi(const Surroundings& here);
std::optional<PlatformJob> find_pmi(const Surroundings& here);

// Batch schedulers.
std::optional<PlatformJob> find_slurm(const Surroundings& here);
std::optional<PlatformJob> find_lsf(const Surroundings& here);
std::optional<PlatformJob> find_pbs(const Surroundings& here);

// Kubernetes.
std::optional<PlatformJob> find_pod_ranks(const Surroundings& here);  // RANK and WORLD_SIZE of pods
std::optional<PlatformJob> find_indexed_job(const Surroundings& here);

// Returns the variable's number; nothing if it is not set. Throws rendezvous::Error if it is no number, or below `low`.
std::optional<int> number_in(const Surroundings& here, const char* variable, int low = 0);

// Returns the job that these variables describe, if there are several nodes. `nodes` and `rank` name the variables.
// Throws rendezvous::Error if they contradict each other.
std::optional<PlatformJob> job_of_nodes(const Surroundings& here, const std::string& platform, const char* nodes,
                                        const char* rank);

// Throws rendezvous::Error that quotes two variables which cannot both be right.
[[noreturn]] void refuse_contradiction(const Surroundings& here, const std::string& platform, const char* one,
                                       const char* other);

// Sets the job's id, and its ports to those that follow from it, so that jobs that share a node meet at different ones.
// Does nothing if the id is empty.
void take_id(PlatformJob& job, const std::string& id);

// Returns a number of GPUs; nothing if there are none, or the variable is not set.
std::optional<int> gpus_in(const Surroundings& here, const char* variable);

// Returns the words of a list, which any of these characters separate.
std::vector<std::string> words_of(const std::string& text, const std::string& separators);

}  // namespace ddp::launcher
