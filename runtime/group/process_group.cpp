// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/group/process_group.hpp"

#include <algorithm>
#include <utility>

#include "collectives/backend_error.hpp"
#include "collectives/host/backend.hpp"
#include "rendezvous/base/thread.hpp"
#include "runtime/collective/describe_operation.hpp"

namespace ddp::runtime {
namespace {

using collectives::BackendError;
using rendezvous::Error;
using rendezvous::ErrorCode;

constexpr char kBarriers[] = "monitored_barrier/";  // keys in the store

}  // namespace

ProcessGroup::ProcessGroup(Config config, DeadlineWatch& watch)
    : config_(std::move(config)), watch_(watch), recorder_(config_.name, place(), config_.flight_recorder_size) {
  if (config_.connection != nullptr) {
    host_.emplace(*config_.backend, config_.connection, place());
    channel_ = {config_.backend, config_.connection, config_.rank, config_.call_log.has_value()};
    if (config_.call_log) checker_.emplace(*config_.backend, config_.connection, place());
  }
  if (is_connected()) watch_.attach(*this);
}

ProcessGroup::~ProcessGroup() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  asynchronous_front_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (is_connected()) watch_.detach(*this);
  if (config_.on_device != nullptr && state_ == State::Dead) config_.on_device->abort();
  if (config_.connection == nullptr) return;
  if (config_.call_log) config_.call_log->left();  // before the other ranks see the connection close
  // After a mismatch it is not aborted yet. A thread that waits for a receive that is left over ends only with the
  // group.
  if (state_ == State::Dead || std::any_of(messages_.begin(), messages_.end(),
                                           [](const Message& m) { return m.left_over && m.waiter.joinable(); })) {
    config_.backend->group_abort(config_.connection);
  }
  for (Message& message : messages_) {
    if (message.waiter.joinable()) message.waiter.join();
    message.transfer.free(channel_);
  }
  config_.backend->group_destroy(config_.connection);
}

int ProcessGroup::run(const Operation& operation, Milliseconds timeout) {
  Lock lock(mutex_);
  if (runs_on_device(operation)) {
    follow_on_device(start_on_device(operation, timeout, lock), lock);
    return operation.is_message() ? operation.root : -1;
  }
  if (operation.is_message()) return wait_for_message(start_message(operation, timeout, lock), lock);
  const Issued& issued = enqueue(operation, timeout, false, lock);
  const std::uint64_t sequence = issued.sequence;
  execute_until(sequence, issued.issued_at(), lock);
  throw_if_failed(sequence);
  return -1;
}

std::uint64_t ProcessGroup::issue(const Operation& operation, Milliseconds timeout) {
  Lock lock(mutex_);
  if (runs_on_device(operation)) return start_on_device(operation, timeout, lock);
  if (operation.is_message()) {
    const std::uint64_t message = start_message(operation, timeout, lock);
    // Gloo sends data only once they are asked for, and of a labelled message only the label was.
    const bool is_asked_for = !channel_.labelled || config_.backend == &collectives::host_backend();
    if (operation.kind == OperationKind::Receive && !is_asked_for && state_ == State::Alive) {
      start_waiter(*messages_.find(message));
    }
    return message;
  }
  const std::uint64_t sequence = enqueue(operation, timeout, true, lock).sequence;
  if (!thread_.joinable()) thread_ = rendezvous::start_thread("ddp-progress", [this] { run_asynchronous(); });
  if (front_can_start()) asynchronous_front_.notify_one();
  return sequence;
}

