// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/stacks/stack_report.hpp"

#include <algorithm>
#include <map>

#include "launcher/text/json_text.hpp"
#include "launcher/text/ranges.hpp"

namespace ddp::launcher {
namespace {

constexpr std::size_t kMostNative = 6;

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::string place(const Frame& frame) {
  return frame.line > 0 ? base_name(frame.file) + ":" + std::to_string(frame.line) : base_name(frame.file);
}

// Whether a Python frame is neither of the standard library nor of an installed package.
bool is_users(const Frame& frame) {
  if (frame.file.rfind('<', 0) == 0) return false;  // "<frozen runpy>"
  for (const char* part : {"/site-packages/", "/dist-packages/"}) {
    if (frame.file.find(part) != std::string::npos) return false;
  }
  const std::size_t lib = frame.file.find("/lib/python3.");
  return lib == std::string::npos;
}

bool is_distributed(const Frame& frame) {
  return frame.file.find("/torch/distributed/") != std::string::npos && frame.function != "wrapper";
}

// Returns what a stack is about: "in all_reduce, called at train.py:88 (step)".
std::string headline(const ThreadStack& thread) {
  const std::vector<Frame>& frames = thread.python.empty() ? thread.native : thread.python;
  if (frames.empty()) return thread.kernel;
  if (thread.python.empty()) {
    const auto named = std::find_if(frames.begin(), frames.end(), [](const Frame& f) { return !f.function.empty(); });
    return named == frames.end() ? thread.kernel : "in " + named->function;
  }
  const auto users = std::find_if(frames.begin(), frames.end(), is_users);
  if (users == frames.end()) return "in " + frames.front().function + " at " + place(frames.front());
  const std::string line = place(*users) + " (" + users->function + ")";
  std::string called;
  const auto distributed = std::find_if(frames.begin(), users, is_distributed);
  if (distributed != users) {
    called = distributed->function;
  } else if (users != frames.begin()) {
    called = std::prev(users)->function;
  } else if (!thread.native.empty()) {
    called = thread.native.front().function;
  }
  return called.empty() ? "at " + line : "in " + called + ", called at " + line;
}

std::string line_of(const Frame& frame) {
  std::string text = "    " + (frame.function.empty() ? "?" : frame.function);
  if (text.size() < 30) text.resize(30, ' ');
  return text + " " + frame.file + (frame.line > 0 ? ":" + std::to_string(frame.line) : "") + "\n";
}

std::string describe_thread(const ThreadStack& thread) {
  std::string text;
  for (const Frame& frame : thread.python) text += line_of(frame);
  if (thread.python.empty()) {
    for (const Frame& frame : thread.native) text += line_of(frame);
  } else if (!thread.native.empty()) {
    text += "    which has called: ";
    for (std::size_t i = std::min(thread.native.size(), kMostNative); i-- > 0;) {
      const Frame& frame = thread.native[i];
      text += (frame.function.empty() ? "? of " + base_name(frame.file) : frame.function) + (i > 0 ? " > " : "\n");
    }
  }
  return text + "    the kernel says: " + thread.kernel + "\n";
}

// Returns what is equal for ranks whose main threads do the same.
std::string what_it_does(const WorkerStacks& worker) {
  if (worker.threads.empty()) return worker.missing.front();
  const ThreadStack& main = worker.threads.front();
  const std::vector<Frame>& frames = main.python.empty() ? main.native : main.python;
  std::string text;
  for (const Frame& frame : frames) text += line_of(frame);
  return frames.empty() ? main.kernel : text;
}

struct Entry {
  std::vector<int> ranks;
  const WorkerStacks* first = nullptr;
};

std::string describe_entry(const Entry& entry) {
  std::string text = describe_ranks(entry.ranks) + ": ";
  if (entry.first->threads.empty()) return text + entry.first->missing.front() + "\n";
  const ThreadStack& main = entry.first->threads.front();
  text += headline(main) + "\n" + describe_thread(main);
  for (std::size_t i = 1; i < entry.first->threads.size(); ++i) {
    const ThreadStack& thread = entry.first->threads[i];
    if (std::any_of(thread.python.begin(), thread.python.end(), is_users)) {
      text += "    thread " + thread.name + ": " + headline(thread) + "\n";
    }
  }
  for (const std::string& missing : entry.first->missing) text += "    " + missing + "\n";
  return text;
}

std::string frames_json(const std::vector<Frame>& frames) {
  std::string list;
  for (const Frame& frame : frames) {
    JsonObject object;
    object.text("function", frame.function).text("file", frame.file);
    if (frame.line > 0) object.number("line", frame.line);
    list += (list.empty() ? "" : ",") + object.str();
  }
  return "[" + list + "]";
}

}  // namespace

std::string describe_stacks(const std::vector<WorkerStacks>& workers) {
  std::map<std::string, Entry> entries;
  for (const WorkerStacks& worker : workers) {
    Entry& entry = entries[what_it_does(worker)];
    if (entry.first == nullptr) entry.first = &worker;
    entry.ranks.push_back(worker.rank);
  }
  std::vector<Entry> sorted;
  for (auto& [key, entry] : entries) sorted.push_back(std::move(entry));
  std::stable_sort(sorted.begin(), sorted.end(), [](const Entry& a, const Entry& b) {
    return a.ranks.size() != b.ranks.size() ? a.ranks.size() < b.ranks.size() : a.ranks.front() < b.ranks.front();
  });
  std::string text;
  for (const Entry& entry : sorted) text += describe_entry(entry);
  return text;
}

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

}  // namespace ddp::launcher
