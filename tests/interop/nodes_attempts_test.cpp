// SPDX-License-Identifier: BSD-3-Clause
// ddprun.attempts() in PyTorch on several hosts: processes that live stay when others fail, and the job ends as one
// that was never disturbed. attempts/trainer.py has the places at which a rank dies.
#include <signal.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <vector>

#include "tests/integration/nodes/nodes.hpp"
#include "tests/interop/with_torch.hpp"

using Catch::Matchers::Contains;
using namespace ddp::testing;

namespace {

// What a rank has at the end.
struct RankEnd {
  std::string state, chance, buffers;  // equal bits, equal text
  int pid = 0;
};

std::map<int, RankEnd> ends_in(const std::string& out) {
  std::map<int, RankEnd> ends;
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) {
    int rank = 0, pid = 0;
    char state[20], chance[20], buffers[20];
    if (std::sscanf(line.c_str(), "rank %d ends with %19s %19s %19s (pid %d)", &rank, state, chance, buffers, &pid) !=
        5)
      continue;
    ends[rank] = {state, chance, buffers, pid};
    if (line.find("stopped for") != std::string::npos) std::cout << "measured: " << line << "\n";
  }
  return ends;
}

// Returns the first process of each rank.
std::map<int, int> first_pids(const std::string& out) {
  std::map<int, int> pids;
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) {
    int rank = 0, step = 0, pid = 0;
    if (std::sscanf(line.c_str(), "rank %d begins attempt 0 at step %d (pid %d)", &rank, &step, &pid) == 3 && step == 0)
      pids.emplace(rank, pid);
  }
  return pids;
}

// A rank that was stopped holds the others up for as long as the last of these.
const Words kReplace = {"--on-failure=replace", "--max-restarts=30", "--shutdown-timeout=6"};

Words trains(const Words& words) { return Words{"--preload=auto", ATTEMPTS_TRAINER} + words; }

std::map<int, RankEnd> undisturbed(int workers, const Words& words) {
  const Result result =
      run(Words{DDPRUN_BINARY, "--nproc_per_node=" + std::to_string(workers)} + trains(words), with_package());
  CAPTURE(result.out, result.err);
  REQUIRE(result.code == 0);
  const auto ends = ends_in(result.out);
  REQUIRE(ends.size() == static_cast<std::size_t>(workers));
  return ends;
}

// A job of three nodes, and all that they print.
class AttemptsJob {
 public:
  AttemptsJob(const Hosts& hosts, int workers, Words words)
      : hosts_(hosts), workers_(workers), words_(std::move(words)) {
    for (int host = 0; host < kNodes; ++host) start(host, host);
  }
  Process& start(int host, int node_rank) {
    const Words options =
        kReplace + Words{"--rdzv-conf=keep_alive_interval=1,keep_alive_max_attempt=6"} +
        Words{"--node_rank=" + std::to_string(node_rank), "--nproc_per_node=" + std::to_string(workers_)};
    const Words command = Words{DDPRUN_BINARY} + static_job(kNodes) + options + trains(words_);
    return *nodes_.emplace_back(std::make_unique<Process>(hosts_.on(host, command), with_package()));
  }
  Process& node(std::size_t index) { return *nodes_[index]; }
  // Waits for the nodes but those of `lost`.
  void finish(std::size_t lost = SIZE_MAX) {
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (i == lost) continue;
      const Result result = nodes_[i]->wait();
      CAPTURE(i, result.out, result.err);
      CHECK(result.code == 0);
      out += result.out;
      err += result.err;
    }
    CHECK(hosts_.all_gone());
  }
  std::string out, err;

 private:
  static constexpr int kNodes = 3;
  const Hosts& hosts_;
  int workers_;
  Words words_;
  std::vector<std::unique_ptr<Process>> nodes_;
};

// Checks that ranks end as undisturbed ones, and that these have their first process.
void check_ends(const AttemptsJob& job, const std::map<int, RankEnd>& expected, const std::vector<int>& stayed) {
  CAPTURE(job.out, job.err);
  const auto ends = ends_in(job.out);
  const auto first = first_pids(job.out);
  REQUIRE(ends.size() == expected.size());
  for (const auto& [rank, end] : expected) {
    CAPTURE(rank);
    CHECK(ends.at(rank).state == end.state);
    CHECK(ends.at(rank).chance == end.chance);
  }
  for (const int rank : stayed) CHECK(first.at(rank) == ends.at(rank).pid);
}

}  // namespace

