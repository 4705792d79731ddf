// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/stacks/stack_json.hpp"

#include <nlohmann/json.hpp>

#include "launcher/text/json_text.hpp"

namespace ddp::launcher {
namespace {

using nlohmann::json;

std::string frames_json(const std::vector<Frame>& frames) {
  std::string list;
  for (const Frame& frame : frames) {
    JsonObject object;
    object.text("function", frame.function).text("file", frame.file);
    if (!frame.source.empty()) object.text("source", frame.source);
    if (frame.line > 0) object.number("line", frame.line);
    list += (list.empty() ? "" : ",") + object.str();
  }
  return "[" + list + "]";
}

std::vector<Frame> frames_from(const json& list) {
  std::vector<Frame> frames;
  for (const json& frame : list) {
    frames.push_back({frame.at("function"), frame.at("file"), frame.value("line", 0), frame.value("source", "")});
  }
  return frames;
}

WorkerStacks worker_from(const json& object) {
  WorkerStacks worker;
  worker.rank = object.at("rank");
  worker.pid = object.at("pid");
  worker.missing = object.at("missing").get<std::vector<std::string>>();
  for (const json& thread : object.at("threads")) {
    worker.threads.push_back({thread.at("id"), thread.at("name"), thread.at("kernel"), frames_from(thread.at("python")),
                              frames_from(thread.at("native"))});
  }
  return worker;
}

}  // namespace

std::string stacks_json(const std::vector<WorkerStacks>& workers) {
  std::string list;
  for (const WorkerStacks& worker : workers) {
    std::string threads, missing;
    for (const ThreadStack& thread : worker.threads) {
      threads += (threads.empty() ? "" : ",") + JsonObject()
                                                    .number("id", thread.id)
                                                    .text("name", thread.name)
                                                    .text("kernel", thread.kernel)
                                                    .json("python", frames_json(thread.python))
                                                    .json("native", frames_json(thread.native))
                                                    .str();
    }
    for (const std::string& part : worker.missing) missing += (missing.empty() ? "" : ",") + quoted_json(part);
    list += (list.empty() ? "" : ",") + JsonObject()
                                            .number("rank", worker.rank)
                                            .number("pid", worker.pid)
                                            .json("missing", "[" + missing + "]")
                                            .json("threads", "[" + threads + "]")
                                            .str();
  }
  return "[" + list + "]";
}

std::optional<std::vector<WorkerStacks>> stacks_from_json(std::string_view text) {
  try {
    std::vector<WorkerStacks> workers;
    for (const json& worker : json::parse(text)) workers.push_back(worker_from(worker));
    return workers;
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

}  // namespace ddp::launcher
