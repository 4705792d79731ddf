// SPDX-License-Identifier: BSD-3-Clause
// ddprun --on-failure shrink: an elastic job goes on without a node that is lost and takes in one that comes, and the
// workers of the others keep their processes. What the workers learn of does not depend on how many there are, so that
// all end as an undisturbed job of as many steps does.
#include <signal.h>

#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <set>
#include <sstream>

#include "tests/integration/nodes/nodes.hpp"

using Catch::Matchers::Contains;
using namespace ddp::testing;

namespace {

// Returns what stands between two marks in each line that has both.
std::multiset<std::string> between(const std::string& out, const std::string& from, const std::string& to) {
  std::multiset<std::string> found;
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) {
    const auto begin = line.find(from), end = line.find(to, begin == std::string::npos ? 0 : begin);
    if (begin != std::string::npos && end != std::string::npos) {
      found.insert(line.substr(begin + from.size(), end - begin - from.size()));
    }
  }
  return found;
}

// Returns the processes that say this.
std::set<int> processes_that_say(const std::string& out, const std::string& what) {
  std::set<int> pids;
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) {
    const auto pid = line.find("(pid ");
    if (line.find(what) != std::string::npos && pid != std::string::npos) pids.insert(std::stoi(line.substr(pid + 5)));
  }
  return pids;
}

// Returns what each of `ranks` workers has at the end of an undisturbed job that takes these steps.
std::string undisturbed(const std::string& steps) {
  const Result result = run({DDPRUN_BINARY, "--nproc_per_node=2", STAYING_WORKER_BINARY, "mean=1", "steps=" + steps});
  CAPTURE(result.err);
  REQUIRE(result.code == 0);
  const auto ends = between(result.out, "ends with ", ";");
  REQUIRE(ends.size() == 2);
  return *ends.begin();
}

class ElasticJob {
 public:
  ElasticJob(const Hosts& hosts, const std::string& nnodes, Words verbs,
             const std::string& conf = "last_call_timeout=1")
      : hosts_(hosts), options_(c10d_job(nnodes, conf)), verbs_(std::move(verbs)) {}

  Process& start(int host, int workers = 2) {
    const Words words = Words{DDPRUN_BINARY} + options_ +
                        Words{"--on-failure=shrink", "--max-restarts=3", "--nproc_per_node=" + std::to_string(workers),
                              STAYING_WORKER_BINARY, "mean=1"};
    return *nodes_.emplace_back(std::make_unique<Process>(hosts_.on(host, words + verbs_)));
  }
  Process& node(std::size_t index) { return *nodes_[index]; }
  void lose(std::size_t index, int signal) {
    node(index).signal(signal);
    wait_until([&] { return node(index).all_gone(); });
  }
  // Waits for all nodes, and checks that those which were not lost end well, and all ranks as an undisturbed job.
  void finish(const std::map<std::size_t, int>& codes) {
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      const Result result = nodes_[i]->wait();
      const auto code = codes.find(i);
      CAPTURE(i, result.out, result.err);
      CHECK(result.code == (code == codes.end() ? 0 : code->second));
      out += result.out;
      err += result.err;
    }
    CHECK(hosts_.all_gone());
    const auto ends = between(out, "ends with ", ";");
    CAPTURE(out, err);
    REQUIRE_FALSE(ends.empty());
    CHECK(ends.count(*ends.begin()) == ends.size());
    CHECK(*ends.begin() == undisturbed(*between(*ends.begin() + ";", " after ", " steps").begin()));
  }
  std::string out, err;

 private:
  const Hosts& hosts_;
  Words options_, verbs_;
  std::vector<std::unique_ptr<Process>> nodes_;
};

}  // namespace

TEST_CASE("shrink: nodes are lost or leave and come back, and the workers of the others keep their processes",
          "[apps][integration]") {
  const int signal = GENERATE(SIGKILL, SIGTERM);
  CAPTURE(signal);
  const Hosts hosts(3);
  ElasticJob job(hosts, "2:3", {"worlds=6,4,6", "pause=2"});
  for (const int host : {0, 1, 2}) job.start(host);
  for (const std::size_t node : {0U, 1U, 2U}) job.node(node).wait_for("has taken a step in a world of 6", 2);
  job.lose(1, signal);  // the ranks of the one after it change
  for (const std::size_t node : {0U, 2U}) job.node(node).wait_for("has taken a step in a world of 4", 2);
  job.start(1);
  job.finish({{1, 128 + signal}});
  CAPTURE(job.out, job.err);
  const auto first = processes_that_say(job.node(0).out() + job.node(2).out(), "begins at step 0");
  const auto last = processes_that_say(job.node(0).out() + job.node(2).out(), "ends with");
  CHECK(first.size() == 4);
  CHECK(first == last);
  CHECK(processes_that_say(job.node(3).out(), "ends with").size() == 2);
  CHECK(processes_that_say(job.out, "restart 1").empty());
  CHECK_THAT(job.node(0).err(), Contains("round 2: 2 nodes, 4 workers; 2 of 2 workers of this node stay") &&
                                    Contains("round 3: 3 nodes, 6 workers; 2 of 2 workers of this node stay"));
}