// Waits until the group is not Failing. Throws if it can take no such operation.
void ProcessGroup::enter(const Operation& operation, Milliseconds timeout, Lock& lock) {
  if (timeout.count() < 0) {
    throw Error(ErrorCode::InvalidArgument,
                config_.name + ": a timeout of " + std::to_string(timeout.count()) + " ms makes no sense");
  }
  const bool has_backend = runs_on_device(operation) ? config_.on_device != nullptr : reaches_host_memory();
  if (!has_backend) {
    const bool on_device = operation.device != kNoDevice;
    const std::string memory = on_device ? "cuda:" + std::to_string(operation.device) : "the CPU";
    throw Error(ErrorCode::InvalidArgument, config_.name + ": " + operation_name(operation.kind) + " of memory of " +
                                                memory + ": the group has no backend for it; give it \"" +
                                                (on_device ? "nccl" : "gloo") +
                                                "\", or \"cpu:gloo,cuda:nccl\" for both");
  }
  changed_.wait(lock, [&] { return state_ != State::Failing; });
  // The first operation after the loss of a peer fails with its cause, all later ones as aborted.
  if (!unheard_.empty()) {
    failure_->why = config_.name + ": " + describe(operation, next_) + ": " + std::exchange(unheard_, "");
    blamed_ = operation.is_message() ? kMessage : next_++;
    throw Error(failure_->code, failure_->why);
  }
  if (state_ == State::Dead) {
    throw Error(ErrorCode::Aborted, config_.name + ": " + describe(operation, next_) +
                                        ": the group was aborted by an earlier error: " + failure_->why);
  }
}

void ProcessGroup::fill(Issued& issued, std::uint64_t sequence, const Operation& operation, Milliseconds timeout) {
  issued.sequence = sequence;
  issued.operation = operation;
  issued.timeout = timeout != kGroupsOwnTimeout ? timeout : config_.timeout;
  const auto now = Clock::now();
  issued.deadline = now + issued.timeout;
  issued.record = recorder_.issued(sequence & ~kMessage & ~kOnDevice, operation, now);
  if (operation.input_counts.empty()) return;
  const std::size_t ranks = operation.input_counts.size();
  issued.counts.assign(operation.input_counts.begin(), operation.input_counts.end());
  issued.counts.insert(issued.counts.end(), operation.output_counts.begin(), operation.output_counts.end());
  issued.operation.input_counts = {issued.counts.data(), ranks};
  issued.operation.output_counts = {issued.counts.data() + ranks, ranks};
}

const ProcessGroup::Issued& ProcessGroup::enqueue(const Operation& operation, Milliseconds timeout, bool asynchronous,
                                                  Lock& lock) {
  enter(operation, timeout, lock);
  Issued& issued = queue_.add();
  fill(issued, next_++, operation, timeout);
  issued.asynchronous = asynchronous;
  if (config_.size > 1) watch_.expect(issued.deadline);
  return issued;
}

bool ProcessGroup::front_can_start() const { return state_ == State::Alive && running_ == 0 && !queue_.empty(); }

// `now` is known to the caller: reading the clock three more times would be a fifth of a small collective.
void ProcessGroup::execute_front(Clock::time_point now, Lock& lock) {
  const Issued& issued = queue_.front();  // stays in the queue until it has ended
  running_ = issued.sequence;
  recorder_.started(issued.record, now);
  lock.unlock();
  std::optional<Failure> failure = perform(issued, now);
  lock.lock();
  if (state_ == State::Alive && !failure) {
    ended_ = running_;
    recorder_.ended(issued.record, Clock::now());
    queue_.retire_front();
  } else if (state_ == State::Alive) {
    fail(lock, running_, std::move(*failure));
  }  // else the group failed meanwhile: that failure stands, whatever became of this operation
  running_ = 0;
  changed_.notify_all();
  if (front_can_start() && queue_.front().asynchronous) asynchronous_front_.notify_one();
}

// Returns once the operation has ended. Runs the operations before it on this thread too, which saves switching
// threads, except for blocking ones of other threads.
void ProcessGroup::execute_until(std::uint64_t sequence, Clock::time_point now, Lock& lock) {
  while (!ended(sequence)) {
    if (front_can_start() && (queue_.front().asynchronous || queue_.front().sequence == sequence)) {
      execute_front(now, lock);
      if (ended(sequence)) return;
    } else {
      changed_.wait(lock);
    }
    now = Clock::now();
  }
}

