// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/local/job_view.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "launcher/local/job_answers.hpp"

using Catch::Matchers::Contains;
using nlohmann::json;
using namespace ddp::launcher;
using ddp::rendezvous::JobFacts;

namespace {

AgentView view_of(const std::string& host, int base_rank, std::int64_t step) {
  AgentView view;
  view.job = "job7";
  view.program = "train.py";
  view.host = host;
  view.pid = 100 + base_rank;
  view.seconds = 60 + base_rank;
  view.facts.round = 2;
  view.facts.phase = ddp::rendezvous::NodePhase::Running;
  WorkerView worker{.rank = base_rank, .pid = 200 + base_rank};
  worker.step = step;
  worker.steps_per_second = 2.5;
  worker.usage = WorkerUsage{.state = "runs", .cpu_ms = 1500, .rss = 4096, .threads = 3};
  view.workers = {worker, WorkerView{.rank = base_rank + 1, .pid = 300 + base_rank, .local_rank = 1}};
  return view;
}

JobFacts two_nodes() {
  JobFacts facts;
  facts.phase = "running";
  facts.round = 2;
  facts.restarts = 1;
  facts.max_restarts = 3;
  facts.coordinator = "A";
  facts.nodes = {{"A", "a", "", "running", 0, 0, 2},
                 {"B", "b", "10.0.0.2", "running", 1, 2, 2},
                 {"C", "c", "10.0.0.3", "spare", -1, 0, 2}};
  return facts;
}

}  // namespace

TEST_CASE("job state: what all nodes said is one document, which is read as it was written", "[launcher][unit]") {
  const AgentView own = view_of("a", 0, 40);
  const std::map<std::string, std::string> answers = {
      {"A", "stale"}, {"B", to_json(view_of("b", 2, 39))}, {"C", R"({"error":"no"})"}};
  const JobView state = assemble(two_nodes(), answers, "A", own, "");
  const std::string text = to_json(state);
  const json document = json::parse(text);
  CHECK(document.at("job") == "job7");
  CHECK(document.at("world_size") == 4);
  CHECK(document.at("restarts") == 1);
  CHECK(document.at("seconds") == 62);
  CHECK(document.at("error").is_null());
  const json& nodes = document.at("nodes");
  REQUIRE(nodes.size() == 3);
  CHECK(nodes[0].at("coordinator") == true);
  CHECK(nodes[0].at("asked") == true);
  CHECK(nodes[1].at("asked") == false);
  CHECK(nodes[1].at("workers")[0].at("step") == 39);
  CHECK(nodes[1].at("workers")[0].at("steps_per_second") == 2.5);
  CHECK(nodes[1].at("workers")[0].at("cpu_seconds") == 1.5);
  CHECK(nodes[1].at("workers")[1].at("step").is_null());
  CHECK(nodes[2].at("seated") == false);
  CHECK(nodes[2].at("workers").empty());
  CHECK_FALSE(nodes[2].at("error").is_null());
  const auto read = job_view(text);
  REQUIRE(read);
  CHECK(to_json(*read) == text);
}

TEST_CASE("job state: a node is slow whose link takes much longer than the others'", "[launcher][unit]") {
  AgentView b = view_of("b", 2, 39), c = view_of("c", 4, 39);
  b.link = LinkDelay{105'000, 20};
  c.link = LinkDelay{400, 20};
  c.phase = "waiting";
  const JobView state = assemble(two_nodes(), {{"B", to_json(b)}, {"C", to_json(c)}}, "A", view_of("a", 0, 40), "");
  const std::string text = to_json(state);
  const json nodes = json::parse(text).at("nodes");
  CHECK(nodes[0].at("round_trip_us").is_null());
  CHECK(nodes[0].at("slow_link").is_null());
  CHECK(nodes[1].at("round_trip_us") == 105'000);
  CHECK_THAT(nodes[1].at("slow_link").get<std::string>(), Contains("node b answers slowly"));
  CHECK(nodes[2].at("round_trip_us") == 400);
  CHECK(nodes[2].at("slow_link").is_null());
  CHECK(nodes[2].at("phase") == "waiting");
  CHECK(to_json(job_view(text).value()) == text);
}

TEST_CASE("job state: a node that did not answer is shown as such", "[launcher][unit]") {
  const JobView state = assemble(two_nodes(), {}, "A", view_of("a", 0, 1), "");
  CHECK(state.nodes[0].view);
  CHECK_FALSE(state.nodes[1].view);
  CHECK_THAT(state.nodes[1].error, Contains("did not answer in time"));
  CHECK_FALSE(state.step());
}

TEST_CASE("job state: without the coordinator it is the node that was asked, and says so", "[launcher][unit]") {
  const JobView state = assemble({}, {}, "A", view_of("a", 0, 1), "the coordinator cannot be asked");
  REQUIRE(state.nodes.size() == 1);
  CHECK(state.nodes[0].is_asked);
  CHECK(json::parse(to_json(state)).at("error") == "the coordinator cannot be asked");
}

TEST_CASE("job state: the step of the job is the lowest one, once each worker has shown one", "[launcher][unit]") {
  AgentView a = view_of("a", 0, 40), b = view_of("b", 2, 39);
  a.workers[1].step = 41;
  b.workers[1].step = 38;
  JobFacts facts = two_nodes();
  facts.nodes.pop_back();
  CHECK(assemble(facts, {{"B", to_json(b)}}, "A", a, "").step() == 38);
  b.workers[1].step.reset();
  CHECK_FALSE(assemble(facts, {{"B", to_json(b)}}, "A", a, "").step());
}

TEST_CASE("job answers: JSON of nodes passes, what is none becomes an error", "[launcher][unit]") {
  const std::string text = job_answers_json({.nodes = {{"a", 0, R"([{"rank":0}])", ""},
                                                       {"b", 1, "", ""},
                                                       {"c", 2, "nonsense", ""},
                                                       {"d", 3, R"({"error":"no tools"})", ""},
                                                       {"e", 4, R"({"error":{}})", ""}},
                                             .error = ""});
  const auto read = job_answers(text);
  REQUIRE(read);
  REQUIRE(read->nodes.size() == 5);
  CHECK(read->nodes[0].text == R"([{"rank":0}])");
  CHECK_THAT(read->nodes[1].error, Contains("did not answer"));
  CHECK(read->nodes[2].error == "its answer is no JSON");
  CHECK(read->nodes[3].error == "no tools");
  CHECK(read->nodes[4].error == "an error without words");
  CHECK_FALSE(job_answers("[]"));
  CHECK_FALSE(job_answers(R"({"version":1,"error":"refused"})"));
}
