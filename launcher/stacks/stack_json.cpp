// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/stacks/stack_json.hpp"

#include <nlohmann/json.hpp>

#include "launcher/text/json_text.hpp"
#include "rendezvous/base/shallow_json.hpp"

namespace ddp::launcher {
namespace {

using nlohmann::json;

std::string frames_json(const std::vector<StackFrame>& frames) {
  std::string list;
  for (const StackFrame& frame : frames) {
    JsonObject object;
    object.text("function", frame.function).text("file", frame.file);
    if (!frame.source.empty()) object.text("source", frame.source);
    if (frame.line > 0) object.number("line", frame.line);
    list += (list.empty() ? "" : ",") + object.str();
  }
  return "[" + list + "]";
}

std::vector<StackFrame> frames_from(const json& list) {
  std::vector<StackFrame> frames;
  for (const json& frame : list) {
    frames.push_back({frame.at("function"), frame.at("file"), frame.value("line", 0), frame.value("source", "")});
  }
  return frames;
}

std::string calls_under_way_json(const std::vector<CallUnderWay>& calls) {
  std::string list;
  for (const CallUnderWay& call : calls) {
    JsonObject object;
    object.text("operation", call.operation).number("sequence", static_cast<std::int64_t>(call.sequence));
    object.number("bytes", static_cast<std::int64_t>(call.bytes)).number("milliseconds", call.milliseconds);
    if (call.peer != CallUnderWay::kNoPeer) object.number("peer", call.peer);
    list += (list.empty() ? "" : ",") + object.str();
  }
  return "[" + list + "]";
}

GroupCalls group_from(const json& object) {
  GroupCalls group = {object.at("group"), object.at("rank"), object.at("size"), object.at("collectives"),
                      object.at("newest")};
  group.operations = object.value("operations", std::uint64_t{0});
  for (const json& call : object.at("under_way")) {
    group.under_way.push_back({call.at("operation"), call.at("sequence"), call.at("bytes"),
                               call.value("peer", CallUnderWay::kNoPeer), call.at("milliseconds")});
  }
  return group;
}

std::vector<GroupCalls> groups_from(const json& list) {
  std::vector<GroupCalls> groups;
  for (const json& group : list) groups.push_back(group_from(group));
  return groups;
}

std::string threads_json(const std::vector<ThreadStack>& threads) {
  std::string list;
  for (const ThreadStack& thread : threads) {
    list += (list.empty() ? "" : ",") + JsonObject()
                                            .number("id", thread.id)
                                            .text("name", thread.name)
                                            .text("kernel", thread.kernel)
                                            .json("python", frames_json(thread.python))
                                            .json("native", frames_json(thread.native))
                                            .str();
  }
  return "[" + list + "]";
}

std::string words_json(const std::vector<std::string>& words) {
  std::string list;
  for (const std::string& word : words) list += (list.empty() ? "" : ",") + quoted_json(word);
  return "[" + list + "]";
}

std::string children_json(const std::vector<ChildStacks>& children) {
  std::string list;
  for (const ChildStacks& child : children) {
    JsonObject object;
    object.number("pid", child.pid).text("name", child.name).json("threads", threads_json(child.threads));
    if (!child.missing.empty()) object.json("missing", words_json(child.missing));
    list += (list.empty() ? "" : ",") + object.str();
  }
  return "[" + list + "]";
}

std::vector<ThreadStack> threads_from(const json& list) {
  std::vector<ThreadStack> threads;
  for (const json& thread : list) {
    threads.push_back({thread.at("id"), thread.at("name"), thread.at("kernel"), frames_from(thread.at("python")),
                       frames_from(thread.at("native"))});
  }
  return threads;
}

WorkerStacks worker_from(const json& object) {
  WorkerStacks worker;
  worker.rank = object.at("rank");
  worker.pid = object.at("pid");
  worker.missing = object.at("missing").get<std::vector<std::string>>();
  worker.threads = threads_from(object.at("threads"));
  for (const json& child : object.value("children", json::array())) {
    worker.children.push_back({child.at("pid"), child.at("name"), threads_from(child.at("threads")),
                               child.value("missing", std::vector<std::string>())});
  }
  if (const auto calls = object.find("calls"); calls != object.end()) worker.calls = groups_from(*calls);
  return worker;
}

}  // namespace

std::string calls_json(const std::vector<GroupCalls>& groups) {
  std::string list;
  for (const GroupCalls& group : groups) {
    list += (list.empty() ? "" : ",") + JsonObject()
                                            .text("group", group.group)
                                            .number("rank", group.rank)
                                            .number("size", group.size)
                                            .number("collectives", static_cast<std::int64_t>(group.collectives))
                                            .text("newest", group.newest)
                                            .json("under_way", calls_under_way_json(group.under_way))
                                            .number("operations", static_cast<std::int64_t>(group.operations))
                                            .str();
  }
  return "[" + list + "]";
}

std::optional<std::vector<GroupCalls>> calls_from_json(std::string_view text) {
  try {
    return groups_from(rendezvous::parse_shallow(text));
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

std::string stacks_json(const std::vector<WorkerStacks>& workers) {
  std::string list;
  for (const WorkerStacks& worker : workers) {
    JsonObject object;
    object.number("rank", worker.rank).number("pid", worker.pid);
    object.json("missing", words_json(worker.missing)).json("threads", threads_json(worker.threads));
    if (!worker.children.empty()) object.json("children", children_json(worker.children));
    if (!worker.calls.empty()) object.json("calls", calls_json(worker.calls));
    list += (list.empty() ? "" : ",") + object.str();
  }
  return "[" + list + "]";
}

std::optional<std::vector<WorkerStacks>> stacks_from_json(std::string_view text) {
  try {
    std::vector<WorkerStacks> workers;
    for (const json& worker : rendezvous::parse_shallow(text)) workers.push_back(worker_from(worker));
    return workers;
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

}  // namespace ddp::launcher
