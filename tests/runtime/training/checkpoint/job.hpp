// SPDX-License-Identifier: BSD-3-Clause
// Environment variables for jobs of checkpoint_worker.
#pragma once

#include <cstdint>
#include <string>

#include "tests/runtime/job/job.hpp"

namespace ddp::test {

// Makes the job save the steps first .. last in the folder.
inline Variables steps(const std::string& folder, std::int64_t first, std::int64_t last) {
  return {{"FOLDER", folder}, {"FIRST", std::to_string(first)}, {"LAST", std::to_string(last)}};
}

// Makes one rank's disk faulty. fake_disk.c describes the plans.
inline Variables faulty_disk(const std::string& folder, int rank, const std::string& plan) {
  return {{"LD_PRELOAD", FAKE_DISK},
          {"FAKE_DISK", folder},
          {"FAKE_DISK_RANK", std::to_string(rank)},
          {"FAKE_DISK_PLAN", plan}};
}

inline Variables with(Variables variables, const Variables& more) {
  variables.insert(more.begin(), more.end());
  return variables;
}

}  // namespace ddp::test
