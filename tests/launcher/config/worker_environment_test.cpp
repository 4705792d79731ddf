// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/config/worker_environment.hpp"

#include <catch2/catch.hpp>

#include "launcher/placement/gpus.hpp"

using namespace ddp::launcher;
using ddp::rendezvous::Assignment;

namespace {

LaunchConfig config_of(int workers) {
  LaunchConfig config;
  config.workers = workers;
  config.job.id = "job7";
  config.role = "trainer";
  config.stop_signal_names = "SIGTERM,SIGINT";
  return config;
}

const Assignment kPlace{.node_rank = 1,
                        .node_count = 2,
                        .base_rank = 8,
                        .world_size = 16,
                        .base_role_rank = 2,
                        .role_world_size = 10,
                        .restart_count = 2,
                        .max_restarts = 3,
                        .master_addr = "10.0.0.1",
                        .master_port = 29500};

}  // namespace

TEST_CASE("worker environment: holds torchrun's whole table", "[launcher][unit]") {
  const auto env = worker_environment(config_of(8), kPlace, {3, "00ff", "/logs/error.json", "/proc/1/fd/9:3"},
                                      {{"HOME", "/root"}}, {});
  const Environment expected = {{"HOME", "/root"},
                                {"RANK", "11"},
                                {"WORLD_SIZE", "16"},
                                {"LOCAL_RANK", "3"},
                                {"LOCAL_WORLD_SIZE", "8"},
                                {"GROUP_RANK", "1"},
                                {"GROUP_WORLD_SIZE", "2"},
                                {"ROLE_NAME", "trainer"},
                                {"ROLE_RANK", "5"},
                                {"ROLE_WORLD_SIZE", "10"},
                                {"MASTER_ADDR", "10.0.0.1"},
                                {"MASTER_PORT", "29500"},
                                {"DDPRUN_STORE_PORT", "29500"},
                                {"TORCHELASTIC_RESTART_COUNT", "2"},
                                {"TORCHELASTIC_MAX_RESTARTS", "3"},
                                {"TORCHELASTIC_RUN_ID", "job7"},
                                {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                {"TORCHELASTIC_ERROR_FILE", "/logs/error.json"},
                                {"TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT"},
                                {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
                                {"OMP_NUM_THREADS", "1"},
                                {"DDPRUN_INCARNATION", "00ff"},
                                {"DDPRUN_LIVENESS_WORD", "/proc/1/fd/9:3"}};
  CHECK(env == expected);
}

TEST_CASE("worker environment: what the user set stays, OMP_NUM_THREADS stays unset for one worker",
          "[launcher][unit]") {
  const Environment own = {
      {"OMP_NUM_THREADS", "4"}, {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "0"}, {"TORCHELASTIC_TIMER_FILE", "/x"}};
  const auto env = worker_environment(config_of(8), kPlace, {}, own, {});
  CHECK(env.at("OMP_NUM_THREADS") == "4");
  CHECK(env.at("TORCH_NCCL_ASYNC_ERROR_HANDLING") == "0");
  CHECK(env.at("TORCHELASTIC_TIMER_FILE") == "/x");
  CHECK(worker_environment(config_of(1), kPlace, {}, {}, {}).count("OMP_NUM_THREADS") == 0);
}

TEST_CASE("worker environment: an outer job's variables do not leak in", "[launcher][unit]") {
  const Environment outer = {{"RANK", "77"},
                             {"TORCHELASTIC_RUN_ID", "outer"},
                             {"DDPRUN_INCARNATION", "outer"},
                             {"DDPRUN_LIVENESS_WORD", "outer"},
                             {"DDPRUN_STORE_PORT", "1"},
                             {"TORCHELASTIC_TIMER_FILE", "/x"}};
  const auto env = worker_environment(config_of(1), kPlace, {0, "inner", ""}, outer, {});
  CHECK(env.at("RANK") == "8");
  CHECK(env.at("DDPRUN_INCARNATION") == "inner");
  CHECK(env.at("DDPRUN_STORE_PORT") == "29500");
  CHECK(env.count("DDPRUN_LIVENESS_WORD") == 0);
  CHECK(env.count("TORCHELASTIC_TIMER_FILE") == 0);
}

TEST_CASE("worker environment: workers find the FIFO for timers, whatever was inherited", "[launcher][unit]") {
  LaunchConfig config = config_of(1);
  config.timer_file = "/tmp/timers";
  const Environment outer = {{"TORCHELASTIC_RUN_ID", "outer"}, {"TORCHELASTIC_TIMER_FILE", "/x"}};
  CHECK(worker_environment(config, kPlace, {}, outer, {}).at("TORCHELASTIC_TIMER_FILE") == "/tmp/timers");
  CHECK(worker_environment(config, kPlace, {}, {}, {}).at("TORCHELASTIC_TIMER_FILE") == "/tmp/timers");
}

TEST_CASE("worker environment: a worker's own GPU is its entry of the list", "[launcher][unit]") {
  CHECK(gpu_of_worker({GpuKind::Nvidia, "4, 5"}, 1) == "5");
  CHECK(gpu_of_worker({GpuKind::Nvidia, "GPU-abc,GPU-def"}, 0) == "GPU-abc");
  CHECK(gpu_of_worker({GpuKind::Nvidia, ""}, 3).empty());
  CHECK_THROWS_WITH(gpu_of_worker({GpuKind::Nvidia, "4,5"}, 2), Catch::Contains("there are 2 (CUDA_VISIBLE_DEVICES"));
  CHECK_THROWS_WITH(gpu_of_worker({GpuKind::Intel, "0"}, 1), Catch::Contains("there are 1 (ZE_AFFINITY_MASK=0)"));
}

TEST_CASE("worker environment: with --virtual-local-rank the kind of GPU says which variable holds the worker's own",
          "[launcher][unit]") {
  LaunchConfig config = config_of(8);
  config.virtual_local_rank = true;
  const auto seen_by_3 = [&](const VisibleGpus& gpus) {
    Environment seen =
        worker_environment(config, kPlace, {.local_rank = 3, .incarnation = "", .error_file = ""}, {}, gpus);
    std::erase_if(seen, [](const auto& entry) {
      return entry.first.find("_DEVICES") == std::string::npos && entry.first != "ZE_AFFINITY_MASK";
    });
    return seen;
  };
  CHECK(seen_by_3({}) == Environment{{"CUDA_VISIBLE_DEVICES", "3"}});  // torchrun's numbers where no GPU is found
  CHECK(seen_by_3({GpuKind::Nvidia, "4,5,6,7"}) == Environment{{"CUDA_VISIBLE_DEVICES", "7"}});
  CHECK(seen_by_3({GpuKind::Amd, "4,5,6,7"}) ==
        Environment{{"CUDA_VISIBLE_DEVICES", "7"}, {"HIP_VISIBLE_DEVICES", "7"}});
  CHECK(seen_by_3({GpuKind::Intel, "0.0,0.1,1.0,1.1"}) ==
        Environment{{"CUDA_VISIBLE_DEVICES", "1.1"}, {"ZE_AFFINITY_MASK", "1.1"}});
  CHECK(seen_by_3({GpuKind::Ascend, "0,1,2,3"}) ==
        Environment{{"ASCEND_RT_VISIBLE_DEVICES", "3"}, {"CUDA_VISIBLE_DEVICES", "3"}});
}

TEST_CASE("worker environment: GPUs that are found are named to all workers only if they are NVIDIA's",
          "[launcher][unit]") {
  LaunchConfig config = config_of(2);
  CHECK(node_environment(config, {}, {GpuKind::Nvidia, "0,1"}).at("CUDA_VISIBLE_DEVICES") == "0,1");
  CHECK(node_environment(config, {}, {GpuKind::Amd, "0,1"}).count("CUDA_VISIBLE_DEVICES") == 0);
  config.gpus = "1";
  const Environment chosen = node_environment(config, {{"HIP_VISIBLE_DEVICES", "0"}}, {GpuKind::Amd, "1"});
  CHECK((chosen.at("CUDA_VISIBLE_DEVICES") == "1" && chosen.at("HIP_VISIBLE_DEVICES") == "1"));
}

TEST_CASE("worker environment: a variable says whether ddprun hosts the store", "[launcher][unit]") {
  LaunchConfig config = config_of(1);
  CHECK(node_environment(config, {}, {}).at("TORCHELASTIC_USE_AGENT_STORE") == "True");
  config.workers_share_store = false;
  CHECK(node_environment(config, {}, {}).at("TORCHELASTIC_USE_AGENT_STORE") == "False");
}

TEST_CASE("worker command: local_rank is replaced as Python's templates do", "[launcher][unit]") {
  LaunchConfig config;
  config.program.prefix = {"p"};
  config.program_args = {"$local_rank", "${local_rank}x", "$$local_rank", "$local_ranks", "$other", "100$"};
  CHECK(worker_command(config, 3) ==
        std::vector<std::string>{"p", "3", "3x", "$local_rank", "$local_ranks", "$other", "100$"});
}
