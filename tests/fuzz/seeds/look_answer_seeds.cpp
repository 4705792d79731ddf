// SPDX-License-Identifier: BSD-3-Clause
// Writes look_answer_fuzzer's first inputs: what agents answer to each question.
// usage: look_answer_seeds CORPUS_FOLDER
#include <string>

#include "launcher/diagnosis/stacks/stack_json.hpp"
#include "launcher/local/job_view.hpp"
#include "launcher/report/issue_report.hpp"
#include "tests/fuzz/seeds/seeds.hpp"

int main(int argc, char** argv) {
  using namespace ddp::launcher;
  if (argc != 2) return 2;
  ddp::fuzz::Seeds seeds(argv[1]);
  AgentView view;
  view.host = "b";
  view.link = LinkDelay{310, 20};
  view.gpus = {GpuView{.index = 0, .percent = 97, .memory = 1, .capacity = 2, .ranks = {0}}};
  WorkerView worker{.rank = 1, .pid = 9};
  worker.step = 40;
  worker.steps_per_second = 2.5;
  worker.now_in = "all_reduce #412 of group world";
  worker.usage = WorkerUsage{.state = "runs", .cpu_ms = 1500, .rss = 4096, .threads = 3};
  view.workers = {worker, WorkerView{.rank = 2, .pid = 10}};
  seeds.write(to_json(view));
  const ThreadStack thread = {9, "MainThread", "runs", {{"step", "train.py", 8}}, {{"poll", "libc.so", 5, "poll.c"}}};
  WorkerStacks stacks = {1, 9, {thread}, {"no native stacks"}};
  stacks.calls = {{"world", 1, 2, 412, "all_reduce", {{"recv", 5, 8, 0, 31}}}};
  stacks.children = {{11, "loader", {thread}, {}}};
  seeds.write(stacks_json({stacks, {2, 10, {}, {"the process has ended"}}}));
  IssueReport::Node node{.host = "b", .facts = R"({"host":"b","command":["a"],"environment":["A=b"]})"};
  node.rounds = {"round 1 began"};
  node.recorders = {{1, R"({"groups":[{"name":"world","operations":[{"sequence":1,"operation":"all_reduce"}]}]})"}};
  seeds.write(node_report_json(node));
  seeds.write(R"({"error":"its answer is too large to be sent"})");
  seeds.write("10.0.0.7 41234 10.0.0.1 29500 own");
  seeds.write("fd00::7 41234 fd00::1 29500 other alice (uid 1000)");
  seeds.write(std::string(30, '[') + std::string(30, ']'));
  return 0;
}
