// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/src/process_group.hpp"

#include <algorithm>
#include <utility>

namespace ddp::runtime {
namespace {

using rendezvous::Error;
using rendezvous::ErrorCode;

// ddprun learns of a death when the kernel has taken the process apart, which is later than its peers do.
constexpr std::chrono::milliseconds kCauseAfterLostPeer{500};
// After a timeout either the cause has long been known or nobody died.
constexpr std::chrono::milliseconds kCauseAfterTimeout{50};

std::string human_seconds(std::chrono::milliseconds duration) {
  if (duration.count() % 1000 == 0) return std::to_string(duration.count() / 1000) + " s";
  return std::to_string(duration.count()) + " ms";
}

}  // namespace

ProcessGroup::ProcessGroup(Config config, ProgressThread& progress, DeadlineWatch& watch)
    : config_(std::move(config)), progress_(progress), watch_(watch) {
  if (config_.size > 1) host_.emplace(*config_.backend, config_.connection, GroupPlace{config_.rank, config_.size});
}

ProcessGroup::~ProcessGroup() {
  if (config_.connection != nullptr) config_.backend->group_destroy(config_.connection);
}

void ProcessGroup::run(const Operation& operation, Milliseconds timeout) {
  std::unique_lock lock(mutex_);
  const std::uint64_t sequence = enqueue(operation, timeout, lock);
  lock.unlock();
  execute(sequence);
  wait(sequence);
}

std::uint64_t ProcessGroup::issue(const Operation& operation, Milliseconds timeout) {
  std::unique_lock lock(mutex_);
  const std::uint64_t sequence = enqueue(operation, timeout, lock);
  progress_.post([this, sequence] { execute(sequence); });  // under the lock: the same order there as here
  return sequence;
}

std::uint64_t ProcessGroup::enqueue(const Operation& operation, Milliseconds timeout,
                                    std::unique_lock<std::mutex>& lock) {
  if (timeout.count() < 0) {
    throw Error(ErrorCode::InvalidArgument,
                config_.name + ": a timeout of " + std::to_string(timeout.count()) + " ms makes no sense");
  }
  changed_.wait(lock, [&] { return state_ != State::Failing; });
  if (state_ == State::Dead) {
    throw Error(ErrorCode::Aborted, config_.name + ": " + describe(operation, next_) +
                                        ": the group was aborted by an earlier error: " + failure_->why);
  }
  const std::uint64_t sequence = next_++;
  if (timeout.count() == 0) timeout = config_.timeout;
  Issued issued{sequence, operation, Clock::now() + timeout, timeout, {}};
  if (config_.size > 1) issued.ticket = watch_.add(issued.deadline, [this, sequence] { on_deadline(sequence); });
  queue_.push_back(issued);
  return sequence;
}

// Waits for the operation's turn and runs it on this thread.
void ProcessGroup::execute(std::uint64_t sequence) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return state_ != State::Alive || queue_.front().sequence == sequence; });
  if (state_ != State::Alive) return;  // it was failed along with the group
  running_ = sequence;
  const Issued issued = queue_.front();
  lock.unlock();
  std::optional<Failure> failure = perform(issued);
  lock.lock();
  if (state_ == State::Alive && !failure) {
    watch_.forget(issued.ticket);
    queue_.pop_front();
    ended_ = sequence;
  } else if (state_ == State::Alive) {
    fail(lock, sequence, std::move(*failure));
  }  // else the group failed meanwhile: that verdict stands, whatever this operation came to
  running_ = 0;
  changed_.notify_all();
}

std::optional<ProcessGroup::Failure> ProcessGroup::perform(const Issued& issued) {
  const Operation& o = issued.operation;
  if (!host_) {
    HostCollectives::perform_alone(o);
    return std::nullopt;
  }
  if (o.checked && config_.compare_fingerprints) {
    if (std::optional<Failure> failure = compare_fingerprints(issued)) return failure;
  }
  ddp_backend_error error = {};
  const auto tag = static_cast<std::uint32_t>(issued.sequence * 2 + 1);
  return to_failure(host_->perform(o, tag, issued.deadline, &error), error, issued);
}

// A size that differs between ranks kills the process inside Gloo, so every rank first tells all others what it is
// about to do. One small all_gather more per operation; DDP_CHECK_COLLECTIVES=0 saves it.
std::optional<ProcessGroup::Failure> ProcessGroup::compare_fingerprints(const Issued& issued) {
  const Fingerprint mine = fingerprint(issued.operation);
  fingerprints_.resize(static_cast<std::size_t>(config_.size));
  if (auto failure = gather_words(issued, mine.data(), fingerprints_.data(), mine.size())) return failure;
  if (std::any_of(fingerprints_.begin(), fingerprints_.end(), [&](const Fingerprint& f) { return f != mine; })) {
    return Failure{ErrorCode::Mismatch, "ranks disagree: " + who_called_what(fingerprints_)};
  }
  if (issued.operation.kind == OperationKind::AllToAll) return compare_counts(issued);
  return std::nullopt;
}

// Of all_to_all: what rank r sends to s must be what s expects of r.
std::optional<ProcessGroup::Failure> ProcessGroup::compare_counts(const Issued& issued) {
  const auto size = static_cast<std::size_t>(config_.size);
  std::vector<std::size_t> mine = issued.operation.input_counts;
  mine.insert(mine.end(), issued.operation.output_counts.begin(), issued.operation.output_counts.end());
  std::vector<std::size_t> all(mine.size() * size);
  if (auto failure = gather_words(issued, mine.data(), all.data(), mine.size())) return failure;
  for (std::size_t from = 0; from < size; ++from) {
    for (std::size_t to = 0; to < size; ++to) {
      const std::size_t sent = all[from * 2 * size + to];
      const std::size_t expected = all[to * 2 * size + size + from];
      if (sent == expected) continue;
      return Failure{ErrorCode::Mismatch, "ranks disagree: rank " + std::to_string(from) + " sends " +
                                              std::to_string(sent) + " elements to rank " + std::to_string(to) +
                                              ", which expects " + std::to_string(expected)};
    }
  }
  return std::nullopt;
}