TEST_CASE(
    "interop nodes: PyTorch in attempts over ddp comes to the same bits wherever ranks of three hosts die, and the "
    "others "
    "keep their processes",
    "[interop]") {
  const Words trained = {"ddp", "12"};
  const auto expected = undisturbed(6, trained);
  // Also the new process of a rank that has died, and survivors, in the recovery.
  const Words deaths = {"die=3:2:backward:0", "die=3:0:start:1",  "die=5:0:form:2",
                        "die=4:0:given:3",    "die=1:4:update:4", "die=2:5:updated:5",
                        "die=5:7:logged:6",   "die=3:9:before:7", "die=1:0:end:8"};
  const Hosts hosts(3);
  AttemptsJob job(hosts, 2, trained + deaths);
  job.finish();
  check_ends(job, expected, {0});
  CHECK(count(job.err, "restart 9 of 30: ") == 3);
  CHECK(count(job.err, "2 of 2 workers of this node stay") > 0);
}

TEST_CASE(
    "interop nodes: PyTorch in attempts over gloo leaves the waits for ranks that died or were stopped, and comes to "
    "the "
    "same bits",
    "[interop]") {
  const Words trained = {"gloo", "10"};
  const auto expected = undisturbed(3, trained);
  // In the last but one a rank stops, and another one dies: no connection to the stopped one ends by itself.
  const Words deaths = {"die=1:2:backward:0", "die=1:0:form:1",      "die=2:4:update:2",
                        "die=2:5:updated:3",  "stop=1:6:backward:4", "die=2:6:backward:4"};
  const Hosts hosts(3);
  AttemptsJob job(hosts, 1, trained + deaths);
  job.finish();
  check_ends(job, expected, {0});
  CHECK_THAT(job.err, Contains("rank 1 did not leave its groups"));
}

TEST_CASE("interop nodes: PyTorch in attempts over gloo goes on when a host is switched off and another one comes",
          "[interop]") {
  const Words trained = {"gloo", "12"};
  const auto expected = undisturbed(3, trained);
  const Hosts hosts(4);
  AttemptsJob job(hosts, 1, trained + Words{"stop=2:5:backward:0"});
  job.node(0).wait_for("begins attempt 0");
  job.node(2).wait_for("stops at step 5");
  hosts.power_off(2);  // its peers are in the middle of a collective, and get no notification
  job.start(3, 2);
  job.finish(2);
  check_ends(job, expected, {0, 1});
}

TEST_CASE("interop nodes: where the system forbids to end connections from outside, PyTorch's workers end their own",
          "[interop]") {
  const Words trained = {"gloo", "8"};
  const auto expected = undisturbed(3, trained);
  const Words fates = {"stop=1:3:backward:0", "die=2:3:backward:0"};
  const Result result =
      run(Words{WITHOUT_CALL, "pidfd_getfd", DDPRUN_BINARY, "--nproc_per_node=3"} + kReplace + trains(trained + fates),
          with_package());
  CAPTURE(result.out, result.err);
  CHECK(result.code == 0);
  const auto ends = ends_in(result.out);
  REQUIRE(ends.size() == 3);
  for (const auto& [rank, end] : expected) CHECK(ends.at(rank).state == end.state);
  CHECK(first_pids(result.out).at(0) == ends.at(0).pid);
}

TEST_CASE(
    "interop nodes: PyTorch in attempts goes on with fewer ranks and with more: all examples are trained on, and each "
    "step is the mean over the ranks that took part",
    "[interop]") {
  const std::string backend = GENERATE(as<std::string>{}, "ddp", "gloo");
  CAPTURE(backend);
  const Hosts hosts(3);
  std::vector<std::unique_ptr<Process>> nodes;
  const auto start = [&](int host, const std::string& stands_still_with = "") {
    Process::Options options = with_package();
    options.environment["STANDS_STILL_WITH"] = stands_still_with;
    const Words words = Words{DDPRUN_BINARY} + c10d_job("2:3") +
                        Words{"--on-failure=shrink", "--preload=auto", ELASTIC_TRAINER, "train", backend};
    nodes.push_back(std::make_unique<Process>(hosts.on(host, words), options));
  };
  start(0);
  start(1, "3");
  start(2, "2");
  nodes[1]->wait_for("of 3 stands still");
  nodes[1]->signal(SIGKILL);
  nodes[2]->wait_for("of 2 stands still");
  start(1);
  std::string out, err;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const Result result = nodes[i]->wait();
    CAPTURE(i, result.out, result.err);
    CHECK(result.code == (i == 1 ? 128 + SIGKILL : 0));
    out += result.out;
    err += result.err;
  }
  CHECK(hosts.all_gone());
  const TemporaryFolder folder;
  const Words check = {getenv("DDPRUN_TEST_PYTHON"), ELASTIC_TRAINER, "check", folder.write("out", out)};
  const Result checked = run(check, with_torch());
  CAPTURE(out, err, checked.err);
  CHECK(checked.code == 0);
  std::cout << backend << ": " << checked.out;
  CHECK(count(err, "1 of 1 workers of this node stay") >= 4);  // two nodes, two changes
}
