// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/diagnosis/stacks/stack_report.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>

#include "launcher/diagnosis/stacks/frame_kind.hpp"
#include "launcher/text/ranges.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/wire/json_text.hpp"

namespace ddp::launcher {
namespace {

constexpr std::size_t kMostFrames = 20, kMostNative = 6;

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::string line_of(const StackFrame& frame) {
  std::string text = "    " + (frame.function.empty() ? "?" : frame.function);
  if (text.size() < 30) text.resize(30, ' ');
  const std::string& file = frame.source.empty() ? frame.file : frame.source;
  return text + " " + file + (frame.line > 0 ? ":" + std::to_string(frame.line) : "") + "\n";
}

// Returns a line for each frame; of a long stack, as of an endless recursion, only the innermost frames.
std::string lines_of(const std::vector<StackFrame>& frames) {
  std::string text;
  const std::size_t shown = std::min(frames.size(), kMostFrames);
  for (std::size_t i = 0; i < shown; ++i) text += line_of(frames[i]);
  if (shown < frames.size()) text += "    and " + std::to_string(frames.size() - shown) + " more (--json has them)\n";
  return text;
}

struct ShownFrames {
  std::vector<StackFrame> stack;   // a line each
  std::vector<StackFrame> called;  // by the innermost of these, all in one line
};

// Returns Python's frames and what they have called. Of a native thread that is in a distributed call, the frames from
// that call on are the stack: how libddp waits inside it differs from rank to rank, and is no difference to the user.
ShownFrames shown_frames(const ThreadStack& thread) {
  if (!thread.python.empty()) return {thread.python, thread.native};
  const std::vector<StackFrame>& native = thread.native;
  const StackFrame* const call = distributed_call(thread);
  const auto begin = native.begin() + (call != nullptr ? call - native.data() : 0);
  auto end = std::find_if(begin, native.end(), [](const StackFrame& frame) { return frame.function == "main"; });
  if (end != native.end()) ++end;  // what calls main() is equal in all programs
  return {{begin, end}, {native.begin(), begin}};
}

std::string describe_thread(const ThreadStack& thread) {
  const ShownFrames frames = shown_frames(thread);
  std::string text = lines_of(frames.stack);
  if (!frames.called.empty()) {
    text += "    which has called: ";
    for (std::size_t i = std::min(frames.called.size(), kMostNative); i-- > 0;) {
      const StackFrame& frame = frames.called[i];
      text += (frame.function.empty() ? "? of " + base_name(frame.file) : frame.function) + (i > 0 ? " > " : "\n");
    }
  }
  if (frames.stack.empty()) return text;  // the headline is what the kernel says
  return text + "    the kernel says: " + thread.kernel + "\n";
}

// Returns what is equal for ranks whose main threads do the same.
std::string lines_of_main_thread(const WorkerStacks& worker) {
  if (worker.threads.empty()) return worker.missing.front();
  const ThreadStack& main = worker.threads.front();
  const std::vector<StackFrame> frames = shown_frames(main).stack;
  std::string text;
  for (const StackFrame& frame : frames) text += line_of(frame);
  return frames.empty() ? main.kernel : text;
}

struct Entry {
  std::vector<int> ranks;
  std::vector<const WorkerStacks*> workers;
};

std::string describe_call(const CallUnderWay& call, const GroupCalls& group) {
  std::string text = call.operation;
  if (call.peer == CallUnderWay::kNoPeer) text += " #" + std::to_string(call.sequence);
  if (call.peer >= 0) text += " (peer: rank " + std::to_string(call.peer) + ")";
  text += " of group " + group.group;
  return call.bytes > 0 ? text + ", " + rendezvous::describe_bytes(call.bytes) : text;
}

// Returns a line for each call of libddp that some of these workers are in.
std::string describe_calls(const std::vector<const WorkerStacks*>& workers) {
  struct Those {
    std::vector<int> ranks;
    std::int64_t milliseconds = 0;
  };
  std::map<std::string, Those> by_call;
  for (const WorkerStacks* worker : workers) {
    for (const GroupCalls& group : worker->calls) {
      for (const CallUnderWay& call : group.under_way) {
        Those& those = by_call[describe_call(call, group)];
        those.ranks.push_back(worker->rank);
        those.milliseconds = std::max(those.milliseconds, call.milliseconds);
      }
    }
  }
  std::string text;
  for (const auto& [call, those] : by_call) {
    const bool all = those.ranks.size() == workers.size();
    text += "    libddp: " + (all ? "" : describe_ranks(those.ranks) + " in ") + call + ", for " +
            rendezvous::to_string(std::chrono::milliseconds(those.milliseconds)) + "\n";
  }
  return text;
}

std::string describe_entry(const Entry& entry) {
  const WorkerStacks& first = *entry.workers.front();
  std::string text = describe_ranks(entry.ranks) + ": ";
  if (first.threads.empty()) return text + first.missing.front() + "\n" + describe_calls(entry.workers);
  const ThreadStack& main = first.threads.front();
  text += headline(main) + "\n" + describe_calls(entry.workers) + describe_thread(main);
  for (const std::string& line : beside_main_thread(first)) text += "    " + line + "\n";
  for (const std::string& missing : first.missing) text += "    " + missing + "\n";
  return text;
}

}  // namespace

std::string headline(const ThreadStack& thread) {
  const bool is_python = !thread.python.empty();
  const std::vector<StackFrame>& frames = is_python ? thread.python : thread.native;
  if (frames.empty()) return thread.kernel;
  const auto innermost =
      std::find_if(frames.begin(), frames.end(), [](const StackFrame& f) { return !f.function.empty(); });
  const StackFrame* const users = users_frame(thread);
  if (users == nullptr || (!is_python && users->line == 0)) {
    if (is_python) return "in " + frames.front().function + " at " + place_of(frames.front());
    return innermost == frames.end() ? thread.kernel : "in " + innermost->function;
  }
  const std::string line = place_of(*users) + " (" + users->function + ")";
  std::string called;
  if (const StackFrame* const distributed = distributed_call(thread)) {
    called = distributed->function;
  } else if (users != &frames.front()) {
    called = std::prev(users)->function;
  } else if (is_python && !thread.native.empty()) {
    called = thread.native.front().function;
  }
  return called.empty() ? "at " + line : "in " + called + ", called at " + line;
}

std::vector<std::string> beside_main_thread(const WorkerStacks& worker) {
  std::vector<std::string> lines;
  for (std::size_t i = 1; i < worker.threads.size(); ++i) {
    const ThreadStack& thread = worker.threads[i];
    const bool is_own = std::any_of(thread.python.begin(), thread.python.end(), is_users);
    if (is_own) lines.push_back("thread " + thread.name + ": " + headline(thread));
  }
  for (const ChildStacks& child : worker.children) {
    // A Python of its own that runs the standard library alone, such as multiprocessing's resource tracker, says
    // nothing.
    const ThreadStack& main = child.threads.front();
    if (!main.python.empty() && users_frame(main) == nullptr) continue;
    std::string line = "process " + std::to_string(child.pid) + " (" + child.name + "): " + headline(main);
    for (const std::string& missing : child.missing) line += " (" + missing + ")";
    lines.push_back(std::move(line));
  }
  return lines;
}

std::string describe_stacks(const std::vector<WorkerStacks>& workers) {
  std::map<std::string, Entry> entries;
  for (const WorkerStacks& worker : workers) {
    Entry& entry = entries[lines_of_main_thread(worker)];
    entry.workers.push_back(&worker);
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

}  // namespace ddp::launcher
