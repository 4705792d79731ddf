// SPDX-License-Identifier: BSD-3-Clause
// Batch schedulers, which run a script on the first node only, and something within it starts ddprun on all of them;
// and starters of MPI.
#include <algorithm>

#include "launcher/platform/rows.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/slurm_step.hpp"

namespace ddp::launcher {
namespace {

std::string short_name(const std::string& host) { return host.substr(0, host.find('.')); }

// Returns the place of this machine in a list of host names, which may be short or full; nothing if it is not there.
std::optional<int> place_of(const std::string& own, const std::vector<std::string>& hosts) {
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    if (short_name(hosts[i]) == short_name(own)) return static_cast<int>(i);
  }
  return std::nullopt;
}

std::vector<std::string> without_repeats(const std::vector<std::string>& words) {
  std::vector<std::string> result;
  for (const std::string& word : words) {
    if (std::find(result.begin(), result.end(), word) == result.end()) result.push_back(word);
  }
  return result;
}

// ---- Slurm ----

// Whether this process is one of a step that srun started, and not a batch script, the shell of salloc or the one of
// srun --pty, which are alone on the first node whatever the variables say.
bool is_in_step(const Surroundings& here) {
  const std::string step = here.variable("SLURM_STEP_ID");
  const bool has_number = rendezvous::parse_number<std::uint64_t>(step).has_value();
  return has_number && !rendezvous::is_special_step(step) && here.variable("SLURM_PTY_PORT").empty();
}

std::optional<PlatformJob> slurm_allocation(const Surroundings& here) {
  const auto nodes = number_in(here, "SLURM_JOB_NUM_NODES", 1);
  if (!nodes || *nodes < 2 || here.variable("SLURM_JOB_ID").empty()) return std::nullopt;
  PlatformJob job{.platform = "Slurm", .nodes = nodes};
  if (!here.variable("SLURM_HET_SIZE").empty()) {
    job.refusal =
        "this job of Slurm has several components, and ddprun would run on one node of one: start it by "
        "srun --het-group=0,1 --ntasks-per-node=1 ddprun ..., or give --standalone for this node alone";
    return job;
  }
  const std::string count = std::to_string(*nodes);
  job.start_on_all = {"srun",      "--nodes=" + count, "--ntasks=" + count, "--ntasks-per-node=1",
                      "--overlap", "--mem=0",          "--cpu-bind=none",   "--immediate=30"};
  return job;
}

}  // namespace

std::optional<PlatformJob> find_slurm(const Surroundings& here) {
  if (!is_in_step(here)) return slurm_allocation(here);
  const auto nodes = number_in(here, "SLURM_STEP_NUM_NODES", 1);
  const auto tasks = number_in(here, "SLURM_STEP_NUM_TASKS", 1);
  if (!nodes || !tasks || *tasks < 2) return std::nullopt;
  auto job = job_of_nodes(here, "Slurm", "SLURM_STEP_NUM_NODES", "SLURM_NODEID").value_or(PlatformJob{"Slurm"});
  if (*tasks != *nodes) {
    job.refusal = "srun has started " + std::to_string(*tasks) + " ddprun on " + std::to_string(*nodes) +
                  (*nodes == 1 ? " node" : " nodes") +
                  ", each of which would be a job of its own. Start one on each node: srun --ntasks-per-node=1 ddprun "
                  "...; or give --standalone if " +
                  std::to_string(*tasks) + " jobs are what you want";
    return job;
  }
  job.host = rendezvous::first_node_of_step(here.variable);
  if (const auto step = rendezvous::slurm_step(here.variable("SLURM_JOB_ID"), here.variable("SLURM_STEP_ID"))) {
    job.id = step->id;
    job.ports = step->ports;
  }
  return job;
}

bool is_task_of_slurm(const Surroundings& here, int pid) {
  return here.variable("SLURM_TASK_PID") == std::to_string(pid);
}

// ---- LSF ----

