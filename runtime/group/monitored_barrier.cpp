// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/group/monitored_barrier.hpp"

#include <utility>
#include <vector>

#include "rendezvous/base/error.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/store/store.hpp"
#include "runtime/collective/describe_operation.hpp"

namespace ddp::runtime {
namespace {

using rendezvous::Error;
using rendezvous::ErrorCode;

constexpr char kAllHere = '+', kMissing = '-', kGaveUp = '!';

std::string key(const std::string& prefix, std::uint64_t sequence, const char* what) {
  return prefix + std::to_string(sequence) + "/" + what;
}

// Writes the verdict, or returns the one that is there already: the first verdict counts.
std::string settle(rendezvous::Store& store, const std::string& prefix, std::uint64_t sequence,
                   const std::string& verdict) {
  return store.compare_set(key(prefix, sequence, "verdict"), "", verdict);
}

}  // namespace

MonitoredBarrier::MonitoredBarrier(std::unique_ptr<rendezvous::Store> store, std::string prefix, GroupPlace place)
    : store_(std::move(store)), prefix_(std::move(prefix)), place_(place) {}

MonitoredBarrier::~MonitoredBarrier() = default;

std::optional<Error> MonitoredBarrier::wait(std::uint64_t sequence, Milliseconds left, Milliseconds timeout,
                                            bool all_missing) {
  store_->set(arrival(sequence, place_.rank), "");
  std::string verdict;
  if (store_->add(key(prefix_, sequence, "count"), 1) == place_.size) {
    verdict = settle(*store_, prefix_, sequence, {kAllHere});
  } else {
    try {
      verdict = store_->get(key(prefix_, sequence, "verdict"), left);
    } catch (const Error& e) {
      if (e.code() != ErrorCode::Timeout) throw;
      verdict = settle(*store_, prefix_, sequence, kMissing + describe_missing(sequence, timeout, all_missing));
    }
  }
  if (verdict.starts_with(kMissing)) return Error(ErrorCode::Timeout, verdict.substr(1));
  if (verdict.starts_with(kGaveUp)) return Error(ErrorCode::PeerLost, verdict.substr(1));
  forget(sequence);
  return std::nullopt;
}

void MonitoredBarrier::give_up(rendezvous::Store& store, const std::string& prefix, std::uint64_t sequence,
                               const std::string& why) {
  settle(store, prefix, sequence, kGaveUp + why);
}

std::string MonitoredBarrier::arrival(std::uint64_t sequence, int rank) const {
  return key(prefix_, sequence, "arrived/") + std::to_string(rank);
}

std::string MonitoredBarrier::describe_missing(std::uint64_t sequence, Milliseconds timeout, bool all_missing) {
  std::vector<std::size_t> missing;
  for (int rank = 0; rank < place_.size && (all_missing || missing.empty()); ++rank) {
    if (!store_->check({arrival(sequence, rank)})) missing.push_back(static_cast<std::size_t>(rank));
  }
  // If the last rank arrives only now, its verdict comes first and this one has no effect.
  return rank_list(missing) + " did not call it within " + rendezvous::to_string(timeout) +
         (all_missing ? "" : " (there may be more: wait_all_ranks names all)");
}

// Deletes old keys. All ranks have arrived at this barrier, so none reads those of the previous one any more.
void MonitoredBarrier::forget(std::uint64_t sequence) {
  store_->delete_key(arrival(sequence, place_.rank));
  if (place_.rank == 0 && passed_ > 0) {
    store_->delete_key(key(prefix_, passed_, "count"));
    store_->delete_key(key(prefix_, passed_, "verdict"));
  }
  passed_ = sequence;
}

}  // namespace ddp::runtime
