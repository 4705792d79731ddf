// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/stacks/stack_report.hpp"

#include <algorithm>
#include <iterator>
#include <map>

#include "launcher/stacks/frame_kind.hpp"
#include "launcher/text/json_text.hpp"
#include "launcher/text/ranges.hpp"

namespace ddp::launcher {
namespace {

constexpr std::size_t kMostFrames = 20, kMostNative = 6;

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::string line_of(const Frame& frame) {
  std::string text = "    " + (frame.function.empty() ? "?" : frame.function);
  if (text.size() < 30) text.resize(30, ' ');
  const std::string& file = frame.source.empty() ? frame.file : frame.source;
  return text + " " + file + (frame.line > 0 ? ":" + std::to_string(frame.line) : "") + "\n";
}

// Returns a line for each frame; of a long stack, as of an endless recursion, only the innermost frames.
std::string lines_of(const std::vector<Frame>& frames) {
  std::string text;
  const std::size_t shown = std::min(frames.size(), kMostFrames);
  for (std::size_t i = 0; i < shown; ++i) text += line_of(frames[i]);
  if (shown < frames.size()) text += "    and " + std::to_string(frames.size() - shown) + " more (--json has them)\n";
  return text;
}

std::string describe_thread(const ThreadStack& thread) {
  std::string text = lines_of(thread.python);
  if (thread.python.empty()) {
    text = lines_of(thread.native);
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
std::string lines_of_main_thread(const WorkerStacks& worker) {
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

}  // namespace

std::string headline(const ThreadStack& thread) {
  const bool is_python = !thread.python.empty();
  const std::vector<Frame>& frames = is_python ? thread.python : thread.native;
  if (frames.empty()) return thread.kernel;
  const auto innermost = std::find_if(frames.begin(), frames.end(), [](const Frame& f) { return !f.function.empty(); });
  const Frame* const users = users_frame(thread);
  if (users == nullptr || (!is_python && users->line == 0)) {
    if (is_python) return "in " + frames.front().function + " at " + place_of(frames.front());
    return innermost == frames.end() ? thread.kernel : "in " + innermost->function;
  }
  const std::string line = place_of(*users) + " (" + users->function + ")";
  std::string called;
  if (const Frame* const distributed = distributed_call(thread)) {
    called = distributed->function;
  } else if (users != &frames.front()) {
    called = std::prev(users)->function;
  } else if (is_python && !thread.native.empty()) {
    called = thread.native.front().function;
  }
  return called.empty() ? "at " + line : "in " + called + ", called at " + line;
}

std::string describe_stacks(const std::vector<WorkerStacks>& workers) {
  std::map<std::string, Entry> entries;
  for (const WorkerStacks& worker : workers) {
    Entry& entry = entries[lines_of_main_thread(worker)];
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

}  // namespace ddp::launcher
