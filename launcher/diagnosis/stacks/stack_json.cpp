// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/diagnosis/stacks/stack_json.hpp"

#include "rendezvous/wire/declared_json.hpp"

namespace ddp::launcher {

template <typename Json>
void members(Json& json, StackFrame& frame) {
  json.must("function", frame.function).must("file", frame.file);
  json.rest("source", frame.source).rest("line", frame.line);
}

template <typename Json>
void members(Json& json, ThreadStack& thread) {
  json.must("id", thread.id).must("name", thread.name).must("kernel", thread.kernel);
  json.must("python", thread.python).must("native", thread.native);
}

template <typename Json>
void members(Json& json, ChildStacks& child) {
  json.must("pid", child.pid).must("name", child.name).must("threads", child.threads).rest("missing", child.missing);
}

template <typename Json>
void members(Json& json, CallUnderWay& call) {
  json.must("operation", call.operation).must("sequence", call.sequence).must("bytes", call.bytes);
  json.must("milliseconds", call.milliseconds).rest("peer", call.peer, CallUnderWay::kNoPeer);
}

template <typename Json>
void members(Json& json, GroupCalls& group) {
  json.must("group", group.group).must("rank", group.rank).must("size", group.size);
  json.must("collectives", group.collectives).must("newest", group.newest).must("under_way", group.under_way);
  json("operations", group.operations);
}

template <typename Json>
void members(Json& json, WorkerStacks& worker) {
  json.must("rank", worker.rank).must("pid", worker.pid).must("missing", worker.missing);
  json.must("threads", worker.threads).rest("children", worker.children).rest("calls", worker.calls);
}

std::string calls_json(const std::vector<GroupCalls>& groups) { return rendezvous::json_of(groups); }

std::optional<std::vector<GroupCalls>> calls_from_json(std::string_view text) {
  return rendezvous::read_json<std::vector<GroupCalls>>(text);
}

std::string stacks_json(const std::vector<WorkerStacks>& workers) { return rendezvous::json_of(workers); }

std::optional<std::vector<WorkerStacks>> stacks_from_json(std::string_view text) {
  return rendezvous::read_json<std::vector<WorkerStacks>>(text);
}

}  // namespace ddp::launcher