// blaunch starts a process on each host and tells it nothing but the hosts: "h1 8 h2 8".
std::optional<PlatformJob> find_lsf(const Surroundings& here) {
  const auto words = words_of(here.variable("LSB_MCPU_HOSTS"), " ");
  std::vector<std::string> hosts;
  for (std::size_t i = 0; i < words.size(); i += 2) hosts.push_back(words[i]);
  if (hosts.size() < 2 || here.variable("LSB_JOBID").empty()) return std::nullopt;
  PlatformJob job{.platform = "LSF", .nodes = static_cast<int>(hosts.size()), .host = hosts.front()};
  job.node_rank = place_of(here.host, hosts);
  if (!job.node_rank) {
    job.refusal = "this job of LSF has the hosts " + rendezvous::list_of(hosts, 8) + ", and not this one, " +
                  here.host + ": start ddprun on each of them by blaunch, or give --standalone";
  }
  const std::string index = here.variable("LSB_JOBINDEX");
  take_id(job, "lsf-" + here.variable("LSB_JOBID") + (index.empty() || index == "0" ? "" : "." + index));
  return job;
}

// ---- PBS ----

// pbsdsh starts a process on each node with the variables below. The list of nodes is on the first one only, where the
// batch script is task 1.
std::optional<PlatformJob> find_pbs(const Surroundings& here) {
  const std::string id = here.variable("PBS_JOBID");
  if (id.empty()) return std::nullopt;
  const auto hosts = without_repeats(words_of(here.file(here.variable("PBS_NODEFILE")), "\n\r "));
  const auto rank = number_in(here, "PBS_NODENUM");
  const int count = std::max(static_cast<int>(hosts.size()), number_in(here, "PBS_NUM_NODES").value_or(0));
  const bool is_script = number_in(here, "PBS_TASKNUM").value_or(1) == 1;
  if (count < 2 && (is_script || rank.value_or(0) == 0)) return std::nullopt;
  PlatformJob job{.platform = "PBS", .node_rank = rank};
  if (count >= 2) job.nodes = count;
  if (!hosts.empty()) job.host = hosts.front();
  take_id(job, "pbs-" + id);
  if (count < 2) {
    job.refusal = "PBS says that this is node " + std::to_string(*rank) +
                  " of the job, and not how many there are: give --nnodes and --master-addr too, or --standalone for "
                  "this node alone";
  } else if (is_script) {
    job.refusal = "this job of PBS has " + std::to_string(count) +
                  " nodes, and ddprun would run on this one only: start it on all by pbsdsh -- ddprun --nnodes " +
                  std::to_string(count) + " --master-addr " + job.host +
                  " ... with the full path of ddprun, or give --standalone";
  }
  return job;
}

// ---- MPI's mpirun and mpiexec, which start one process a slot: right for ddprun only where that is one a host ----

namespace {

std::string too_many(const std::string& starter, int here, const std::string& one_a_host) {
  return starter + " has started " + std::to_string(here) +
         " ddprun on this host, each of which would be a job of its own. Start one on each host: " + one_a_host +
         " ddprun ...; or start a program of libddp without ddprun; or give --standalone if " + std::to_string(here) +
         " jobs are what you want";
}

}  // namespace

std::optional<PlatformJob> find_open_mpi(const Surroundings& here) {
  auto job = job_of_nodes(here, "Open MPI", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK");
  if (!job) return job;
  const int local = number_in(here, "OMPI_COMM_WORLD_LOCAL_SIZE", 1).value_or(1);
  if (local > 1) job->refusal = too_many("mpirun", local, "mpirun --map-by ppr:1:node");
  if (!here.variable("PMIX_NAMESPACE").empty()) job->exchange = rendezvous::KeyValueStore::Pmix;
  return job;
}

// MPICH and Intel MPI (Hydra), and HPE's PALS. srun --mpi=pmi2 sets PMI_RANK too, and is a matter of Slurm's row.
std::optional<PlatformJob> find_pmi(const Surroundings& here) {
  if (here.variable("PMI_RANK") == here.variable("SLURM_PROCID")) return std::nullopt;
  const bool is_pals = !here.variable("PALS_RANKID").empty();
  auto job = job_of_nodes(here, is_pals ? "PALS" : "PMI", "PMI_SIZE", "PMI_RANK");
  if (!job) return job;
  const int local = number_in(here, is_pals ? "PALS_LOCAL_SIZE" : "MPI_LOCALNRANKS", 1).value_or(1);
  if (!here.variable("PMI_FD").empty()) job->exchange = rendezvous::KeyValueStore::Pmi;
  if (local > 1) job->refusal = too_many("mpiexec", local, is_pals ? "mpiexec --ppn 1" : "mpiexec -ppn 1");
  return job;
}

}  // namespace ddp::launcher
