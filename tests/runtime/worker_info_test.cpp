// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/src/worker_info.hpp"

#include <catch2/catch.hpp>
#include <map>

#include "rendezvous/error.hpp"

using Catch::Matchers::Contains;
using ddp::runtime::read_worker_info;
using ddp::runtime::WorkerInfo;
using Variables = std::map<std::string, std::string>;

namespace {

WorkerInfo read(const Variables& variables) {
  return read_worker_info([&](const char* name) -> std::optional<std::string> {
    const auto it = variables.find(name);
    return it != variables.end() ? std::optional(it->second) : std::nullopt;
  });
}

Variables job(const Variables& changes = {}) {
  Variables result = {{"RANK", "3"}, {"WORLD_SIZE", "8"}, {"MASTER_ADDR", "node-a"}, {"MASTER_PORT", "29500"}};
  for (const auto& [name, value] : changes) result[name] = value;
  return result;
}

}  // namespace

TEST_CASE("worker info: nothing set is a world of one", "[runtime][unit]") {
  const WorkerInfo info = read({});
  CHECK(info.rank == 0);
  CHECK(info.world_size == 1);
  CHECK(info.local_world_size == 1);
}

TEST_CASE("worker info: reads what ddprun and torchrun set", "[runtime][unit]") {
  const WorkerInfo info = read(job({{"LOCAL_RANK", "1"},
                                    {"LOCAL_WORLD_SIZE", "2"},
                                    {"TORCHELASTIC_RESTART_COUNT", "4"},
                                    {"TORCHELASTIC_USE_AGENT_STORE", "True"}}));
  CHECK(info.rank == 3);
  CHECK(info.world_size == 8);
  CHECK(info.local_rank == 1);
  CHECK(info.local_world_size == 2);
  CHECK(info.restart_count == 4);
  CHECK(info.master_address == "node-a");
  CHECK(info.master_port == 29500);
  CHECK(info.agent_hosts_store);
}

TEST_CASE("worker info: the launcher hosts the store only if it says exactly True", "[runtime][unit]") {
  CHECK_FALSE(read(job()).agent_hosts_store);
  CHECK_FALSE(read(job({{"TORCHELASTIC_USE_AGENT_STORE", "False"}})).agent_hosts_store);
  CHECK_FALSE(read(job({{"TORCHELASTIC_USE_AGENT_STORE", "true"}})).agent_hosts_store);
}

TEST_CASE("worker info: what is missing is named, and how to start", "[runtime][unit]") {
  CHECK_THROWS_WITH(
      read({{"RANK", "0"}, {"WORLD_SIZE", "2"}}),
      "MASTER_ADDR, MASTER_PORT not set, though RANK, WORLD_SIZE would describe a job: start this program "
      "with ddprun, for example: ddprun --nproc_per_node 2 PROGRAM");
}

TEST_CASE("worker info: a value that makes no sense is quoted", "[runtime][unit]") {
  CHECK_THROWS_WITH(read(job({{"RANK", "8"}})), "RANK is \"8\": expected a whole number from 0 to 7");
  CHECK_THROWS_WITH(read(job({{"RANK", "-1"}})), Contains("RANK is \"-1\""));
  CHECK_THROWS_WITH(read(job({{"RANK", ""}})), Contains("RANK is \"\""));
  CHECK_THROWS_WITH(read(job({{"WORLD_SIZE", "2x"}})), Contains("WORLD_SIZE is \"2x\""));
  CHECK_THROWS_WITH(read(job({{"WORLD_SIZE", "0"}})), Contains("from 1 to"));
  CHECK_THROWS_WITH(read(job({{"MASTER_PORT", "65536"}})),
                    "MASTER_PORT is \"65536\": expected a whole number from 1 to 65535");
  CHECK_THROWS_WITH(read(job({{"MASTER_ADDR", ""}})), Contains("MASTER_ADDR is empty"));
  CHECK_THROWS_WITH(read(job({{"LOCAL_RANK", "x"}})), Contains("LOCAL_RANK is \"x\""));
}

TEST_CASE("worker info: several Slurm tasks without ddprun are refused, one is fine", "[runtime][unit]") {
  CHECK_THROWS_WITH(read({{"SLURM_NTASKS", "16"}}), Contains("16 tasks") && Contains("start one ddprun per node"));
  CHECK(read({{"SLURM_NTASKS", "1"}}).world_size == 1);
  CHECK(read(job({{"SLURM_NTASKS", "16"}})).world_size == 8);
}
