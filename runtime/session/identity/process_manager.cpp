// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/session/identity/process_manager.hpp"

#include <dlfcn.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <mutex>
#include <string>
#include <system_error>

#include "rendezvous/base/error.hpp"
#include "rendezvous/base/text_stream.hpp"
#include "rendezvous/machine/process_folder.hpp"
#include "rendezvous/process_manager/exchange.hpp"
#include "rendezvous/slurm_step.hpp"
#include "rendezvous/worker_contract.hpp"

namespace ddp::runtime {
namespace {

namespace contract = rendezvous::contract;
using rendezvous::Error;
using rendezvous::ErrorCode;
using rendezvous::invalid_argument;

constexpr int kNoLimit = std::numeric_limits<int>::max();

// ---- Which process manager it is ----

std::optional<ProcessManager> find_open_mpi(const Environment& environment) {
  const auto rank = setting(environment, "OMPI_COMM_WORLD_RANK");
  const auto world_size = setting(environment, "OMPI_COMM_WORLD_SIZE");
  if (!rank || !world_size) return std::nullopt;
  return ProcessManager{ProcessManager::Kind::OpenMpi,
                        *rank,
                        *world_size,
                        setting(environment, "OMPI_COMM_WORLD_LOCAL_RANK"),
                        setting(environment, "OMPI_COMM_WORLD_LOCAL_SIZE"),
                        std::nullopt};
}

std::optional<ProcessManager> find_pmi(const Environment& environment) {
  const auto rank = setting(environment, "PMI_RANK");
  const auto world_size = setting(environment, "PMI_SIZE");
  if (!rank || !world_size) return std::nullopt;
  return ProcessManager{ProcessManager::Kind::Pmi,
                        *rank,
                        *world_size,
                        setting(environment, "MPI_LOCALRANKID"),
                        setting(environment, "MPI_LOCALNRANKS"),
                        std::nullopt};
}

rendezvous::SlurmVariable slurm_variables(const Environment& environment) {
  return [&environment](const char* name) { return environment(name).value_or(""); };
}

std::optional<Setting> tasks_on_this_node(const Environment& environment) {
  const auto count = rendezvous::tasks_on_node(slurm_variables(environment));
  if (!count) return std::nullopt;
  return Setting{"SLURM_STEP_TASKS_PER_NODE", std::to_string(*count)};
}

std::optional<ProcessManager> find_slurm(const Environment& environment) {
  const auto rank = setting(environment, "SLURM_PROCID");
  const auto step = setting(environment, "SLURM_STEP_ID");
  const auto world_size = first_setting(environment, {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"});
  if (!rank || !step || !world_size) return std::nullopt;
  if (rendezvous::is_special_step(step->text)) return std::nullopt;
  return ProcessManager{ProcessManager::Kind::Slurm,
                        *rank,
                        *world_size,
                        setting(environment, "SLURM_LOCALID"),
                        tasks_on_this_node(environment),
                        setting(environment, "SLURM_RESTART_COUNT")};
}

// ---- Where the ranks meet ----

void meet_at_first_node(RendezvousPoint& place, const Environment& environment) {
  place.host = rendezvous::first_node_of_step(slurm_variables(environment));
  if (place.host.empty()) {
    invalid_argument("SLURM_STEP_NODELIST not set, though SLURM_PROCID is: set MASTER_ADDR to the node of rank 0");
  }
  if (environment("SLURM_PROCID") == "0" && environment("SLURM_NODEID").value_or("0") != "0") {
    invalid_argument("rank 0 is not on the step's first node " + place.host +
                     " (srun --distribution=arbitrary?): set MASTER_ADDR to the node that it is on");
  }
}

void meet_in_step(RendezvousPoint& place, const Environment& environment) {
  const auto job = setting(environment, "SLURM_JOB_ID");
  const auto step = setting(environment, "SLURM_STEP_ID");
  if (place.host.empty()) meet_at_first_node(place, environment);
  if (!job || !step) {
    if (place.port == 0)
      invalid_argument("SLURM_JOB_ID or SLURM_STEP_ID not set, though SLURM_PROCID is: set MASTER_PORT");
    return;
  }
  const auto named = rendezvous::slurm_step(job->text, step->text);
  if (!named) {
    invalid_argument("SLURM_JOB_ID is \"" + job->text + "\" and SLURM_STEP_ID \"" + step->text + "\": no numbers");
  }
  place.job = named->id;
  if (place.port != 0) return;
  place.port = named->ports.front();
  place.port_is_derived = true;
}

// Returns a folder that only this user can write to, so that its contents can be trusted.
std::string own_folder(const Environment& environment) {
  const std::string path = environment("TMPDIR").value_or("/tmp") + "/libddp-" + std::to_string(geteuid());
  struct stat status = {};
  if ((mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) || lstat(path.c_str(), &status) != 0) {
    throw Error(ErrorCode::System, path + ": making this folder, in which ranks find each other: " +
                                       std::generic_category().message(errno) + " (set TMPDIR to another place)");
  }
  if (!S_ISDIR(status.st_mode) || status.st_uid != geteuid() || (status.st_mode & 077) != 0) {
    throw Error(ErrorCode::System, path + " is not a folder that only this user can use: remove it, or set TMPDIR");
  }
  return path;
}

// Returns "PID-START" of the process that made the other end of the socket, or "" if there is no such socket. All
// processes that one mpiexec starts on a node have a socket from it, through any shell in between, so this names the
// job.
std::string maker_of_socket(int socket) {
  ucred maker = {};
  socklen_t size = sizeof maker;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &maker, &size) != 0 || maker.pid <= 0) return "";
  rendezvous::FileStream file(rendezvous::process_folder(maker.pid) + "/stat");
  std::string stat;
  if (!std::getline(file, stat)) return "";
  rendezvous::TextStream fields(stat.substr(stat.rfind(')') + 1));
  std::string field;
  constexpr int kStartTime = 22, kBehindName = 3;
  for (int i = kBehindName; i <= kStartTime; ++i) fields >> field;
  return std::to_string(maker.pid) + "-" + field;
}

// Returns a file path that only the ranks of this job on this node share, or "" if none can be derived.
std::string file_of_job(const ProcessManager& process_manager, const Environment& environment) {
  if (process_manager.kind == ProcessManager::Kind::OpenMpi) {
    const auto folder = environment("PMIX_SERVER_TMPDIR");
    const auto name = environment("PMIX_NAMESPACE");
    return folder && name ? *folder + "/libddp." + *name : "";
  }
  const auto socket = setting(environment, "PMI_FD");
  const std::string maker = socket ? maker_of_socket(number(*socket, 0, kNoLimit)) : "";
  return maker.empty() ? "" : own_folder(environment) + "/" + maker;
}

// Whether this program uses MPI itself, whose store the starter's is then.
bool has_mpi() { return ::dlsym(RTLD_DEFAULT, "MPI_Init") != nullptr; }

// Has rank 0 tell the others its address by the starter's own store. The starter answers once in a process's life, so
// later sessions meet where the first one did.
void meet_by_starter(RendezvousPoint& place, const ProcessManager& process_manager) {
  using rendezvous::KeyValueStore;
  static std::mutex mutex;
  static std::optional<rendezvous::MeetingPoint> known;
  const std::lock_guard lock(mutex);
  const bool open_mpi = process_manager.kind == ProcessManager::Kind::OpenMpi;
  if (!known) {
    known = rendezvous::meeting_point(open_mpi ? KeyValueStore::Pmix : KeyValueStore::Pmi,
                                      number(process_manager.rank, 0, kNoLimit));
  }
  place.host = known->host;
  place.port = known->port;
}

void meet_by_mpi(RendezvousPoint& place, const ProcessManager& process_manager, const Environment& environment) {
  const bool open_mpi = process_manager.kind == ProcessManager::Kind::OpenMpi;
  const std::string what = process_manager.world_size.name + " is " + process_manager.world_size.text + ", but " +
                           contract::kMasterAddr + " and " + contract::kMasterPort + " are not set";
  const std::string example = open_mpi ? "mpirun -x MASTER_ADDR=$(hostname) -x MASTER_PORT=29500 PROGRAM"
                                       : "mpiexec -genv MASTER_ADDR $(hostname) -genv MASTER_PORT 29500 PROGRAM";
  const std::string advice = ": set them to the node of rank 0 and a port that is free there, for example: " + example;
  if (!process_manager.local_world_size || process_manager.local_world_size->text != process_manager.world_size.text) {
    if (has_mpi()) {
      invalid_argument(what +
                       ", not all ranks are on one node, and the starter's own store is in use by this program's MPI" +
                       advice);
    }
    try {
      return meet_by_starter(place, process_manager);
    } catch (const Error& error) {
      throw Error(error.code(), what + ", not all ranks are on one node, and " + error.what() + advice);
    }
  }
  place.kind = RendezvousPoint::Kind::PortInFile;
  place.file = file_of_job(process_manager, environment);
  if (place.file.empty()) {
    invalid_argument(what + ", and " +
                     (open_mpi ? "PMIX_SERVER_TMPDIR, where ranks could meet," : "PMI_FD, which names the job,") +
                     " is not there either" + advice);
  }
}

}  // namespace

std::optional<ProcessManager> find_process_manager(const Environment& environment) {
  if (auto open_mpi = find_open_mpi(environment)) return open_mpi;
  auto pmi = find_pmi(environment);
  auto slurm = find_slurm(environment);
  // srun --mpi=pmi2 sets PMI's variables too. Then both agree, and Slurm is the one.
  const bool same =
      pmi && slurm && pmi->rank.text == slurm->rank.text && pmi->world_size.text == slurm->world_size.text;
  return pmi && !same ? pmi : slurm;
}

RendezvousPoint rendezvous_point(const ProcessManager& process_manager, const Environment& environment) {
  RendezvousPoint place;
  place.kind = RendezvousPoint::Kind::Address;
  place.host = environment(contract::kMasterAddr).value_or("");
  if (const auto port = setting(environment, contract::kMasterPort)) {
    place.port = static_cast<std::uint16_t>(number(*port, 1, 65535));
  }
  if (process_manager.kind == ProcessManager::Kind::Slurm) {
    meet_in_step(place, environment);
  } else if (place.host.empty() && place.port == 0) {
    meet_by_mpi(place, process_manager, environment);
  } else if (place.host.empty() || place.port == 0) {
    invalid_argument(std::string(place.host.empty() ? contract::kMasterAddr : contract::kMasterPort) +
                     " not set, though " + (place.host.empty() ? contract::kMasterPort : contract::kMasterAddr) +
                     " is: set both, or neither");
  }
  return place;
}

}  // namespace ddp::runtime