// An all_gather of `count` 64-bit numbers, besides the operation itself.
std::optional<ProcessGroup::Failure> ProcessGroup::gather_words(const Issued& issued, const void* mine, void* all,
                                                                std::size_t count) {
  const auto left = std::chrono::duration_cast<Milliseconds>(issued.deadline - Clock::now());
  ddp_backend_error error = {};
  const ddp_backend_status status = config_.backend->all_gather(config_.connection, mine, all, count, DDP_INT64,
                                                                static_cast<std::uint32_t>(issued.sequence * 2),
                                                                std::max<std::int64_t>(1, left.count()), &error);
  return to_failure(status, error, issued);
}

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
  return {ErrorCode::Timeout,
          "not done in " + human_seconds(issued.timeout) + ": another rank is stopped, slow, or calls something else"};
}

void ProcessGroup::on_deadline(std::uint64_t sequence) {
  std::unique_lock lock(mutex_);
  if (state_ != State::Alive || sequence <= ended_) return;  // it ended, or failed, while we were on our way
  fail(lock, sequence, passed_deadline(*find(sequence)));
}

void ProcessGroup::abort(const std::string& reason) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return state_ != State::Failing; });
  if (state_ == State::Alive) fail(lock, 0, {ErrorCode::Aborted, reason});
}

// Called in Alive; leaves in Dead. Gives the lock away in between.
void ProcessGroup::fail(std::unique_lock<std::mutex>& lock, std::uint64_t sequence, Failure failure) {
  state_ = State::Failing;
  blamed_ = sequence;
  changed_.notify_all();
  for (const Issued& issued : queue_) watch_.forget(issued.ticket);
  lock.unlock();
  // After a mismatch every rank fails by itself; closing connections might cut off one that is still comparing.
  if (config_.connection != nullptr && failure.code != ErrorCode::Mismatch) {
    config_.backend->group_abort(config_.connection);
  }
  std::string cause;
  if (config_.ask_for_cause && failure.code == ErrorCode::PeerLost) cause = config_.ask_for_cause(kCauseAfterLostPeer);
  if (config_.ask_for_cause && failure.code == ErrorCode::Timeout) cause = config_.ask_for_cause(kCauseAfterTimeout);
  lock.lock();
  if (!cause.empty()) failure.why = cause;
  failure.why = config_.name + ": " + (sequence > 0 ? describe_here(sequence) + ": " : "") + failure.why;
  failure_ = failure;
  state_ = State::Dead;
  changed_.notify_all();
  // A lost peer or a mismatch is no news to the others.
  if (!config_.tell_cause || failure.code == ErrorCode::PeerLost || failure.code == ErrorCode::Mismatch) return;
  lock.unlock();
  config_.tell_cause(failure.why);
  lock.lock();
}

void ProcessGroup::wait(std::uint64_t sequence) {
  std::unique_lock lock(mutex_);
  check_issued(sequence);
  changed_.wait(lock, [&] { return ended(sequence); });
  throw_if_failed(sequence);
}

bool ProcessGroup::wait_for(std::uint64_t sequence, Milliseconds timeout) {
  std::unique_lock lock(mutex_);
  check_issued(sequence);
  // A look of more than an hour is cut to an hour: now + a huge timeout would overflow.
  const auto until = Clock::now() + std::clamp<Milliseconds>(timeout, Milliseconds(0), std::chrono::hours(1));
  if (!changed_.wait_until(lock, until, [&] { return ended(sequence); })) return false;
  throw_if_failed(sequence);
  return true;
}

void ProcessGroup::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return running_ == 0 && (state_ == State::Dead || ended_ + 1 == next_); });
}

bool ProcessGroup::alive() {
  const std::lock_guard lock(mutex_);
  return state_ == State::Alive;
}

bool ProcessGroup::ended(std::uint64_t sequence) const {
  return sequence <= ended_ || (state_ == State::Dead && running_ != sequence);
}

void ProcessGroup::check_issued(std::uint64_t sequence) const {
  if (sequence > 0 && sequence < next_) return;
  throw Error(ErrorCode::InvalidArgument,
              config_.name + ": no operation #" + std::to_string(sequence) + " was issued in this group");
}

void ProcessGroup::throw_if_failed(std::uint64_t sequence) const {
  if (sequence <= ended_) return;
  if (sequence == blamed_) throw Error(failure_->code, failure_->why);
  throw Error(ErrorCode::Aborted, config_.name + ": " + describe_here(sequence) +
                                      ": the group was aborted by an earlier error: " + failure_->why);
}

const ProcessGroup::Issued* ProcessGroup::find(std::uint64_t sequence) const {
  const auto it = std::find_if(queue_.begin(), queue_.end(), [&](const Issued& i) { return i.sequence == sequence; });
  return it != queue_.end() ? &*it : nullptr;
}

std::string ProcessGroup::describe_here(std::uint64_t sequence) const {
  const Issued* issued = find(sequence);
  return issued != nullptr ? describe(issued->operation, sequence) : "operation #" + std::to_string(sequence);
}

}  // namespace ddp::runtime
