// SPDX-License-Identifier: BSD-3-Clause
// How a group fails: which operation is to blame, and what the other ranks learn.
#include <algorithm>
#include <utility>

#include "collectives/backend_error.hpp"
#include "rendezvous/base/text.hpp"
#include "runtime/collective/describe_operation.hpp"
#include "runtime/group/process_group.hpp"

namespace ddp::runtime {
namespace {

using rendezvous::ErrorCode;

// How long to wait for the launcher's report. ddprun learns of a death only when the kernel has freed the process,
// which is later than the peers notice.
constexpr std::chrono::milliseconds kCauseAfterLostPeer{500};
// After a timeout, either the cause has long been known or no rank died.
constexpr std::chrono::milliseconds kCauseAfterTimeout{50};

}  // namespace

std::optional<ProcessGroup::Failure> ProcessGroup::to_failure(ddp_backend_status status, const ddp_backend_error& error,
                                                              const Issued& issued) {
  switch (status) {
    case DDP_BACKEND_OK:
      return std::nullopt;
    case DDP_BACKEND_TIMEOUT:
      return passed_deadline(issued);
    case DDP_BACKEND_PEER_LOST:
      return Failure{ErrorCode::PeerLost,
                     std::string("another rank died or left (") + error.text + "); its own output says why"};
    case DDP_BACKEND_ABORTED:
      return Failure{ErrorCode::Aborted, error.text};
    case DDP_BACKEND_UNSUPPORTED:
      return Failure{ErrorCode::InvalidArgument, error.text};
    case DDP_BACKEND_ERROR:
      break;
  }
  return Failure{ErrorCode::System, error.text};
}

ProcessGroup::Failure ProcessGroup::passed_deadline(const Issued& issued) const {
  return {ErrorCode::Timeout, "not done in " + rendezvous::to_string(issued.timeout) +
                                  ": another rank is stopped, slow, or calls something else"};
}

DeadlineWatch::Time ProcessGroup::check_deadlines(DeadlineWatch::Time now) {
  Lock lock(mutex_);
  if (state_ != State::Alive) return DeadlineWatch::Time::max();
  DeadlineWatch::Time next = DeadlineWatch::Time::max();
  const Issued* passed = nullptr;
  const auto look = [&](const Issued& issued) {
    if (issued.sequence == in_barrier_) return;  // the barrier keeps its own deadline and names missing ranks
    next = std::min(next, issued.deadline);
    if (issued.deadline <= now && passed == nullptr) passed = &issued;
  };
  // Find the first operation of each kind whose deadline has passed, and the next deadline to come.
  for (const Issued& issued : queue_) look(issued);
  for (const Message& message : messages_) {
    if (!message.ended && !message.left_over) look(message);
  }
  collect_from_device();
  for (const OnDevice& issued : on_device_) look(issued);
  if (passed != nullptr) {
    fail(lock, passed->sequence, passed_deadline(*passed));
    return DeadlineWatch::Time::max();
  }
  // Operations on a GPU are polled for errors as long as there are any, or graphs may run some.
  if (!polls_device()) return next;
  poll_device(lock);
  return state_ == State::Alive ? std::min(next, now + kBetweenChecks) : DeadlineWatch::Time::max();
}

void ProcessGroup::abort(const std::string& reason) {
  Lock lock(mutex_);
  changed_.wait(lock, [&] { return state_ != State::Failing; });
  if (state_ == State::Alive) fail(lock, 0, {ErrorCode::Aborted, reason});
}

void ProcessGroup::lose_peer(const std::string& cause) {
  Lock lock(mutex_);
  changed_.wait(lock, [&] { return state_ != State::Failing; });
  if (state_ != State::Alive) return;
  // The oldest operation in flight is to blame: a collective before a message, and the older of host and GPU.
  const auto message = std::find_if(messages_.begin(), messages_.end(), [](const Message& m) { return !m.ended; });
  std::uint64_t oldest = message != messages_.end() ? message->sequence : 0;
  if (!queue_.empty()) oldest = queue_.front().sequence;
  if (!on_device_.empty() && (queue_.empty() || (on_device_.front().sequence & ~kOnDevice) < oldest)) {
    oldest = on_device_.front().sequence;
  }
  if (oldest == 0) unheard_ = cause;
  fail(lock, oldest, {ErrorCode::PeerLost, cause, true});
}

// Takes the group from Alive to Dead. Releases the lock in between.
void ProcessGroup::fail(Lock& lock, std::uint64_t sequence, Failure failure) {
  collect_from_device();
  state_ = State::Failing;
  blamed_ = sequence;
  Blamed blamed = {sequence, {}, config_.name + ": " + (sequence > 0 ? describe_here(sequence) + ": " : "")};
  if (const Issued* issued = find(sequence)) {
    blamed.operation = issued->operation;
    recorder_.failed(issued->record, Clock::now());
  }
  changed_.notify_all();
  lock.unlock();
  // Other ranks may learn of the failure from this text, so it says what is known of the ranks that were waited for.
  if (failure.code == ErrorCode::Timeout && !failure.is_cause) {
    failure.why += config_.call_log ? describe_others(blamed) : " (DDP_DEBUG=detail says what the others did instead)";
  }
  const std::string cause = end_connections(failure, blamed);
  failure.why = blamed.words + (cause.empty() ? failure.why : cause);
  if (config_.on_device != nullptr && config_.on_device->left_behind()) {
    failure.why += " (NCCL does not return from an abort: end this process)";
  }
  give_up_barrier(failure.why);
  write_flight_recorder(failure.why);
  lock.lock();
  failure_ = failure;
  state_ = State::Dead;
  changed_.notify_all();
}

// Closes the connections. Returns the cause of the failure if the launcher or another rank knows it better.
std::string ProcessGroup::end_connections(const Failure& failure, const Blamed& blamed) {
  // After a mismatch of a collective every rank fails by itself, and closing connections might cut off a rank that is
  // still comparing. A mismatched message is known to its receiver only.
  const bool all_know = failure.code == ErrorCode::Mismatch && !blamed.operation.is_message();
  if (!is_connected() || all_know) return "";
  const bool is_loss = failure.code == ErrorCode::PeerLost;
  // Publish the reason before closing connections. So the rank that others report as lost is the one that was lost
  // first, not the first that gave up because of it.
  std::string told;
  if (!failure.is_cause && config_.publish_cause)
    told = config_.publish_cause(is_loss ? failure.why : blamed.words + failure.why);
  if (config_.connection != nullptr) config_.backend->group_abort(config_.connection);
  if (config_.on_device != nullptr) config_.on_device->abort();
  // Ask the launcher which worker died. Its report counts more than another rank's reason.
  if (!config_.ask_for_cause || failure.is_cause || (!is_loss && failure.code != ErrorCode::Timeout)) return "";
  const std::string known = config_.ask_for_cause(is_loss ? kCauseAfterLostPeer : kCauseAfterTimeout);
  if (!known.empty()) return known;
  return is_loss ? told + describe_others(blamed) : told;
}

// Returns what the call log says of the ranks that were waited for, to end an error's text.
std::string ProcessGroup::describe_others(const Blamed& blamed) {
  const Operation& o = blamed.operation;
  if (!config_.call_log || blamed.sequence == 0 || is_on_device(blamed.sequence)) return "";
  std::string others;
  if (!o.is_message()) {
    others = config_.call_log->describe_missing_callers(blamed.sequence, numbered_name(o, blamed.sequence));
  } else if (o.root != kAnyRank) {
    others = config_.call_log->last_call_of(o.root);
  }
  return others.empty() ? "" : "; " + others;
}

}  // namespace ddp::runtime
