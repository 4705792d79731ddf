// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/slurm_step.hpp"

#include "rendezvous/base/text.hpp"

namespace ddp::rendezvous {

std::optional<SlurmStep> slurm_step(const std::string& job, const std::string& step) {
  const auto job_number = parse_number<std::uint64_t>(job);
  const auto step_number = parse_number<std::uint64_t>(step);
  if (!job_number || !step_number) return std::nullopt;
  // Steps are numbered from 0 in each job, so steps on one node get different ports as long as no job has too many of
  // them. The ports lie below those that the kernel assigns, from 32768 on. The distance to the next choice has no
  // factor in common with kCount, and is large: the ports nearby are those of other steps and jobs.
  constexpr std::uint64_t kFirst = 20000, kCount = 12000, kStepsApart = 16, kChoices = 8, kNext = 1511;
  SlurmStep result{"slurm-" + job + "." + step, {}};
  std::uint64_t place = (*job_number * kStepsApart + *step_number) % kCount;
  for (std::uint64_t i = 0; i < kChoices; ++i, place = (place + kNext) % kCount) {
    result.ports.push_back(static_cast<std::uint16_t>(kFirst + place));
  }
  return result;
}

}  // namespace ddp::rendezvous
