// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/slurm_step.hpp"

#include "rendezvous/base/text.hpp"
#include "rendezvous/job_ports.hpp"

namespace ddp::rendezvous {

std::optional<SlurmStep> slurm_step(const std::string& job, const std::string& step) {
  const auto job_number = parse_number<std::uint64_t>(job);
  const auto step_number = parse_number<std::uint64_t>(step);
  if (!job_number || !step_number) return std::nullopt;
  // Steps are numbered from 0 in each job, so steps on one node get different ports as long as no job has too many of
  // them.
  constexpr std::uint64_t kStepsApart = 16;
  return SlurmStep{"slurm-" + job + "." + step, job_ports(*job_number * kStepsApart + *step_number)};
}

bool is_special_step(const std::string& step) {
  constexpr std::uint64_t kFirst = 0xfffffff0;
  return parse_number<std::uint64_t>(step).value_or(0) >= kFirst;
}

}  // namespace ddp::rendezvous
