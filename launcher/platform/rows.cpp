// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/platform/rows.hpp"

#include <algorithm>

#include "rendezvous/base/error.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/job_ports.hpp"

namespace ddp::launcher {

std::optional<int> number_in(const Surroundings& here, const char* variable, int low) {
  const std::string text = here.variable(variable);
  if (text.empty()) return std::nullopt;
  const auto number = rendezvous::parse_number<int>(text);
  if (number && *number >= low) return number;
  rendezvous::invalid_argument(std::string(variable) + " is \"" + text + "\", not a number from " +
                               std::to_string(low) +
                               " on; unset it, or give --standalone for a job of this node alone");
}

std::optional<PlatformJob> job_of_nodes(const Surroundings& here, const std::string& platform, const char* nodes,
                                        const char* rank) {
  const auto count = number_in(here, nodes, 1);
  const auto own = number_in(here, rank);
  if (!count || !own || *count < 2) return std::nullopt;
  if (*own >= *count) refuse_contradiction(here, platform, rank, nodes);
  return PlatformJob{.platform = platform, .nodes = count, .node_rank = own};
}

void refuse_contradiction(const Surroundings& here, const std::string& platform, const char* one, const char* other) {
  rendezvous::invalid_argument(platform + " contradicts itself: " + one + " is \"" + here.variable(one) + "\", and " +
                               other + " is \"" + here.variable(other) +
                               "\"; give --nnodes, --node-rank and --master-addr, or --standalone");
}

void take_id(PlatformJob& job, const std::string& id) {
  if (id.empty()) return;
  job.id = id;
  job.ports = rendezvous::job_ports(id);
}

std::optional<int> gpus_in(const Surroundings& here, const char* variable) {
  const auto count = number_in(here, variable);
  return count && *count > 0 ? count : std::nullopt;
}

std::vector<std::string> words_of(const std::string& text, const std::string& separators) {
  std::vector<std::string> words;
  for (std::size_t begin = 0; (begin = text.find_first_not_of(separators, begin)) != std::string::npos;) {
    const std::size_t end = std::min(text.find_first_of(separators, begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return words;
}

}  // namespace ddp::launcher
