// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/diagnosis/failure_watch.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

#include "rendezvous/base/thread.hpp"
#include "rendezvous/store/store.hpp"
#include "rendezvous/worker_contract.hpp"
#include "runtime/diagnosis/liveness_word.hpp"

namespace ddp::runtime {
namespace {

namespace contract = rendezvous::contract;
using rendezvous::Error;
using rendezvous::ErrorCode;

// Length of one wait for the report, after which the next begins.
constexpr std::chrono::hours kPatience{1};

// Parses "3,4,5". Stops at the first part that is not a number.
std::vector<int> read_ranks(const std::string& text) {
  std::vector<int> ranks;
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at < end; ++at) {
    int rank = 0;
    const auto [stop, failure] = std::from_chars(at, end, rank);
    if (failure != std::errc() || (stop != end && *stop != ',')) break;
    ranks.push_back(rank);
    at = stop;
  }
  return ranks;
}

}  // namespace

bool ReportedFailure::concerns(const std::vector<int>& members) const {
  return std::any_of(ranks.begin(), ranks.end(),
                     [&](int rank) { return std::find(members.begin(), members.end(), rank) != members.end(); });
}

FailureWatch::FailureWatch(std::unique_ptr<rendezvous::Store> store,
                           std::function<void(const ReportedFailure&)> on_failure, std::string liveness_word)
    : store_(std::move(store)), on_failure_(std::move(on_failure)), liveness_word_(std::move(liveness_word)) {
  thread_ = rendezvous::start_thread("ddp-failures", [this] { run(); });
}

FailureWatch::~FailureWatch() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  store_->interrupt();
  thread_.join();
}

std::optional<ReportedFailure> FailureWatch::wait_for_failure(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, timeout, [&] { return ending_ || failure_.has_value(); });
  return failure_;
}

void FailureWatch::run() {
  const LivenessWord liveness_word(liveness_word_);
  std::optional<ReportedFailure> failure = wait_for_report();
  {
    const std::lock_guard lock(mutex_);
    failure_ = failure;
    if (!failure) ending_ = true;
  }
  changed_.notify_all();  // wakes first the threads that know of a failure and ask for its cause
  if (failure) on_failure_(*failure);
}

// Returns nothing if the store is gone or the watch ends. No report can come any more then.
std::optional<ReportedFailure> FailureWatch::wait_for_report() {
  for (;;) {
    try {
      ReportedFailure failure;
      failure.text = store_->get(contract::kFailureKey, kPatience);
      if (store_->check({contract::kFailedRanksKey}))
        failure.ranks = read_ranks(store_->get(contract::kFailedRanksKey));
      return failure;
    } catch (const Error& e) {
      const std::lock_guard lock(mutex_);
      if (ending_ || e.code() != ErrorCode::Timeout) return std::nullopt;
    }
  }
}

}  // namespace ddp::runtime
