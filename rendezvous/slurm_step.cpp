// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/slurm_step.hpp"

#include <algorithm>
#include <initializer_list>
#include <vector>

#include "rendezvous/base/text.hpp"
#include "rendezvous/job_ports.hpp"
#include "rendezvous/slurm_lists.hpp"

namespace ddp::rendezvous {
namespace {

std::string first_that_is_set(const SlurmVariable& variable, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (std::string value = variable(name); !value.empty()) return value;
  }
  return "";
}

std::string nodes_of_step(const SlurmVariable& variable) {
  return first_that_is_set(variable, {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"});
}

// Returns the place of this node in the step's list; nothing if the list does not have it.
std::optional<int> place_in_list(const SlurmVariable& variable) {
  const auto nodes = expand_hosts(nodes_of_step(variable));
  if (!nodes) return std::nullopt;
  const auto own = std::find(nodes->begin(), nodes->end(), variable("SLURMD_NODENAME"));
  if (own == nodes->end()) return std::nullopt;
  return static_cast<int>(own - nodes->begin());
}

}  // namespace

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

std::string first_node_of_step(const SlurmVariable& variable) {
  const std::string list = nodes_of_step(variable);
  const auto components = parse_number<std::uint64_t>(variable("SLURM_HET_SIZE"));
  const auto nodes = components ? expand_hosts(list) : std::nullopt;
  if (!nodes) return first_host(list);
  for (std::uint64_t i = 0; i < *components; ++i) {
    const auto component = expand_hosts(variable(("SLURM_JOB_NODELIST_HET_GROUP_" + std::to_string(i)).c_str()));
    if (!component) break;
    const auto first = std::find_first_of(component->begin(), component->end(), nodes->begin(), nodes->end());
    if (first != component->end()) return *first;  // else the step has no node of this component
  }
  return first_host(list);
}

std::optional<int> tasks_on_node(const SlurmVariable& variable) {
  const std::string counts = first_that_is_set(variable, {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"});
  // Counts are in the order of the list. In a heterogeneous job SLURM_NODEID has another one.
  auto place = place_in_list(variable);
  if (!place) place = parse_number<int>(variable("SLURM_NODEID"));
  return place ? count_on_node(counts, *place) : std::nullopt;
}

}  // namespace ddp::rendezvous