void ProcessGroup::run_asynchronous() {
  Lock lock(mutex_);
  for (;;) {
    asynchronous_front_.wait(lock, [&] { return ending_ || (front_can_start() && queue_.front().asynchronous); });
    if (ending_) return;
    execute_front(Clock::now(), lock);
  }
}

std::optional<ProcessGroup::Failure> ProcessGroup::perform(const Issued& issued, Clock::time_point now) {
  if (!host_) {
    HostCollectives::perform_alone(issued.operation);
    return std::nullopt;
  }
  if (config_.call_log) config_.call_log->began(issued.sequence, describe(issued.operation, issued.sequence));
  const bool is_in_store = issued.operation.kind == OperationKind::MonitoredBarrier;
  std::optional<Failure> failure = is_in_store ? wait_for_all(issued) : perform_collective(issued, now);
  if (config_.call_log && !failure) config_.call_log->ended();
  return failure;
}

std::optional<ProcessGroup::Failure> ProcessGroup::perform_collective(const Issued& issued, Clock::time_point now) {
  const Operation& o = issued.operation;
  BackendError error;
  const auto tag = static_cast<std::uint32_t>(issued.sequence * 2);
  if (checker_) {
    std::string disagreement;
    const auto status = checker_->compare(o, tag, issued.deadline, &disagreement, &error);
    if (status != DDP_BACKEND_OK) return to_failure(status, error, issued);
    if (!disagreement.empty()) return Failure{ErrorCode::Mismatch, disagreement};
  }
  return to_failure(host_->perform(o, tag + 1, backend_timeout_ms(issued.deadline, now), &error), error, issued);
}

// Performs a monitored barrier. The store gives the verdict, even when the deadline has passed.
std::optional<ProcessGroup::Failure> ProcessGroup::wait_for_all(const Issued& issued) {
  in_barrier_ = issued.sequence;
  std::optional<Failure> failure;
  try {
    if (!barrier_) barrier_.emplace(config_.open_store(), config_.key_prefix + kBarriers, place());
    const auto left = std::max(std::chrono::ceil<Milliseconds>(issued.deadline - Clock::now()), Milliseconds(1));
    if (const auto why = barrier_->wait(issued.sequence, left, issued.timeout, issued.operation.all_missing)) {
      failure = Failure{why->code(), why->what(), true};
    }
  } catch (const Error& e) {
    failure = Failure{e.code(), e.what()};
  }
  in_barrier_ = 0;
  return failure;
}

// Ends the monitored barrier that a thread of this rank is in, since the group fails.
void ProcessGroup::give_up_barrier(const std::string& why) {
  const std::uint64_t sequence = in_barrier_;
  if (sequence == 0) return;
  try {
    MonitoredBarrier::give_up(*config_.open_store(), config_.key_prefix + kBarriers, sequence,
                              "rank " + std::to_string(config_.rank) + " gave up: " + why);
  } catch (const std::exception&) {
    // Without the store, the barrier ends by itself.
  }
}

int ProcessGroup::wait(std::uint64_t sequence) {
  Lock lock(mutex_);
  check_issued(sequence);
  if (is_message(sequence)) return wait_for_message(sequence, lock);
  if (is_on_device(sequence)) {
    follow_on_device(sequence, lock);
    return -1;
  }
  execute_until(sequence, Clock::now(), lock);
  throw_if_failed(sequence);
  return -1;
}

void ProcessGroup::synchronize(std::uint64_t sequence) {
  if (!is_on_device(sequence)) {
    wait(sequence);
    return;
  }
  Lock lock(mutex_);
  check_issued(sequence);
  await_on_device(sequence, Clock::time_point::max(), lock);
}

