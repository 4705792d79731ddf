// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddprun/commands/show/job_page.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include "apps/ddprun/commands/table.hpp"
#include "launcher/text/ranges.hpp"
#include "rendezvous/base/text.hpp"

namespace ddp::apps {
namespace {

using launcher::JobView;
using launcher::NodeView;
using launcher::WorkerView;
using rendezvous::counted;

constexpr std::size_t kMostNodeLines = 12;  // for nodes that need no word of their own

std::string decimal(const char* format, double number) {
  std::array<char, 40> text;
  snprintf(text.data(), text.size(), format, number);
  return text.data();
}

// Returns "812 MB" or "1.6 GB".
std::string memory(std::int64_t bytes) {
  const double mega = static_cast<double>(bytes) / 1e6;
  return mega < 1000 ? decimal("%.0f MB", mega) : decimal("%.1f GB", mega / 1000);
}

std::string step_of(const WorkerView& worker) {
  if (!worker.step) return "-";
  const bool is_old = worker.seconds_since_step >= 10;
  return std::to_string(*worker.step) + (is_old ? ", " + clock_time(worker.seconds_since_step) + " ago" : "");
}

// Returns "all_reduce #412 of group world, 0:00:31" for a worker of libddp that is in that for a second or more.
std::string call_of(const WorkerView& worker) {
  if (worker.now_in.empty()) return "-";
  const bool is_long = worker.milliseconds_in >= 1000;
  return harmless(worker.now_in) + (is_long ? ", " + clock_time(worker.milliseconds_in / 1000) : "");
}

bool uses_libddp(const JobView& job) {
  return std::any_of(job.nodes.begin(), job.nodes.end(), [](const NodeView& node) {
    return node.view && std::any_of(node.view->workers.begin(), node.view->workers.end(), [](const WorkerView& worker) {
             return worker.in_collectives_percent || !worker.now_in.empty();
           });
  });
}

std::string note_of(const NodeView& node) {
  if (!node.error.empty()) return harmless(node.error);
  if (node.facts.state == "quiet") return "its workers wait for the next round";
  return node.facts.node_rank < 0 ? "no seat in this round" : node.is_coordinator ? "coordinator" : "";
}

std::string node_name(const NodeView& node) {
  return node.facts.node_rank < 0 ? "-" : std::to_string(node.facts.node_rank);
}

std::string link_of(const NodeView& node) {
  return node.view && node.view->link ? launcher::describe_milliseconds(node.view->link->microseconds) : "-";
}

void add_gpu_lines(const JobView& job, std::vector<std::string>& lines) {
  std::vector<std::vector<std::string>> rows = {{"GPU", "NODE", "USE", "MEMORY", "OF", "RANKS"}};
  for (const NodeView& node : job.nodes) {
    if (!node.view) continue;
    for (const launcher::GpuView& gpu : node.view->gpus) {
      rows.push_back({std::to_string(gpu.index), node_name(node),
                      gpu.percent >= 0 ? std::to_string(gpu.percent) + " %" : "-", memory(gpu.memory),
                      memory(gpu.capacity), gpu.ranks.empty() ? "-" : launcher::ranges(gpu.ranks)});
    }
  }
  if (rows.size() == 1) return;
  lines.emplace_back();
  for (std::string& line : table(rows)) lines.push_back(std::move(line));
}

std::vector<std::string> node_lines(const JobView& job) {
  std::vector<std::vector<std::string>> rows = {{"NODE", "HOST", "ADDRESS", "LINK", "STATE", "WORKERS", "NOTE"}};
  std::size_t left_out = 0;
  for (const NodeView& node : job.nodes) {
    const std::string note = note_of(node);
    const bool is_special = !note.empty() || node.facts.state != "running";
    if (!is_special && rows.size() > kMostNodeLines) {
      ++left_out;
      continue;
    }
    const std::string workers = node.view ? std::to_string(node.view->workers.size()) + " of " : "? of ";
    rows.push_back({node_name(node), harmless(node.facts.host),
                    node.facts.address.empty() ? "-" : harmless(node.facts.address), link_of(node),
                    harmless(node.facts.state), workers + std::to_string(node.facts.slots), note});
  }
  std::vector<std::string> lines = table(rows);
  if (left_out > 0)
    lines.push_back("... and " + rendezvous::counted(static_cast<std::int64_t>(left_out), "more node") + " like these");
  add_gpu_lines(job, lines);
  return lines;
}

std::vector<std::string> head_lines(const JobView& job) {
  const auto seated =
      std::count_if(job.nodes.begin(), job.nodes.end(), [](const NodeView& node) { return node.facts.node_rank >= 0; });
  const auto& facts = job.facts;
  std::string line = "job " + harmless(job.job) + "  " + harmless(job.program.substr(job.program.rfind('/') + 1)) +
                     "  " + harmless(facts.phase) + "  for " + clock_time(job.seconds());
  std::string second = "round " + std::to_string(facts.round) + ", " + clock_time(job.seconds_in_round()) +
                       "; restarts: " + std::to_string(facts.restarts) + " of " + std::to_string(facts.max_restarts) +
                       "; " + rendezvous::counted(job.world_size(), "worker") + " on " +
                       rendezvous::counted(seated, "node");
  if (const auto step = job.step()) second += "; step " + std::to_string(*step);
  std::vector<std::string> lines = {std::move(line), std::move(second)};
  if (const auto slow = job.slow_rank()) {
    lines.push_back("rank " + std::to_string(slow->rank) + " is slow: " + slow->why);
  }
  for (const auto& [node, why] : job.slow_links()) lines.push_back(harmless(why));
  if (!job.error.empty()) lines.push_back(harmless(job.error));
  return lines;
}

}  // namespace

std::string JobPage::cpu_share(const std::string& node, const WorkerView& worker, Time now) {
  const auto key = std::pair(node, worker.pid);
  newest_[key] = {worker.usage->cpu_ms, now};
  const auto before = used_.find(key);
  if (before == used_.end()) return "-";
  const double passed = std::chrono::duration<double, std::milli>(now - before->second.at).count();
  const auto used = static_cast<double>(worker.usage->cpu_ms - before->second.cpu_ms);
  return passed > 0 ? decimal("%.0f %%", 100 * std::max(0.0, used) / passed) : "-";
}

std::vector<JobPage::Row> JobPage::workers(const JobView& job, Time now) {
  std::vector<std::pair<int, Row>> by_rank;
  newest_.clear();
  const bool shows_calls = uses_libddp(job);
  for (const NodeView& node : job.nodes) {
    if (!node.view) continue;
    for (const WorkerView& worker : node.view->workers) {
      Row row = {std::to_string(worker.rank), node_name(node), std::to_string(worker.local_rank),
                 std::to_string(worker.pid)};
      const bool is_known = worker.usage.has_value();
      row.push_back(is_known ? harmless(worker.usage->state) : "has ended");
      row.push_back(step_of(worker));
      row.push_back(worker.steps_per_second ? decimal("%.3g", *worker.steps_per_second) : "-");
      row.push_back(is_known ? cpu_share(node.facts.incarnation, worker, now) : "-");
      row.push_back(is_known ? clock_time(worker.usage->cpu_ms / 1000) : "-");
      row.push_back(is_known ? memory(worker.usage->rss) : "-");
      row.push_back(is_known ? std::to_string(worker.usage->threads) : "-");
      if (shows_calls) {
        const auto& share = worker.in_collectives_percent;
        row.push_back(share ? std::to_string(*share) + " %" : "-");
        row.push_back(call_of(worker));
      }
      by_rank.emplace_back(worker.rank, std::move(row));
    }
  }
  used_ = newest_;
  std::stable_sort(by_rank.begin(), by_rank.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Row> rows;
  for (auto& [rank, row] : by_rank) rows.push_back(std::move(row));
  return rows;
}

std::vector<std::string> JobPage::lines(const JobView& job, Time now) {
  std::vector<std::string> page = head_lines(job);
  page.emplace_back();
  for (std::string& line : node_lines(job)) page.push_back(std::move(line));
  page.emplace_back();
  std::vector<Row> rows = workers(job, now);
  Row head = {"RANK", "NODE", "LOCAL", "PID", "STATE", "STEP", "STEPS/S", "CPU", "CPU TIME", "MEMORY", "THREADS"};
  if (uses_libddp(job)) head.insert(head.end(), {"COLLECTIVES", "NOW IN"});
  rows.insert(rows.begin(), std::move(head));
  for (std::string& line : table(rows)) page.push_back(std::move(line));
  return page;
}

}  // namespace ddp::apps
