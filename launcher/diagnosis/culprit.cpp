// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/diagnosis/culprit.hpp"

#include <algorithm>

#include "launcher/diagnosis/awaited_ranks.hpp"
#include "launcher/diagnosis/stacks/frame_kind.hpp"
#include "launcher/diagnosis/stacks/stack_report.hpp"
#include "launcher/text/ranges.hpp"

namespace ddp::launcher {
namespace {

using Ranks = std::vector<const WorkerStacks*>;

bool is_stopped(const WorkerStacks& worker) {
  return !worker.threads.empty() && worker.threads.front().kernel.starts_with("stopped by");
}

bool is_inside(const WorkerStacks& worker) {
  return !worker.threads.empty() && distributed_call(worker.threads.front()) != nullptr;
}

std::string what_it_does(const WorkerStacks& worker) {
  return worker.threads.empty() ? worker.missing.front() : headline(worker.threads.front());
}

// Returns what all threads of a worker do that run its own code, the main one first.
std::string what_all_do(const WorkerStacks& worker) {
  std::string text = what_it_does(worker);
  for (std::size_t i = 1; i < worker.threads.size(); ++i) {
    const ThreadStack& thread = worker.threads[i];
    if (users_frame(thread) != nullptr && !thread.python.empty()) text += "; " + headline(thread);
  }
  return text;
}

// As is_inside(), of any thread that runs Python.
bool has_thread_inside(const WorkerStacks& worker) {
  return std::any_of(worker.threads.begin(), worker.threads.end(), [](const ThreadStack& thread) {
    return !thread.python.empty() && distributed_call(thread) != nullptr;
  });
}

std::string place_in(const WorkerStacks& worker) {
  const StackFrame* const frame = worker.threads.empty() ? nullptr : users_frame(worker.threads.front());
  return frame != nullptr ? place_of(*frame) : "";
}

// Returns "ranks 0-1, 3 in all_reduce, called at train.py:17 (step)" for each of the places, with "; " between.
std::string describe(const Ranks& workers) {
  std::map<std::string, std::vector<int>> by_place;
  for (const WorkerStacks* worker : workers) by_place[what_it_does(*worker)].push_back(worker->rank);
  std::string text;
  for (const auto& [what, ranks] : by_place) text += (text.empty() ? "" : "; ") + describe_ranks(ranks) + " " + what;
  return text;
}

template <typename Is>
Ranks those(const std::vector<WorkerStacks>& workers, Is is) {
  Ranks found;
  for (const WorkerStacks& worker : workers) {
    if (is(worker)) found.push_back(&worker);
  }
  return found;
}

// Returns the workers of which the fewest do the same, as `what` says it; none if all do.
Ranks fewest(const std::vector<WorkerStacks>& workers, std::string (*what)(const WorkerStacks&)) {
  std::map<std::string, Ranks> by_place;
  for (const WorkerStacks& worker : workers) by_place[what(worker)].push_back(&worker);
  if (by_place.size() == 1) return {};
  std::size_t least = workers.size();
  for (const auto& [place, ranks] : by_place) least = std::min(least, ranks.size());
  return those(workers, [&](const WorkerStacks& w) { return by_place[what(w)].size() == least; });
}

// Returns what a late rank does; what it does beside its main thread is often what that waits for.
std::string all_that_it_does(const WorkerStacks& worker) {
  std::string text = what_it_does(worker);
  for (const std::string& line : beside_main_thread(worker)) text += "; its " + line;
  return text;
}

Culprit accuse(const Ranks& late, Guilt guilt, const char* verb, const std::vector<WorkerStacks>& workers,
               const std::string& why = "") {
  Culprit culprit;
  culprit.guilt = guilt;
  for (const WorkerStacks* worker : late) culprit.ranks.push_back(worker->rank);
  culprit.place = place_in(*late.front());
  culprit.words = describe_ranks(culprit.ranks) + (late.size() == 1 ? " is " : " are ") + verb + ": ";
  const Ranks others =
      those(workers, [&](const WorkerStacks& w) { return std::find(late.begin(), late.end(), &w) == late.end(); });
  culprit.words += (late.size() == 1 ? all_that_it_does(*late.front()) : describe(late)) + why +
                   (others.empty() ? "" : "; the others wait: " + describe(others));
  return culprit;
}

}  // namespace

Culprit find_culprit(const std::vector<WorkerStacks>& workers, const std::map<int, std::string>& ended) {
  const auto all = [](const WorkerStacks&) { return true; };
  if (!ended.empty() && std::any_of(workers.begin(), workers.end(), is_inside)) {
    Culprit culprit{{}, Guilt::Ended, "", ""};
    for (const auto& [rank, how] : ended) culprit.ranks.push_back(rank);
    culprit.words = describe_ranks(culprit.ranks) + " " + ended.begin()->second +
                    ", and the others still run: " + describe(those(workers, all));
    return culprit;
  }
  const Ranks stopped = those(workers, is_stopped);
  if (!stopped.empty()) return accuse(stopped, Guilt::Stopped, "stopped", workers);
  if (const auto awaited = find_awaited(workers)) {
    const Ranks late = those(workers, [&](const WorkerStacks& w) {
      return std::find(awaited->ranks.begin(), awaited->ranks.end(), w.rank) != awaited->ranks.end();
    });
    return awaited->is_cycle ? accuse(late, Guilt::Deadlock, "in a deadlock", workers, "; " + awaited->words)
                             : accuse(late, Guilt::Awaited, "late", workers, "; " + awaited->words);
  }
  const Ranks outside = those(workers, [](const WorkerStacks& w) { return !is_inside(w); });
  if (!outside.empty() && outside.size() < workers.size()) return accuse(outside, Guilt::Outside, "late", workers);
  const Ranks odd = fewest(workers, what_it_does);
  if (!odd.empty()) return accuse(odd, Guilt::Fewest, "elsewhere", workers);
  // The main threads are at one place: the others, such as those of a backward pass, make the difference.
  const Ranks idle = those(workers, [](const WorkerStacks& w) { return !has_thread_inside(w); });
  if (!idle.empty() && idle.size() < workers.size()) return accuse(idle, Guilt::Outside, "late", workers);
  const Ranks odd_threads = fewest(workers, what_all_do);
  if (!odd_threads.empty()) return accuse(odd_threads, Guilt::Fewest, "elsewhere", workers);
  Culprit everyone{{}, Guilt::Everyone, place_in(workers.front()), ""};
  for (const WorkerStacks& worker : workers) everyone.ranks.push_back(worker.rank);
  everyone.words = "all ranks are at one place (" + describe(those(workers, all)) + ")";
  return everyone;
}

Culprit accuse_silent(const std::vector<SilentNode>& nodes, const std::vector<WorkerStacks>& others) {
  Culprit culprit{{}, Guilt::Silent, "", ""};
  for (const SilentNode& node : nodes) {
    culprit.ranks.insert(culprit.ranks.end(), node.ranks.begin(), node.ranks.end());
    culprit.words +=
        (culprit.words.empty() ? "node " : ", node ") + node.host + " (" + describe_ranks(node.ranks) + ")";
  }
  culprit.words += nodes.size() == 1 ? " does not answer: is its ddprun stopped, or its machine or network down?"
                                     : " do not answer: are their ddpruns stopped, or their machines or network down?";
  const Ranks all = those(others, [](const WorkerStacks&) { return true; });
  if (!all.empty()) culprit.words += " The others: " + describe(all);
  return culprit;
}

const char* name_of(Guilt guilt) {
  switch (guilt) {
    case Guilt::Ended:
      return "ended";
    case Guilt::Stopped:
      return "stopped";
    case Guilt::Awaited:
      return "awaited";
    case Guilt::Deadlock:
      return "deadlock";
    case Guilt::Outside:
      return "outside";
    case Guilt::Fewest:
      return "elsewhere";
    case Guilt::Everyone:
      return "everyone";
    case Guilt::Silent:
      return "silent";
  }
  return "unknown";
}

}  // namespace ddp::launcher
