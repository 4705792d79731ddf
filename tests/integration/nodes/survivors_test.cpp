// SPDX-License-Identifier: BSD-3-Clause
// ddprun --on-failure replace: workers that live stay when others fail, and the job ends as one that was never
// disturbed.
#include <signal.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <iostream>
#include <map>
#include <set>
#include <sstream>

#include "tests/integration/nodes/nodes.hpp"

using Catch::Matchers::Contains;
using namespace ddp::testing;

namespace {

const Words kReplace = {"--on-failure=replace", "--max-restarts=20", "--rdzv-id=stay"};

// Returns the lines in which ranks say what they have at the end, without what differs between runs.
std::set<std::string> results_of(const std::string& out) {
  std::set<std::string> ends;
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) {
    const auto from = line.find("ends with");
    if (from != std::string::npos) ends.insert(line.substr(line.find("rank "), line.find(';') - line.find("rank ")));
  }
  return ends;
}

// Returns the process of each rank that says this, for the first time.
std::map<int, int> pids_of(const std::string& out, const std::string& what) {
  std::map<int, int> pids;
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) {
    const auto at = line.find("rank "), pid = line.find("(pid ");
    if (line.find(what) == std::string::npos || at == std::string::npos || pid == std::string::npos) continue;
    pids.emplace(std::stoi(line.substr(at + 5)), std::stoi(line.substr(pid + 5)));
  }
  return pids;
}

std::set<std::string> undisturbed(int workers, const Words& verbs) {
  const Result result =
      run(Words{DDPRUN_BINARY, "--rdzv-id=none", "--nproc_per_node=" + std::to_string(workers), STAYING_WORKER_BINARY} +
          verbs);
  CAPTURE(result.err);
  REQUIRE(result.code == 0);
  const auto ends = results_of(result.out);
  REQUIRE(ends.size() == static_cast<std::size_t>(workers));
  return ends;
}

// A job of several nodes, and all that they print.
class StayingJob {
 public:
  StayingJob(const Hosts& hosts, Words verbs) : hosts_(hosts), verbs_(std::move(verbs)) {
    for (int host = 0; host < hosts.count(); ++host) start(host);
  }
  Process& start(int host) {
    const Words words = Words{DDPRUN_BINARY} + static_job(hosts_.count()) + kReplace +
                        Words{"--node_rank=" + std::to_string(host), "--nproc_per_node=2", STAYING_WORKER_BINARY};
    return *nodes_.emplace_back(std::make_unique<Process>(hosts_.on(host, words + verbs_)));
  }
  Process& node(std::size_t index) { return *nodes_[index]; }
  // Waits for the nodes; those of `killed` are dead.
  void finish(const std::set<std::size_t>& killed = {}) {
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      const Result result = nodes_[i]->wait();
      CAPTURE(i, result.out, result.err);
      if (killed.count(i) == 0) CHECK(result.code == 0);
      out += result.out;
      err += result.err;
    }
  }
  std::string out, err;

 private:
  const Hosts& hosts_;
  Words verbs_;
  std::vector<std::unique_ptr<Process>> nodes_;
};

}  // namespace

TEST_CASE(
    "survivors: wherever a worker of three nodes dies, the others keep their processes and all end as undisturbed",
    "[apps][integration]") {
  const Words verbs = {"steps=12"};
  const auto expected = undisturbed(6, verbs);
  // Before the first collective, between two, after the last, after the update; two ranks of two nodes at once.
  // Or where the others issue the next collective before they have waited for the one that fails.
  const Words deaths = GENERATE(Words{"die=3:5:2:0"}, Words{"die=0:5:3:0"}, Words{"die=5:7:4:0"}, Words{"die=2:6:5:0"},
                                Words{"die=1:4:2:0", "die=4:4:2:0"}, Words{"die=3:5:2:0", "async=1"});
  CAPTURE(deaths);
  const Hosts hosts(3);
  StayingJob job(hosts, verbs + deaths);
  job.finish();
  CHECK(hosts.all_gone());
  CAPTURE(job.out, job.err);
  CHECK(results_of(job.out) == expected);
  const auto first = pids_of(job.out, "begins at step 0"), last = pids_of(job.out, "ends with");
  int stayed = 0;
  for (const auto& [rank, pid] : last) stayed += first.at(rank) == pid ? 1 : 0;
  std::set<std::string> ranks(deaths.begin(), deaths.end());
  ranks.erase("async=1");
  CHECK(stayed >= 6 - 2 * static_cast<int>(ranks.size()));  // two ranks that die at once may be two failures
  CHECK(last.size() == 6);
  CHECK_THAT(job.err, Contains("2 of 2 workers of this node stay"));
  // The line that says why has the last words of the worker that died.
  CHECK_THAT(job.err, Contains(" was killed by SIGKILL: rank ") && Contains(" has had enough; 2 of 2 workers"));
  std::istringstream lines(job.out);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("stopped for") != std::string::npos) std::cout << "measured: " << line << "\n";
  }
}

