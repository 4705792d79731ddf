// SPDX-License-Identifier: BSD-3-Clause
// Everything the user decided, checked and resolved: what apps/ddprun/options.cpp makes of argv and PET_*, and all that
// the launcher works from. Plain values.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/program.hpp"

namespace ddp::launcher {

struct LaunchConfig {
  Program program;
  std::vector<std::string> program_args;  // as given; $local_rank is replaced per worker

  int workers = 1;  // --nproc-per-node
  std::string role = "default";
  std::string run_id;  // --rdzv-id, else random
  int max_restarts = 0;
  std::chrono::milliseconds shutdown_timeout = std::chrono::seconds(30);  // from the stop signal to SIGKILL

  std::string master_addr = "127.0.0.1";                            // what workers are told
  std::uint16_t master_port = 0;                                    // 0: any free one
  std::vector<std::string> store_addresses = {"127.0.0.1", "::1"};  // numeric; where the store listens

  std::optional<std::string> gpus;  // --gpus, as for CUDA_VISIBLE_DEVICES
  bool virtual_local_rank = false;
  std::string log_dir;            // --log-dir; empty: a temporary folder, removed if nothing was left in it
  std::vector<int> stop_signals;  // --signals-to-handle: these end the job
  std::string stop_signal_names;  // the same, as text for the workers
};

}  // namespace ddp::launcher