TEST_CASE("shrink: below the minimum the workers that are left wait for a node", "[apps][integration]") {
  const Hosts hosts(3);
  ElasticJob job(hosts, "2:3", {"worlds=6,4,3", "pause=2"});
  for (const int host : {0, 1, 2}) job.start(host);
  for (const std::size_t node : {0U, 1U, 2U}) job.node(node).wait_for("has taken a step in a world of 6", 2);
  job.lose(2, SIGKILL);
  for (const std::size_t node : {0U, 1U}) job.node(node).wait_for("has taken a step in a world of 4", 2);
  job.lose(1, SIGKILL);
  job.node(0).wait_for("waiting for nodes: 1 of at least 2 there");
  const Result page = run({DDPRUN_BINARY, "ps", std::to_string(job.node(0).pid())});
  CHECK_THAT(page.out,
             Contains(" gathering ") && Contains(" quiet ") && Contains("its workers wait for the next round"));
  CHECK_THAT(run({DDPRUN_BINARY, "ps"}).out, Contains(" quiet ") && !Contains(" idle "));
  job.start(1, 1);
  job.finish({{1, 128 + SIGKILL}, {2, 128 + SIGKILL}});
  CAPTURE(job.out, job.err);
  CHECK(processes_that_say(job.node(0).out(), "begins at step 0") ==
        processes_that_say(job.node(0).out(), "ends with"));
}

TEST_CASE("shrink: below the minimum the job ends after join_timeout if no node comes, and says which one is missing",
          "[apps][integration]") {
  const Hosts hosts(2);
  ElasticJob job(hosts, "2:3", {"worlds=4,99", "pause=2"}, "last_call_timeout=0,join_timeout=4");
  for (const int host : {0, 1}) job.start(host);
  for (const std::size_t node : {0U, 1U}) job.node(node).wait_for("has taken a step in a world of 4", 2);
  job.lose(1, SIGKILL);
  job.node(0).wait_for("waiting for nodes: 1 of at least 2 there");
  const Result result = job.node(0).wait();
  CAPTURE(result.out, result.err);
  CHECK(result.code == 75);
  CHECK_THAT(result.err, Contains("node node1 (10.7.0.2) left the job") || Contains("lost node node1 (10.7.0.2)"));
  CHECK_THAT(result.err, Contains("nobody took its place within 4 s"));
  CHECK(hosts.all_gone());
}

TEST_CASE("shrink: workers whose peers are gone wait until ddprun knows that a silent node is lost, and then go on",
          "[apps][integration]") {
  const Hosts hosts(2);
  // Longer than ddprun takes to notice a failure that is reported.
  ElasticJob job(hosts, "1:2", {"worlds=2,1", "pause=2"},
                 "last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=13");
  for (const int host : {0, 1}) job.start(host, 1);
  for (const std::size_t node : {0U, 1U}) job.node(node).wait_for("has taken a step in a world of 2");
  const pid_t agent = agent_of(job.node(1));
  const auto workers = children_of(agent);
  ::kill(agent, SIGSTOP);  // it tells nobody of its worker's death, and of its own silence nobody knows yet
  for (const pid_t worker : workers) ::kill(worker, SIGKILL);
  job.node(0).wait_for("has taken a step in a world of 1");
  ::kill(keeper_of(job.node(1)), SIGKILL);
  job.finish({{1, 128 + SIGKILL}});
  CAPTURE(job.out, job.err);
  CHECK(processes_that_say(job.node(0).out(), "begins at step 0") ==
        processes_that_say(job.node(0).out(), "ends with"));
}

TEST_CASE("shrink: a worker that is alone stays, too, when a node comes", "[apps][integration]") {
  const Words worlds = GENERATE(Words{"worlds=1,2"}, Words{"worlds=1,2,1"});
  CAPTURE(worlds);
  const Hosts hosts(2);
  ElasticJob job(hosts, "1:2", worlds + Words{"pause=2"}, "last_call_timeout=0");
  job.start(0, 1).wait_for("has taken a step in a world of 1");
  job.start(1, 1).wait_for("in a world of 2, 1 here");
  std::map<std::size_t, int> codes;
  if (worlds.front() == "worlds=1,2,1") {
    job.node(0).wait_for("has taken a step in a world of 2");
    job.lose(1, SIGKILL);
    codes = {{1, 128 + SIGKILL}};
  }
  job.finish(codes);
  CAPTURE(job.out, job.err);
  const auto first = processes_that_say(job.node(0).out(), "begins at step 0");
  CHECK(first.size() == 1);
  CHECK(first == processes_that_say(job.node(0).out(), "ends with"));
}

TEST_CASE("shrink: a worker that dies is replaced on its node, and a node that is lost meanwhile is not waited for",
          "[apps][integration]") {
  const Hosts hosts(3);
  ElasticJob job(hosts, "2:3", {"worlds=6,4", "pause=2"});
  for (const int host : {0, 1, 2}) job.start(host);
  for (const std::size_t node : {0U, 1U, 2U}) job.node(node).wait_for("has taken a step in a world of 6", 2);
  const auto of_last = processes_that_say(job.node(2).out(), "begins at step 0");
  kill(*of_last.begin(), SIGKILL);
  job.lose(1, SIGKILL);
  job.finish({{1, 128 + SIGKILL}});
  CAPTURE(job.out, job.err);
  CHECK(processes_that_say(job.node(0).out(), "begins at step 0") ==
        processes_that_say(job.node(0).out(), "ends with"));
  const auto last = processes_that_say(job.node(2).out(), "ends with");
  CHECK(last.size() == 2);
  CHECK(last.count(*of_last.begin()) == 0);
  CHECK(last.count(*of_last.rbegin()) == 1);
}
