// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddprun/commands/show/job_page.hpp"

#include <catch2/catch.hpp>

#include "apps/ddprun/commands/table.hpp"

using Catch::Matchers::Contains;
using namespace ddp::apps;
using namespace ddp::launcher;
using namespace std::chrono_literals;

namespace {

JobView some_job(int workers) {
  JobView job{.job = "job7", .program = "/home/me/train.py", .facts = {}, .nodes = {}};
  job.facts.phase = "running";
  job.facts.round = 2;
  job.facts.restarts = 1;
  job.facts.max_restarts = 3;
  NodeView first;
  first.facts = {"A", "a", "", "running", 0, 0, workers};
  first.is_coordinator = true;
  first.view = AgentView{.job = "job7", .program = "train.py", .host = "a", .seconds = 3723, .workers = {}};
  for (int rank = 0; rank < workers; ++rank) {
    WorkerView worker{.rank = rank, .pid = 100 + rank, .local_rank = rank};
    worker.step = 40 + rank;
    worker.seconds_since_step = rank == 1 ? 75 : 0;
    worker.usage = WorkerUsage{.state = "sleeps", .cpu_ms = 61'000, .rss = 1'600'000'000, .threads = 9};
    first.view->workers.push_back(worker);
  }
  NodeView second;
  second.facts = {"B", "b\x1b[2J", "10.0.0.2", "cut off", 1, workers, 2};
  second.error = "it did not answer in time";
  job.nodes = {first, second};
  return job;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

}  // namespace

TEST_CASE("job page: the job, its nodes and its workers", "[apps][unit]") {
  const std::string page = joined(JobPage().lines(some_job(2), {}));
  CHECK_THAT(page, Contains("job job7  train.py  running  for 1:02:03"));
  CHECK_THAT(page, Contains("restarts: 1 of 3; 4 workers on 2 nodes"));
  CHECK_THAT(page, Contains("2 of 2") && Contains("coordinator"));
  CHECK_THAT(page, Contains("cut off") && Contains("? of 2") && Contains("it did not answer in time"));
  CHECK_THAT(page, Contains("41, 0:01:15 ago") && Contains("1.6 GB") && Contains("0:01:01"));
}

TEST_CASE("job page: what links take is shown, and a node that answers slowly is named", "[apps][unit]") {
  JobView job = some_job(1);
  for (const std::int64_t microseconds : {400, 105'000}) {
    NodeView node = job.nodes[0];
    node.is_coordinator = false;
    node.facts.host = node.view->host = microseconds > 1000 ? "far" : "near";
    node.view->link = LinkDelay{microseconds, 20};
    job.nodes.push_back(node);
  }
  job.nodes[2].facts.state = "quiet";
  const std::string page = joined(JobPage().lines(job, {}));
  CHECK_THAT(page,
             Contains("node far answers slowly: a round trip of its link takes 105 ms, and of the others 0.40 ms"));
  CHECK_THAT(page, Contains("LINK") && Contains("0.40 ms") && Contains("105 ms") && !Contains("node near"));
  CHECK_THAT(page, Contains("quiet") && Contains("its workers wait for the next round"));
}

TEST_CASE("job page: other people's words do nothing to the terminal", "[apps][unit]") {
  const std::string page = joined(JobPage().lines(some_job(1), {}));
  CHECK(page.find('\x1b') == std::string::npos);
}

TEST_CASE("job page: the share of a CPU is of the time since the page before", "[apps][unit]") {
  JobPage page;
  JobView job = some_job(1);
  CHECK_THAT(joined(page.lines(job, {})), !Contains(" %"));
  job.nodes[0].view->workers[0].usage->cpu_ms += 1500;
  CHECK_THAT(joined(page.lines(job, JobPage::Time() + 2s)), Contains("75 %"));
  job.nodes[0].view->workers[0].pid = 999;  // another process has its place
  CHECK_THAT(joined(page.lines(job, JobPage::Time() + 4s)), !Contains(" %"));
}

TEST_CASE("table: columns are as wide as their widest text", "[apps][unit]") {
  CHECK(table({{"A", "B"}, {"long", ""}, {"\xc3\xa4", "x"}}) ==
        std::vector<std::string>{"A     B", "long", "\xc3\xa4     x"});
}

TEST_CASE("job page: workers of libddp have the call that they are in, and a slow rank is named", "[apps][unit]") {
  JobView job = some_job(3);
  CHECK_THAT(joined(JobPage().lines(job, {})), !Contains("NOW IN") && !Contains("slow"));
  auto& workers = job.nodes[0].view->workers;
  for (std::size_t rank = 0; rank < 3; ++rank) workers[rank].in_collectives_percent = rank == 1 ? 8 : 60;
  workers[0].now_in = "all_reduce #412 of group world";
  workers[0].milliseconds_in = 31'000;
  const std::string page = joined(JobPage().lines(job, {}));
  CHECK_THAT(page, Contains("rank 1 is slow: the others wait for it 52 % of the time"));
  CHECK_THAT(page, Contains("COLLECTIVES  NOW IN") && Contains("60 %         all_reduce #412 of group world, 0:00:31"));
  workers[1].in_collectives_percent = 50;
  CHECK_THAT(joined(JobPage().lines(job, {})), !Contains("slow"));
  for (std::size_t rank = 0; rank < 3; ++rank) workers[rank].steps_per_second = rank == 2 ? 1.5 : 3.0;
  CHECK_THAT(joined(JobPage().lines(job, {})),
             Contains("rank 2 is slow: it does 50 % of the steps of the next slowest"));
}
