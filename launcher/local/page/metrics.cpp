// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/local/page/metrics.hpp"

#include <array>
#include <charconv>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace ddp::launcher {
namespace {

constexpr std::array<const char*, 5> kPhases = {"gathering", "opening", "running", "stopping", "over"};

struct Family {
  std::string_view name;  // without _total
  std::string_view type;  // gauge or counter
  std::string_view unit;  // the end of the name; empty: none
  std::string_view help;
};

using Labels = std::vector<std::pair<std::string_view, std::string>>;

std::string escaped(std::string_view value) {
  std::string text;
  for (const char c : value) {
    if (c == '\\' || c == '"') text += '\\';
    text += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return text;
}

// The shortest text that is read as the same number.
std::string number_text(double value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value);
  return {text, end.ptr};
}

class Page {
 public:
  explicit Page(MetricsFormat format) : format_(format) {}

  void begin(const Family& family) {
    const bool is_counter = family.type == "counter";
    const bool is_open = format_ == MetricsFormat::OpenMetrics;
    name_ = family.name;
    const std::string declared = name_ + (is_counter && !is_open ? "_total" : "");
    if (is_counter) name_ += "_total";
    text_.append("# TYPE ").append(declared).append(" ").append(family.type).append("\n");
    if (is_open && !family.unit.empty()) {
      text_.append("# UNIT ").append(declared).append(" ").append(family.unit).append("\n");
    }
    text_.append("# HELP ").append(declared).append(" ").append(family.help).append("\n");
  }

  void sample(const Labels& labels, std::optional<double> value) {
    if (!value) return;
    text_ += name_;
    for (std::size_t i = 0; i < labels.size(); ++i) {
      text_.append(i == 0 ? "{" : ",").append(labels[i].first).append("=\"").append(escaped(labels[i].second)) += '"';
    }
    text_.append(labels.empty() ? " " : "} ").append(number_text(*value)) += '\n';
  }

  void one(const Family& family, std::optional<double> value, const Labels& labels = {}) {
    begin(family);
    sample(labels, value);
  }

  std::string str() const { return text_ + (format_ == MetricsFormat::OpenMetrics ? "# EOF\n" : ""); }