TEST_CASE("survivors: a death during the recovery is part of it", "[apps][integration]") {
  const Words verbs = {"steps=12"};
  const auto expected = undisturbed(6, verbs);
  // The new process dies before it joins, or before its first step; or a survivor does, before its first step.
  const Words deaths = GENERATE(Words{"die=3:0:0:1"}, Words{"die=3:0:1:1"}, Words{"die=4:0:1:1", "die=1:0:1:2"});
  CAPTURE(deaths);
  const Hosts hosts(3);
  StayingJob job(hosts, verbs + Words{"die=3:5:2:0"} + deaths);
  job.finish();
  CHECK(hosts.all_gone());
  CAPTURE(job.out, job.err);
  CHECK(results_of(job.out) == expected);
  const auto first = pids_of(job.out, "begins at step 0"), last = pids_of(job.out, "ends with");
  CHECK(first.at(0) == last.at(0));
}

TEST_CASE("survivors: a node that is lost is replaced, and the workers of the others stay", "[apps][integration]") {
  const Words verbs = {"steps=40", "pause=20"};
  const auto expected = undisturbed(6, {"steps=40"});
  const Hosts hosts(3);
  StayingJob job(hosts, verbs);
  job.node(2).wait_for("begins at step 0", 2);
  const auto before = pids_of(job.node(2).out(), "begins at step 0");
  job.node(2).signal(SIGKILL);
  wait_until([&] { return job.node(2).all_gone(); });
  job.start(2);
  job.finish({2});
  CHECK(hosts.all_gone());
  CAPTURE(job.out, job.err);
  CHECK(results_of(job.out) == expected);
  const auto first = pids_of(job.out, "begins at step 0"), last = pids_of(job.out, "ends with");
  for (const int rank : {0, 1, 2, 3}) CHECK(first.at(rank) == last.at(rank));
  CHECK(before.count(4) + before.count(5) == 2);
}

TEST_CASE("survivors: a worker that does not leave its groups in time is killed, and one that never can stay restarts",
          "[apps][integration]") {
  const Words verbs = {"steps=8"};
  const auto expected = undisturbed(4, verbs);
  const bool is_plain = GENERATE(false, true);
  // Rank 2 dies. A plain worker may end by that alone. Rank 1 does not, so ddprun has a worker to end.
  const Words more = Words{"stick=1:3:2:0", "die=2:3:2:0"} + (is_plain ? Words{"plain=1"} : Words{});
  CAPTURE(more);
  const Result result = run(Words{DDPRUN_BINARY, "--nproc_per_node=4", "--shutdown-timeout=1"} + kReplace +
                            Words{STAYING_WORKER_BINARY} + verbs + more);
  CAPTURE(result.out, result.err);
  CHECK(result.code == 0);
  CHECK(results_of(result.out) == expected);
  const auto first = pids_of(result.out, "begins at step 0"), last = pids_of(result.out, "ends with");
  CHECK((first.at(0) == last.at(0)) == !is_plain);
  CHECK(first.at(1) != last.at(1));
  CHECK_THAT(result.err, Contains(is_plain ? "no worker of this node can stay" : "rank 1 did not leave its groups"));
}

TEST_CASE("survivors: a job whose restarts are used up ends, and nothing is left", "[apps][integration]") {
  const Result result = run(Words{DDPRUN_BINARY, "--nproc_per_node=3", "--on-failure=replace", "--max-restarts=1",
                                  STAYING_WORKER_BINARY, "steps=9", "die=0:3:2:0", "die=0:5:2:1"});
  CAPTURE(result.out, result.err);
  CHECK(result.code == 128 + SIGKILL);
  CHECK(count(result.out, "ends with") == 0);
}
