// SPDX-License-Identifier: BSD-3-Clause
// Messages between two ranks. Each starts at once; the first thread that wants its result waits for it.
#include <utility>

#include "collectives/backend_error.hpp"
#include "collectives/host/backend.hpp"
#include "rendezvous/base/thread.hpp"
#include "runtime/collective/describe_operation.hpp"
#include "runtime/group/process_group.hpp"

namespace ddp::runtime {
namespace {

using collectives::BackendError;
using rendezvous::ErrorCode;

}  // namespace

std::uint64_t ProcessGroup::start_message(const Operation& operation, Milliseconds timeout, Lock& lock) {
  enter(operation, timeout, lock);
  Message& message = messages_.add();
  fill(message, kMessage | next_message_++, operation, timeout);
  message.awaited = message.ended = false;
  message.callers = 0;
  BackendError error;
  const ddp_backend_status status = message.transfer.start(channel_, message.operation, message.sequence, &error);
  watch_.expect(message.deadline);
  recorder_.started(message.record, Clock::now());
  const std::uint64_t sequence = message.sequence;
  if (std::optional<Failure> failure = to_failure(status, error, message)) fail(lock, sequence, std::move(*failure));
  return sequence;
}

// A thread of the message's own waits for it.
void ProcessGroup::start_waiter(Message& message) {
  message.awaited = true;
  message.waiter = rendezvous::start_thread("ddp-message", [this, &message] {
    Lock lock(mutex_);
    await_message(message, lock);
  });
}

// Counts the calling thread among those that wait for the message. Returns null if the message is already collected.
ProcessGroup::Message* ProcessGroup::join_callers(std::uint64_t sequence) {
  Message* const message = messages_.find(sequence);
  if (message == nullptr) return nullptr;
  ++message->callers;
  if (message->waiter.joinable()) changed_.notify_all();  // the waiter may hold back a failure
  return message;
}

int ProcessGroup::wait_for_message(std::uint64_t sequence, Lock& lock) {
  join_callers(sequence);
  while (!ended(sequence)) {
    Message* message = messages_.find(sequence);
    if (state_ == State::Alive && !message->awaited) {
      message->awaited = true;
      await_message(*message, lock);
    } else {
      changed_.wait(lock);
    }
  }
  throw_if_failed(sequence);
  return collect(sequence, lock);
}

// Polls a message until it has ended or `until` has passed. Gloo has no way to test a message, only to wait for it, so
// there a thread of the message's own waits.
bool ProcessGroup::poll_message(std::uint64_t sequence, Clock::time_point until, Lock& lock) {
  Message* message = join_callers(sequence);
  if (state_ == State::Alive && message != nullptr && !message->ended && !message->awaited) {
    if (HostMessage::can_poll(channel_)) {
      message->awaited = true;
      await_message(*message, lock, until);
    } else {
      start_waiter(*message);
    }
  }
  const bool has_ended = changed_.wait_until(lock, until, [&] { return ended(sequence); });
  message = messages_.find(sequence);  // null if another thread has collected it
  if (message != nullptr) --message->callers;
  if (has_ended) throw_if_failed(sequence);
  return has_ended;
}

// A receive that was dropped goes on into memory of its own: nobody may ever send to it, and a message that comes must
// not be taken by the next receive. Other backends than "ddp" cannot move a receive to other memory, so drop() waits
// for the receive to end, as for every other operation.
void ProcessGroup::drop(std::uint64_t sequence) {
  Lock lock(mutex_);
  check_issued(sequence);
  Message* const message = is_message(sequence) ? messages_.find(sequence) : nullptr;
  const bool is_pending = message != nullptr && state_ == State::Alive && !message->ended && !message->awaited;
  const bool can_move = config_.backend == &collectives::host_backend();
  if (!is_pending || !can_move || message->operation.kind != OperationKind::Receive) {
    lock.unlock();
    return synchronize(sequence);
  }
  message->memory.resize(message->operation.bytes());
  message->operation.data = message->memory.data();
  message->transfer.move_to(message->memory.data());
}

// Waits for the message in the backend, with `until` at most until then. The caller has set message.awaited.
void ProcessGroup::await_message(Message& message, Lock& lock, std::optional<Clock::time_point> until) {
  lock.unlock();
  if (config_.call_log) config_.call_log->message_began(describe_message(message.operation));
  BackendError error;
  std::int32_t peer = -1;
  std::string disagreement;
  const ddp_backend_status status =
      until ? message.transfer.poll(channel_, *until, &peer, &error)
            : message.transfer.wait(channel_, message.operation, message.deadline, &peer, &disagreement, &error);
  if (config_.call_log && status == DDP_BACKEND_OK && disagreement.empty()) config_.call_log->message_ended();
  lock.lock();
  // A failed receive fails the group only once a caller waits for the message: the sender may have left the job without
  // ever sending it.
  if (status != DDP_BACKEND_OK && message.operation.kind == OperationKind::Receive) {
    changed_.wait(lock, [&] { return message.callers > 0 || message.left_over || state_ != State::Alive; });
  }
  message.awaited = false;
  const bool goes_on = until && status == DDP_BACKEND_TIMEOUT;
  if (state_ == State::Alive && !goes_on && !message.left_over) {
    std::optional<Failure> failure = to_failure(status, error, message);
    if (!disagreement.empty()) failure = {ErrorCode::Mismatch, disagreement};
    if (failure) {
      fail(lock, message.sequence, std::move(*failure));
    } else {
      message.ended = true;
      recorder_.ended(message.record, Clock::now());
      message.peer = peer;
      message.transfer.free(channel_);
    }
  }
  changed_.notify_all();
}

// Retires a message that has ended and returns the other rank.
int ProcessGroup::collect(std::uint64_t sequence, Lock& lock) {
  InFlight<Message>::Taken taken = messages_.take(sequence);
  if (taken.empty()) return -1;  // another thread has collected it
  Message& message = taken.front();
  if (message.waiter.joinable()) {
    lock.unlock();
    message.waiter.join();
    lock.lock();
  }
  const int peer = message.peer;
  messages_.retire(std::move(taken));
  return peer;
}

}  // namespace ddp::runtime
