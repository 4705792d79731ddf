// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/local/page/metrics.hpp"

#include <catch2/catch.hpp>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>

using namespace ddp::launcher;
using Catch::Matchers::Contains;

namespace {

JobView some_job() {
  JobView state{.job = "night \"run\"\n", .program = "train.py", .facts = {}, .nodes = {}, .error = ""};
  state.facts.phase = "running";
  state.facts.round = 2;
  state.facts.restarts = 1;
  state.facts.max_restarts = 3;
  NodeView here{.facts = {}};
  here.facts.host = "a";
  here.facts.node_rank = 0;
  here.facts.slots = 2;
  here.view = AgentView{};
  here.view->seconds = 12;
  here.view->workers = {WorkerView{.rank = 0, .pid = 4711}, WorkerView{.rank = 1, .pid = 4712}};
  here.view->workers[0].step = 41;
  here.view->workers[0].seconds_since_step = 3;
  here.view->workers[0].steps_per_second = 2.5;
  here.view->workers[1].steps_per_second = 1.0;
  here.view->workers[0].usage = WorkerUsage{.state = "runs", .cpu_ms = 7210, .rss = 104857600, .threads = 9};
  here.view->gpus = {GpuView{.index = 3, .percent = 97, .memory = 1 << 30, .capacity = std::int64_t{1} << 31}};
  NodeView silent{.facts = {}};
  silent.facts.host = "b";
  silent.facts.node_rank = 1;
  silent.error = "it did not answer in time";
  NodeView slow{.facts = {}};
  slow.facts.host = "c";
  slow.facts.node_rank = 2;
  slow.view = AgentView{};
  slow.view->link = LinkDelay{105'000, 20};
  NodeView fast = slow;
  fast.facts.host = "d";
  fast.facts.node_rank = 3;
  fast.view->link = LinkDelay{400, 20};
  state.nodes = {here, silent, slow, fast};
  return state;
}

}  // namespace

TEST_CASE("metrics: values have their labels, and what is not known is left out", "[launcher][unit]") {
  const std::string text = metrics_text(some_job(), MetricsFormat::OpenMetrics);
  CHECK_THAT(text, Contains("ddprun_job_info{job=\"night \\\"run\\\"\\n\",program=\"train.py\"} 1\n"));
  CHECK_THAT(text, Contains("ddprun_job_phase{phase=\"running\"} 1\n"));
  CHECK_THAT(text, Contains("ddprun_job_phase{phase=\"over\"} 0\n"));
  CHECK_THAT(text, Contains("ddprun_job_restarts_total 1\n"));
  CHECK_THAT(text, Contains("ddprun_node_up{host=\"a\",node=\"0\"} 1\n"));
  CHECK_THAT(text, Contains("ddprun_node_up{host=\"b\",node=\"1\"} 0\n"));
  CHECK_THAT(text, Contains("ddprun_worker_step{host=\"a\",node=\"0\",rank=\"0\"} 41\n"));
  CHECK_THAT(text, Contains("ddprun_worker_cpu_seconds_total{host=\"a\",node=\"0\",rank=\"0\"} 7.21\n"));
  CHECK_THAT(text, Contains("ddprun_worker_resident_memory_bytes{host=\"a\",node=\"0\",rank=\"0\"} 104857600\n"));
  CHECK_THAT(text, Contains("ddprun_node_link_round_trip_seconds{host=\"c\",node=\"2\"} 0.105\n"));
  CHECK_THAT(text, !Contains("ddprun_node_link_round_trip_seconds{host=\"a\""));
  CHECK_THAT(text, Contains("ddprun_node_slow{host=\"c\",node=\"2\"} 1\n"));
  CHECK_THAT(text, Contains("ddprun_node_slow{host=\"d\",node=\"3\"} 0\n"));
  CHECK_THAT(text, Contains("ddprun_worker_slow{host=\"a\",node=\"0\",rank=\"1\"} 1\n"));
  CHECK_THAT(text, Contains("ddprun_worker_slow{host=\"a\",node=\"0\",rank=\"0\"} 0\n"));
  CHECK_THAT(text, Contains("ddprun_gpu_busy_ratio{host=\"a\",node=\"0\",gpu=\"3\"} 0.97\n"));
  CHECK_THAT(text, !Contains("ddprun_worker_step{host=\"a\",node=\"0\",rank=\"1\"") && !Contains("\nddprun_job_step "));
}

TEST_CASE("metrics: both formats declare each metric before its values, as they ask for it", "[launcher][unit]") {
  const std::string open = metrics_text(some_job(), MetricsFormat::OpenMetrics);
  CHECK_THAT(open, Catch::EndsWith("# EOF\n"));
  CHECK_THAT(open, Contains("# TYPE ddprun_job_restarts counter\n"));
  CHECK_THAT(open, Contains("# UNIT ddprun_worker_resident_memory_bytes bytes\n"));
  const std::string classic = metrics_text(some_job(), MetricsFormat::Prometheus);
  CHECK_THAT(classic, Contains("# TYPE ddprun_job_restarts_total counter\n"));
  CHECK_THAT(classic, !Contains("# EOF") && !Contains("# UNIT"));
}

TEST_CASE("metrics: docs/metrics.md lists each one with its unit, and no other", "[launcher][unit]") {
  std::ifstream page(METRICS_PAGE);
  std::stringstream text;
  text << page.rdbuf();
  const std::string documented = text.str();
  std::set<std::string> made;
  const std::string metrics = metrics_text(some_job(), MetricsFormat::Prometheus);
  const std::regex type("# TYPE (\\w+) (\\w+)\n");
  for (std::sregex_iterator found(metrics.begin(), metrics.end(), type), end; found != end; ++found) {
    made.insert((*found)[1]);
    CHECK_THAT(documented, Contains("| `" + (*found)[1].str() + "` | " + (*found)[2].str() + " |"));
  }
  CHECK(made.size() > 15);
  const std::regex row("\\| `(ddprun_\\w+)` \\|");
  for (std::sregex_iterator found(documented.begin(), documented.end(), row), end; found != end; ++found) {
    CHECK(made.count((*found)[1]) == 1);
  }
}
