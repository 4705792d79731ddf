// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/slurm_step.hpp"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <utility>
#include <vector>

#include "rendezvous/base/text.hpp"
#include "rendezvous/base/text_stream.hpp"
#include "rendezvous/job_ports.hpp"

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

std::string first_host(const std::string& nodes) {
  std::string host;
  for (std::size_t i = 0; i < nodes.size() && nodes[i] != ','; ++i) {
    if (nodes[i] != '[') {
      host += nodes[i];
      continue;
    }
    const auto end = std::min(nodes.find(']', i), nodes.size() - 1);
    const auto number = nodes.find_first_of("-,]", i);
    host += nodes.substr(i + 1, number - i - 1);
    i = end;
  }
  return host;
}

namespace {

constexpr std::size_t kMostNames = 1'000'000;

// Appends each name with each number of "07-09,12". Returns whether that is a list of numbers.
bool append_numbers(const std::vector<std::string>& names, const std::string& numbers,
                    std::vector<std::string>& longer) {
  TextStream list(numbers);
  for (std::string range; std::getline(list, range, ',');) {
    const auto dash = range.find('-');
    const std::string first = range.substr(0, dash), last = dash == std::string::npos ? first : range.substr(dash + 1);
    const auto from = parse_number<std::size_t>(first), to = parse_number<std::size_t>(last);
    if (!from || !to || *to < *from) return false;
    if ((*to - *from + 1) > kMostNames / names.size() || longer.size() > kMostNames) return false;
    for (const std::string& name : names) {
      for (std::size_t number = *from; number <= *to; ++number) {
        const std::string digits = std::to_string(number);
        const std::size_t zeros = first.size() > digits.size() ? first.size() - digits.size() : 0;
        longer.push_back(name + std::string(zeros, '0') + digits);
      }
    }
  }
  return !longer.empty();
}

}  // namespace

std::optional<std::vector<std::string>> expand_hosts(const std::string& list) {
  std::vector<std::string> all, names(1);
  const auto finish = [&] {
    if (names.front().empty()) return false;
    all.insert(all.end(), names.begin(), names.end());
    names.assign(1, "");
    return all.size() <= kMostNames;
  };
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i] == ',') {
      if (!finish()) return std::nullopt;
    } else if (list[i] == '[') {
      const auto end = list.find(']', i);
      std::vector<std::string> longer;
      if (end == std::string::npos || !append_numbers(names, list.substr(i + 1, end - i - 1), longer)) {
        return std::nullopt;
      }
      names = std::move(longer);
      i = end;
    } else if (list[i] == ']') {
      return std::nullopt;
    } else {
      for (std::string& name : names) name += list[i];
    }
  }
  if (!finish()) return std::nullopt;
  return all;
}

std::optional<int> count_on_node(const std::string& counts, int node) {
  TextStream list(counts);
  for (std::string entry; std::getline(list, entry, ',');) {
    const char* end = entry.data() + entry.size();
    int count = 0, nodes = 1;
    const auto [after, error] = std::from_chars(entry.data(), end, count);
    if (error != std::errc()) return std::nullopt;
    if (after != end) {
      const std::size_t times = entry.find("(x");
      if (times == std::string::npos) return std::nullopt;
      if (std::from_chars(entry.data() + times + 2, end, nodes).ec != std::errc()) return std::nullopt;
    }
    if (node < nodes) return count;
    node -= nodes;
  }
  return std::nullopt;
}

}  // namespace ddp::rendezvous