bool ProcessGroup::wait_for(std::uint64_t sequence, Milliseconds timeout) {
  Lock lock(mutex_);
  check_issued(sequence);
  // Waits at most an hour at a time, since now plus a huge timeout would overflow.
  const auto until = Clock::now() + std::clamp<Milliseconds>(timeout, Milliseconds(0), std::chrono::hours(1));
  if (is_message(sequence)) return poll_message(sequence, until, lock);
  if (is_on_device(sequence)) return await_on_device(sequence, until, lock);
  if (!changed_.wait_until(lock, until, [&] { return ended(sequence); })) return false;
  throw_if_failed(sequence);
  return true;
}

void ProcessGroup::drain() {
  // Wait for the sends that no thread waits for yet, then for everything else.
  Lock lock(mutex_);
  for (Message& m : messages_) {
    m.left_over = m.operation.kind == OperationKind::Receive && !m.ended && m.callers == 0;
  }
  changed_.notify_all();
  const auto nobody_waits = [](const Message& m) { return !m.ended && !m.awaited && !m.left_over; };
  while (state_ == State::Alive) {
    const auto message = std::find_if(messages_.begin(), messages_.end(), nobody_waits);
    if (message == messages_.end()) break;
    message->awaited = true;
    await_message(*message, lock);
  }
  forget_captures(0);
  changed_.wait(lock, [&] {
    return running_ == 0 &&
           (state_ == State::Dead || (state_ == State::Alive && queue_.empty() && on_device_.empty())) &&
           std::none_of(messages_.begin(), messages_.end(),
                        [](const Message& m) { return m.awaited && !m.left_over; }) &&
           std::all_of(on_device_.begin(), on_device_.end(),
                       [](const OnDevice& o) { return o.start != StartState::Underway; });
  });
}

bool ProcessGroup::alive() {
  const std::lock_guard lock(mutex_);
  return state_ == State::Alive;
}

bool ProcessGroup::ended(std::uint64_t sequence) {
  if (is_on_device(sequence)) {
    const OnDevice* issued = on_device_.find(sequence);
    return issued == nullptr || (state_ == State::Dead && issued->start != StartState::Underway);
  }
  if (!is_message(sequence)) return sequence <= ended_ || (state_ == State::Dead && running_ != sequence);
  const Message* message = messages_.find(sequence);
  return message == nullptr || message->ended || (state_ == State::Dead && !message->awaited);
}

void ProcessGroup::check_issued(std::uint64_t sequence) {
  const std::uint64_t number = sequence & ~kMessage & ~kOnDevice;
  if (number > 0 && number < (is_message(sequence) ? next_message_ : next_)) return;
  throw Error(ErrorCode::InvalidArgument,
              config_.name + ": no operation #" + std::to_string(sequence) + " was issued in this group");
}

void ProcessGroup::throw_if_failed(std::uint64_t sequence) {
  if (is_on_device(sequence) ? on_device_.find(sequence) == nullptr : !is_message(sequence) && sequence <= ended_)
    return;
  const Message* message = is_message(sequence) ? messages_.find(sequence) : nullptr;
  if (is_message(sequence) && (message == nullptr || message->ended)) return;
  if (sequence == blamed_) throw Error(failure_->code, failure_->why);
  throw Error(ErrorCode::Aborted, config_.name + ": " + describe_here(sequence) +
                                      ": the group was aborted by an earlier error: " + failure_->why);
}

// Returns null if the operation succeeded or does not exist.
ProcessGroup::Issued* ProcessGroup::find(std::uint64_t sequence) {
  if (is_message(sequence)) return messages_.find(sequence);
  if (is_on_device(sequence)) return on_device_.find(sequence);
  return queue_.find(sequence);
}

std::string ProcessGroup::describe_here(std::uint64_t sequence) {
  const std::uint64_t number = sequence & ~kOnDevice;
  const Issued* issued = find(sequence);
  return issued != nullptr ? describe(issued->operation, number) : "operation #" + std::to_string(number);
}

}  // namespace ddp::runtime
