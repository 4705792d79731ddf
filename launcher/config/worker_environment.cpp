// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/config/worker_environment.hpp"

#include <unistd.h>

#include "launcher/text/template.hpp"
#include "rendezvous/worker_contract.hpp"

namespace ddp::launcher {

namespace contract = rendezvous::contract;

namespace {

// Variables that are not inherited: ddprun sets them for each worker, except the last two, which workers never get.
constexpr const char* kOurs[] = {contract::kIncarnation, contract::kLivenessWord, contract::kAgentSocket,
                                 contract::kKeptMemory,  contract::kTrace,        contract::kStorePort,
                                 contract::kSecretFile,  contract::kCaller};

}  // namespace

Environment inherited_environment() {
  Environment environment;
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string text = *entry;
    const auto equals = text.find('=');
    if (equals != std::string::npos) environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

VisibleGpus gpus_of_workers(const LaunchConfig& config) {
  VisibleGpus gpus = visible_gpus(config.gpus);
  if (config.virtual_local_rank) gpu_of_worker(gpus, config.workers - 1);  // enough?
  return gpus;
}

std::string shared_gpus(const LaunchConfig& config, const VisibleGpus& gpus) {
  const int count = gpus.count();
  if (config.virtual_local_rank || count == 0 || count >= config.workers) return "";
  return std::to_string(config.workers) + " workers share " +
         (count == 1 ? "one GPU" : std::to_string(count) + " GPUs") + "; --nproc-per-node gpu starts one for each";
}

Environment node_environment(const LaunchConfig& config, const Environment& inherited, const VisibleGpus& gpus) {
  Environment env = inherited;
  for (const char* name : kOurs) env.erase(name);
  // The value of an outer job means nothing here; if there is no outer job the user has set it.
  if (inherited.count(contract::kRunId) > 0) env.erase(contract::kTimerFile);
  if (!config.timer_file.empty()) env[contract::kTimerFile] = config.timer_file;

  // torchrun's variables of a node, and defaults for what the user has not set.
  env[contract::kLocalWorldSize] = std::to_string(config.workers);
  env[contract::kRoleName] = config.role;
  env[contract::kRunId] = config.job.id;
  env[contract::kUseAgentStore] = config.workers_share_store ? "True" : "False";
  env[contract::kSignalsToHandle] = config.stop_signal_names;
  env.emplace(contract::kNcclAsyncErrorHandling, "1");
  if (config.workers > 1) env.emplace(contract::kOmpNumThreads, "1");
  // torchrun leaves it to the driver to find all GPUs. So does ddprun, but for NVIDIA's.
  if (gpus.list && (config.gpus || gpus.kind == GpuKind::Nvidia)) {
    for (const char* variable : variables_of(gpus.kind)) env[variable] = *gpus.list;
  }
  return env;
}

Environment worker_environment(const LaunchConfig& config, const rendezvous::Assignment& assignment,
                               const WorkerPlace& place, const Environment& inherited, const VisibleGpus& gpus) {
  Environment env = node_environment(config, inherited, gpus);
  env[contract::kRank] = std::to_string(assignment.base_rank + place.local_rank);
  env[contract::kWorldSize] = std::to_string(assignment.world_size);
  env[contract::kLocalRank] = config.virtual_local_rank ? "0" : std::to_string(place.local_rank);
  env[contract::kGroupRank] = std::to_string(assignment.node_rank);
  env[contract::kGroupWorldSize] = std::to_string(assignment.node_count);
  env[contract::kRoleRank] = std::to_string(assignment.base_role_rank + place.local_rank);
  env[contract::kRoleWorldSize] = std::to_string(assignment.role_world_size);
  env[contract::kMasterAddr] = assignment.master_addr;
  env[contract::kMasterPort] = std::to_string(assignment.master_port);
  env[contract::kStorePort] = env[contract::kMasterPort];
  env[contract::kRestartCount] = std::to_string(assignment.restart_count);
  env[contract::kMaxRestarts] = std::to_string(assignment.max_restarts);
  env[contract::kErrorFile] = place.error_file;
  env[contract::kIncarnation] = place.incarnation;
  if (!place.liveness_word.empty()) env[contract::kLivenessWord] = place.liveness_word;
  if (!place.agent_socket.empty()) {
    env[contract::kAgentSocket] = place.agent_socket;
    if (config.keep_memory == KeepMemory::Yes) env[contract::kKeptMemory] = contract::kKeptPlain;
    if (config.keep_memory == KeepMemory::Shadow) env[contract::kKeptMemory] = contract::kKeptShadow;
    if (!config.trace_file.empty()) env[contract::kTrace] = "1";
  }
  if (config.virtual_local_rank) {
    const std::string gpu = gpu_of_worker(gpus, place.local_rank);
    env[contract::kCudaVisibleDevices] = gpu;  // as torchrun does whatever GPUs there are
    for (const char* variable : variables_of(gpus.kind)) env[variable] = gpu;
  }
  return env;
}

std::vector<std::string> worker_command(const LaunchConfig& config, int local_rank) {
  std::vector<std::string> command = config.program.prefix;
  for (const std::string& argument : config.program_args) {
    command.push_back(substitute(argument, {{"local_rank", std::to_string(local_rank)}}));
  }
  return command;
}

}  // namespace ddp::launcher