 private:
  const MetricsFormat format_;
  std::string text_, name_;
};

void add_job(Page& page, const JobView& state) {
  const auto& facts = state.facts;
  page.one({"ddprun_job_info", "gauge", "", "The job that this page is about; always 1."}, 1,
           {{"job", state.job}, {"program", state.program}});
  page.begin({"ddprun_job_phase", "gauge", "", "1 for the phase in which the job is, 0 for the others."});
  for (const char* phase : kPhases) page.sample({{"phase", phase}}, facts.phase == phase ? 1 : 0);
  page.one({"ddprun_job_uptime_seconds", "gauge", "seconds", "Time since the node that has run longest began."},
           static_cast<double>(state.seconds()));
  page.one({"ddprun_job_round", "gauge", "", "Number of the round; the first one is 1."}, facts.round);
  page.one({"ddprun_job_round_uptime_seconds", "gauge", "seconds", "Time since this round began."},
           static_cast<double>(state.seconds_in_round()));
  page.one({"ddprun_job_restarts", "counter", "", "Restarts after failures."}, facts.restarts);
  page.one({"ddprun_job_max_restarts", "gauge", "", "Restarts that the job may have (--max-restarts)."},
           facts.max_restarts);
  page.one({"ddprun_job_min_nodes", "gauge", "", "Nodes that the job needs (--nnodes)."}, facts.min_nodes);
  page.one({"ddprun_job_max_nodes", "gauge", "", "Nodes that the job may have (--nnodes)."}, facts.max_nodes);
  page.one({"ddprun_job_workers", "gauge", "", "Workers of this round (WORLD_SIZE)."}, state.world_size());
  const auto step = state.step();
  page.one({"ddprun_job_step", "gauge", "", "Lowest step that a worker shows; absent until all have shown one."},
           step ? std::optional(static_cast<double>(*step)) : std::nullopt);
}

Labels labels_of(const NodeView& node) {
  return {{"host", node.facts.host}, {"node", std::to_string(node.facts.node_rank)}};
}

void add_nodes(Page& page, const JobView& state) {
  page.begin({"ddprun_node_up", "gauge", "", "1 if the agent of the node has answered, else 0."});
  for (const NodeView& node : state.nodes) page.sample(labels_of(node), node.view ? 1 : 0);
  page.begin({"ddprun_node_workers", "gauge", "", "Workers that run on the node; absent if it has not answered."});
  for (const NodeView& node : state.nodes) {
    if (node.view) page.sample(labels_of(node), static_cast<double>(node.view->workers.size()));
  }
}

void add_slowness(Page& page, const JobView& state) {
  page.begin({"ddprun_node_link_round_trip_seconds", "gauge", "seconds",
              "Shortest of the newest 20 round trips from the node to the one that coordinates, which has none."});
  for (const NodeView& node : state.nodes) {
    if (node.view && node.view->link) {
      page.sample(labels_of(node), static_cast<double>(node.view->link->microseconds) / 1e6);
    }
  }
  const auto slow_links = state.slow_links();
  page.begin(
      {"ddprun_node_slow", "gauge", "", "1 if the round trip of the node stands out among those of the others."});
  for (std::size_t i = 0; i < state.nodes.size(); ++i) {
    if (state.nodes[i].view) page.sample(labels_of(state.nodes[i]), slow_links.contains(i) ? 1 : 0);
  }
}

using Value = std::function<std::optional<double>(const WorkerView&)>;

void add_workers(Page& page, const JobView& state, const Family& family, const Value& value) {
  page.begin(family);
  for (const NodeView& node : state.nodes) {
    if (!node.view) continue;
    for (const WorkerView& worker : node.view->workers) {
      Labels labels = labels_of(node);
      labels.emplace_back("rank", std::to_string(worker.rank));
      page.sample(labels, value(worker));
    }
  }
}

std::optional<double> usage(const WorkerView& worker, double (*member)(const WorkerUsage&)) {
  return worker.usage ? std::optional(member(*worker.usage)) : std::nullopt;
}

void add_progress(Page& page, const JobView& state) {
  add_workers(page, state, {"ddprun_worker_step", "gauge", "", "Step that the worker shows (ddp::progress)."},
              [](const WorkerView& w) { return w.step ? std::optional(static_cast<double>(*w.step)) : std::nullopt; });
  add_workers(page, state,
              {"ddprun_worker_step_age_seconds", "gauge", "seconds", "Time since the worker showed its newest step."},
              [](const WorkerView& w) {
                return w.step ? std::optional(static_cast<double>(w.seconds_since_step)) : std::nullopt;
              });
  add_workers(page, state,
              {"ddprun_worker_steps_per_second", "gauge", "",
               "Steps per second between two looks at the worker; absent at the first one."},
              [](const WorkerView& w) { return w.steps_per_second; });
}

void add_slow_rank(Page& page, const JobView& state) {
  const auto slow = state.slow_rank();
  add_workers(page, state,
              {"ddprun_worker_slow", "gauge", "", "1 for the worker that is clearly slower than all others, else 0."},
              [&slow](const WorkerView& w) { return std::optional(slow && slow->rank == w.rank ? 1.0 : 0.0); });
}

void add_usage(Page& page, const JobView& state) {
  add_workers(page, state,
              {"ddprun_worker_cpu_seconds", "counter", "seconds", "CPU time of the worker's process since it began."},
              [](const WorkerView& w) {
                return usage(w, [](const WorkerUsage& u) { return static_cast<double>(u.cpu_ms) / 1000; });
              });
  add_workers(
      page, state,
      {"ddprun_worker_resident_memory_bytes", "gauge", "bytes", "Resident memory of the worker's process."},
      [](const WorkerView& w) { return usage(w, [](const WorkerUsage& u) { return static_cast<double>(u.rss); }); });
  add_workers(page, state, {"ddprun_worker_threads", "gauge", "", "Threads of the worker's process."},
              [](const WorkerView& w) {
                return usage(w, [](const WorkerUsage& u) { return static_cast<double>(u.threads); });
              });
}

void add_gpus(Page& page, const JobView& state, const Family& family, std::optional<double> (*value)(const GpuView&)) {
  page.begin(family);
  for (const NodeView& node : state.nodes) {
    if (!node.view) continue;
    for (const GpuView& gpu : node.view->gpus) {
      Labels labels = labels_of(node);
      labels.emplace_back("gpu", std::to_string(gpu.index));
      page.sample(labels, value(gpu));
    }
  }
}

void add_gpus(Page& page, const JobView& state) {
  add_gpus(page, state,
           {"ddprun_gpu_busy_ratio", "gauge", "ratio", "Share of the time in which something ran on the GPU (NVML)."},
           [](const GpuView& gpu) { return gpu.percent >= 0 ? std::optional(gpu.percent / 100.0) : std::nullopt; });
  add_gpus(page, state,
           {"ddprun_gpu_memory_used_bytes", "gauge", "bytes", "Memory of the GPU that is used, by all processes."},
           [](const GpuView& gpu) { return std::optional(static_cast<double>(gpu.memory)); });
  add_gpus(page, state, {"ddprun_gpu_memory_bytes", "gauge", "bytes", "Memory of the GPU."},
           [](const GpuView& gpu) { return std::optional(static_cast<double>(gpu.capacity)); });
}

}  // namespace

std::string metrics_text(const JobView& state, MetricsFormat format) {
  Page page(format);
  add_job(page, state);
  add_nodes(page, state);
  add_slowness(page, state);
  add_progress(page, state);
  add_slow_rank(page, state);
  add_usage(page, state);
  add_gpus(page, state);
  return page.str();
}

const char* content_type(MetricsFormat format) {
  return format == MetricsFormat::OpenMetrics ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                                              : "text/plain; version=0.0.4; charset=utf-8";
}

}  // namespace ddp::launcher
