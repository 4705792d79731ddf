// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/diagnosis/awaited_ranks.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "launcher/diagnosis/stacks/frame_kind.hpp"
#include "launcher/text/ranges.hpp"

namespace ddp::launcher {
namespace {

using Index = std::size_t;  // says which worker is meant

// One worker waits for another in this call of this group.
struct Wait {
  Index waits, awaited;
  const GroupCalls* group;
  const CallUnderWay* call;
};

// Calls may have been begun long before they are waited for. A worker waits now if a thread is in a distributed call:
// the main one, or one of Python's, as in a backward pass.
bool waits_now(const WorkerStacks& worker) {
  if (worker.threads.empty()) return true;  // not known
  return std::any_of(worker.threads.begin(), worker.threads.end(), [&](const ThreadStack& thread) {
    return (thread.id == worker.pid || !thread.python.empty()) && distributed_call(thread) != nullptr;
  });
}

bool is_paired(const CallUnderWay& call, const GroupCalls& own, const GroupCalls& peers) {
  return std::any_of(peers.under_way.begin(), peers.under_way.end(), [&](const CallUnderWay& other) {
    return other.operation != call.operation && (other.peer == own.rank || other.peer == CallUnderWay::kAnyPeer);
  });
}

class Waits {
 public:
  explicit Waits(const std::vector<WorkerStacks>& workers) {
    for (Index i = 0; i < workers.size(); ++i) {
      for (const GroupCalls& group : workers[i].calls) groups_[{group.group, group.size}][group.rank] = {i, &group};
    }
    for (Index i = 0; i < workers.size(); ++i) {
      if (!waits_now(workers[i])) continue;
      for (const GroupCalls& group : workers[i].calls) {
        for (const CallUnderWay& call : group.under_way) add(i, group, call);
      }
    }
  }

  const std::vector<Wait>& all() const { return waits_; }
  bool waits_elsewhere(Index worker) const { return elsewhere_.count(worker) != 0; }

  // Returns the workers that this one waits for, and those that they wait for.
  std::set<Index> reached_from(Index worker) const {
    std::set<Index> reached;
    std::vector<Index> open = {worker};
    while (!open.empty()) {
      const Index from = open.back();
      open.pop_back();
      for (const Wait& wait : waits_) {
        if (wait.waits == from && reached.insert(wait.awaited).second) open.push_back(wait.awaited);
      }
    }
    return reached;
  }

 private:
  struct Member {
    Index worker;
    const GroupCalls* calls;
  };

  void add(Index waits, const GroupCalls& group, const CallUnderWay& call) {
    const auto& members = groups_[{group.group, group.size}];
    if (call.peer == CallUnderWay::kAnyPeer) return;
    if (call.peer != CallUnderWay::kNoPeer) {
      const auto peer = members.find(call.peer);
      if (peer == members.end()) {
        elsewhere_.insert(waits);
      } else if (!is_paired(call, group, *peer->second.calls)) {
        waits_.push_back({waits, peer->second.worker, &group, &call});
      }
      return;
    }
    if (members.size() < static_cast<std::size_t>(group.size)) elsewhere_.insert(waits);
    for (const auto& [rank, member] : members) {
      if (member.calls->collectives < call.sequence) waits_.push_back({waits, member.worker, &group, &call});
    }
  }

  std::map<std::pair<std::string, int>, std::map<int, Member>> groups_;  // by name and size; then by rank in the group
  std::vector<Wait> waits_;
  std::set<Index> elsewhere_;  // that may wait for ranks which are not among the workers
};

std::string describe(const Wait& wait, int awaited, const std::vector<int>& waiting) {
  const std::string group = " of group " + wait.group->group;
  const std::string who = describe_ranks(waiting) + (waiting.size() == 1 ? " waits" : " wait");
  const std::string whom = "rank " + std::to_string(awaited);
  if (wait.call->peer != CallUnderWay::kNoPeer) return who + " for " + whom + " in " + wait.call->operation + group;
  return whom + " has not called " + wait.call->operation + " #" + std::to_string(wait.call->sequence) + group +
         ", in which " + who;
}

// Returns, for the first call in which somebody waits for this worker, who waits in it. `cycle` has the workers with
// which it is in a cycle: then only they count.
std::string describe_waits(const Waits& waits, const std::vector<WorkerStacks>& workers, Index awaited,
                           const std::set<Index>& cycle) {
  const auto is_for_it = [&](const Wait& wait) {
    return wait.awaited == awaited && (cycle.empty() || cycle.count(wait.waits) != 0);
  };
  const auto first = std::find_if(waits.all().begin(), waits.all().end(), is_for_it);
  std::vector<int> waiting;
  for (const Wait& wait : waits.all()) {
    const bool is_same = wait.group->group == first->group->group && wait.call->sequence == first->call->sequence &&
                         wait.call->operation == first->call->operation;
    if (is_for_it(wait) && is_same) waiting.push_back(workers[wait.waits].rank);
  }
  return describe(*first, workers[awaited].rank, waiting);
}

}  // namespace

std::optional<AwaitedRanks> find_awaited(const std::vector<WorkerStacks>& workers) {
  const Waits waits(workers);
  std::set<Index> awaited;
  for (const Wait& wait : waits.all()) awaited.insert(wait.awaited);
  AwaitedRanks found;
  for (const Index worker : awaited) {
    const std::set<Index> reached = waits.reached_from(worker);
    // At the end are those from which nobody is reached, or only such as come back to them.
    const bool is_end = std::all_of(reached.begin(), reached.end(), [&](Index other) {
      return waits.reached_from(other).count(worker) != 0 && !waits.waits_elsewhere(other);
    });
    if (!is_end || waits.waits_elsewhere(worker)) continue;
    found.ranks.push_back(workers[worker].rank);
    found.is_cycle = found.is_cycle || !reached.empty();
    found.words += (found.words.empty() ? "" : "; ") + describe_waits(waits, workers, worker, reached);
  }
  if (found.ranks.empty()) return std::nullopt;
  return found;
}

}  // namespace ddp::launcher
