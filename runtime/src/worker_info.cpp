// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/src/worker_info.hpp"

#include <charconv>
#include <cstdlib>
#include <limits>

#include "rendezvous/error.hpp"
#include "rendezvous/worker_contract.hpp"

namespace ddp::runtime {
namespace {

namespace contract = rendezvous::contract;
using rendezvous::Error;
using rendezvous::ErrorCode;

constexpr char kHowToStart[] = "start this program with ddprun, for example: ddprun --nproc_per_node 2 PROGRAM";

int parse(const char* name, const std::string& text, int lowest, int highest) {
  int value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data(), end, value);
  if (failure != std::errc() || stop != end || value < lowest || value > highest) {
    throw Error(ErrorCode::InvalidArgument, std::string(name) + " is \"" + text + "\": expected a whole number from " +
                                                std::to_string(lowest) + " to " + std::to_string(highest));
  }
  return value;
}

int parse_if_set(const Environment& environment, const char* name, int lowest, int highest, int otherwise) {
  const std::optional<std::string> text = environment(name);
  return text ? parse(name, *text, lowest, highest) : otherwise;
}

// Nothing describes a job. Under srun every task would train alone and overwrite the others' results.
void refuse_bare_srun(const Environment& environment) {
  const std::optional<std::string> tasks = environment("SLURM_NTASKS");
  if (!tasks || tasks->empty() || *tasks == "1") return;
  throw Error(ErrorCode::InvalidArgument,
              "Slurm gave this job " + *tasks + " tasks, but " + contract::kRank + " and " + contract::kWorldSize +
                  " are not set: start one ddprun per node, for example: srun --ntasks-per-node=1 ddprun --nnodes "
                  "$SLURM_NNODES --nproc_per_node 8 PROGRAM (or set RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 "
                  "MASTER_PORT=29500 to run this process alone)");
}

}  // namespace

std::optional<std::string> process_environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
}

DebugLevel read_debug_level(const Environment& environment) {
  const std::string level = environment(contract::kDebug).value_or("");
  if (level.empty() || level == "off") return DebugLevel::Off;
  if (level == "info") return DebugLevel::Info;
  if (level == "detail") return DebugLevel::Detail;
  throw Error(ErrorCode::InvalidArgument,
              std::string(contract::kDebug) + " is \"" + level + "\": expected off, info or detail");
}

WorkerInfo read_worker_info(const Environment& environment) {
  constexpr int kMany = std::numeric_limits<int>::max();
  std::string present;
  std::string missing;
  for (const char* name : {contract::kRank, contract::kWorldSize, contract::kMasterAddr, contract::kMasterPort}) {
    std::string& list = environment(name) ? present : missing;
    list += (list.empty() ? "" : ", ") + std::string(name);
  }
  WorkerInfo info;
  if (present.empty()) {
    refuse_bare_srun(environment);
    return info;
  }
  if (!missing.empty()) {
    throw Error(ErrorCode::InvalidArgument,
                missing + " not set, though " + present + " would describe a job: " + kHowToStart);
  }
  info.world_size = parse(contract::kWorldSize, *environment(contract::kWorldSize), 1, kMany);
  info.rank = parse(contract::kRank, *environment(contract::kRank), 0, info.world_size - 1);
  info.master_address = *environment(contract::kMasterAddr);
  if (info.master_address.empty()) {
    throw Error(ErrorCode::InvalidArgument, std::string(contract::kMasterAddr) + " is empty: " + kHowToStart);
  }
  info.master_port =
      static_cast<std::uint16_t>(parse(contract::kMasterPort, *environment(contract::kMasterPort), 1, 65535));
  info.local_world_size = parse_if_set(environment, contract::kLocalWorldSize, 1, kMany, 1);
  info.local_rank = parse_if_set(environment, contract::kLocalRank, 0, kMany, 0);
  info.restart_count = parse_if_set(environment, contract::kRestartCount, 0, kMany, 0);
  info.agent_hosts_store = environment(contract::kUseAgentStore) == "True";
  return info;
}

}  // namespace ddp::runtime
