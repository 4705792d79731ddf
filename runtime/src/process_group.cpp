// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/src/process_group.hpp"

#include <algorithm>
#include <utility>

#include "collectives/backend_error.hpp"
#include "runtime/src/current_stream.hpp"
#include "runtime/src/service_thread.hpp"

namespace ddp::runtime {
namespace {

using collectives::BackendError;
using rendezvous::Error;
using rendezvous::ErrorCode;

// ddprun learns of a death when the kernel has taken the process apart, which is later than its peers do.
constexpr std::chrono::milliseconds kCauseAfterLostPeer{500};
// After a timeout either the cause has long been known or nobody died.
constexpr std::chrono::milliseconds kCauseAfterTimeout{50};

constexpr char kBarriers[] = "monitored_barrier/";  // keys in the store
// How often operations on a GPU are looked at while somebody waits for them (after some looks at once), and while
// nobody does.
constexpr std::chrono::microseconds kBetweenLooks{50};
constexpr int kLooksAtOnce = 200;
constexpr std::chrono::milliseconds kBetweenChecks{10};

constexpr std::uint64_t kMessage = std::uint64_t{1} << 63;
// Tags of messages are 40 bits for the backend; the user's have 32 of them.
constexpr std::uint64_t kLabels = std::uint64_t{1} << 32;
constexpr std::uint64_t kLabelled = std::uint64_t{2} << 32;
bool is_message(std::uint64_t sequence) { return (sequence & kMessage) != 0; }
constexpr std::uint64_t kOnDevice = std::uint64_t{1} << 62;
bool is_on_device(std::uint64_t sequence) { return (sequence & kOnDevice) != 0; }

// Moves an element of `spare`, or a new one, to the end of `list`: nothing is allocated once there is enough.
template <typename T>
T& append(std::list<T>& list, std::list<T>& spare) {
  if (spare.empty()) return list.emplace_back();
  list.splice(list.end(), spare, spare.begin());
  return list.back();
}

template <typename T>
auto find_in(std::list<T>& list, std::uint64_t sequence) {
  return std::find_if(list.begin(), list.end(), [&](const T& issued) { return issued.sequence == sequence; });
}

}  // namespace

ProcessGroup::ProcessGroup(Config config, DeadlineWatch& watch)
    : config_(std::move(config)), watch_(watch), recorder_(config_.name, place(), config_.flight_recorder_size) {
  if (config_.connection != nullptr) {
    host_.emplace(*config_.backend, config_.connection, place());
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
  if (config_.call_log) config_.call_log->left();  // before the others see the connection close
  if (state_ == State::Dead) config_.backend->group_abort(config_.connection);  // after a mismatch it was not
  for (Message& message : messages_) {
    if (message.waiter.joinable()) message.waiter.join();
    free_handles(message);
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
  const std::uint64_t sequence = enqueue(operation, timeout, false, lock);
  execute_until(sequence, lock);
  throw_if_failed(sequence);
  return -1;
}

std::uint64_t ProcessGroup::issue(const Operation& operation, Milliseconds timeout) {
  Lock lock(mutex_);
  if (runs_on_device(operation)) return start_on_device(operation, timeout, lock);
  if (operation.is_message()) return start_message(operation, timeout, lock);
  const std::uint64_t sequence = enqueue(operation, timeout, true, lock);
  if (!thread_.joinable()) thread_ = start_service_thread("ddp-progress", [this] { run_asynchronous(); });
  if (front_can_start()) asynchronous_front_.notify_one();
  return sequence;
}

// Throws if the group takes no operation.
void ProcessGroup::enter(const Operation& operation, Milliseconds timeout, Lock& lock) {
  if (timeout.count() < 0) {
    throw Error(ErrorCode::InvalidArgument,
                config_.name + ": a timeout of " + std::to_string(timeout.count()) + " ms makes no sense");
  }
  const bool has_backend = runs_on_device(operation) ? config_.on_device != nullptr : host_ || config_.size == 1;
  if (!has_backend) {
    const bool on_device = operation.device != kNoDevice;
    const std::string memory = on_device ? "cuda:" + std::to_string(operation.device) : "the CPU";
    throw Error(ErrorCode::InvalidArgument, config_.name + ": " + operation_name(operation.kind) + " of memory of " +
                                                memory + ": the group has no backend for it; give it \"" +
                                                (on_device ? "nccl" : "gloo") +
                                                "\", or \"cpu:gloo,cuda:nccl\" for both");
  }
  changed_.wait(lock, [&] { return state_ != State::Failing; });
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
  issued.timeout = timeout.count() > 0 ? timeout : config_.timeout;
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

std::uint64_t ProcessGroup::enqueue(const Operation& operation, Milliseconds timeout, bool asynchronous, Lock& lock) {
  enter(operation, timeout, lock);
  Issued& issued = append(queue_, spare_);
  fill(issued, next_++, operation, timeout);
  issued.asynchronous = asynchronous;
  if (config_.size > 1) watch_.expect(issued.deadline);
  return issued.sequence;
}

bool ProcessGroup::front_can_start() const { return state_ == State::Alive && running_ == 0 && !queue_.empty(); }

void ProcessGroup::execute_front(Lock& lock) {
  const Issued& issued = queue_.front();  // stays there until it ended
  running_ = issued.sequence;
  recorder_.started(issued.record, Clock::now());
  lock.unlock();
  std::optional<Failure> failure = perform(issued);
  lock.lock();
  if (state_ == State::Alive && !failure) {
    ended_ = running_;
    recorder_.ended(issued.record, Clock::now());
    spare_.splice(spare_.begin(), queue_, queue_.begin());
  } else if (state_ == State::Alive) {
    fail(lock, running_, std::move(*failure));
  }  // else the group failed meanwhile: that verdict stands, whatever this operation came to
  running_ = 0;
  changed_.notify_all();
  if (front_can_start() && queue_.front().asynchronous) asynchronous_front_.notify_one();
}

// Returns once the operation has ended. What is before it runs on this thread too, unless it is a blocking one of
// another thread's: whoever is there saves the others the way.
void ProcessGroup::execute_until(std::uint64_t sequence, Lock& lock) {
  while (!ended(sequence)) {
    if (front_can_start() && (queue_.front().asynchronous || queue_.front().sequence == sequence)) {
      execute_front(lock);
    } else {
      changed_.wait(lock);
    }
  }
}

void ProcessGroup::run_asynchronous() {
  Lock lock(mutex_);
  for (;;) {
    asynchronous_front_.wait(lock, [&] { return ending_ || (front_can_start() && queue_.front().asynchronous); });
    if (ending_) return;
    execute_front(lock);
  }
}

std::optional<ProcessGroup::Failure> ProcessGroup::perform(const Issued& issued) {
  if (!host_) {
    HostCollectives::perform_alone(issued.operation);
    return std::nullopt;
  }
  if (config_.call_log) config_.call_log->began(issued.sequence, describe(issued.operation, issued.sequence));
  const bool is_in_store = issued.operation.kind == OperationKind::MonitoredBarrier;
  std::optional<Failure> failure = is_in_store ? wait_for_all(issued) : perform_collective(issued);
  if (config_.call_log && !failure) config_.call_log->ended();
  return failure;
}

std::optional<ProcessGroup::Failure> ProcessGroup::perform_collective(const Issued& issued) {
  const Operation& o = issued.operation;
  BackendError error;
  const auto tag = static_cast<std::uint32_t>(issued.sequence * 2);
  if (checker_) {
    std::string disagreement;
    const auto status = checker_->compare(o, tag, issued.deadline, &disagreement, &error);
    if (status != DDP_BACKEND_OK) return to_failure(status, error, issued);
    if (!disagreement.empty()) return Failure{ErrorCode::Mismatch, disagreement};
  }
  return to_failure(host_->perform(o, tag + 1, issued.deadline, &error), error, issued);
}

// A monitored barrier. The store's answer is the verdict, also on a deadline that has passed.
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

// The group fails while a thread of ours waits for others there.
void ProcessGroup::give_up_barrier(const std::string& why) {
  const std::uint64_t sequence = in_barrier_;
  if (sequence == 0) return;
  try {
    MonitoredBarrier::give_up(*config_.open_store(), config_.key_prefix + kBarriers, sequence,
                              "rank " + std::to_string(config_.rank) + " gave up: " + why);
  } catch (const std::exception&) {
    // Without a store it ends by itself.
  }
}

std::uint64_t ProcessGroup::start_message(const Operation& operation, Milliseconds timeout, Lock& lock) {
  enter(operation, timeout, lock);
  Message& message = append(messages_, spare_messages_);
  fill(message, kMessage | next_message_++, operation, timeout);
  message.awaited = message.ended = false;
  const ddp_backend_table& backend = *config_.backend;
  const Operation& o = message.operation;
  BackendError error;
  ddp_backend_status status = DDP_BACKEND_OK;
  if (checker_) {
    status = start_labelled(message, &error);
  } else if (o.kind == OperationKind::Send) {
    status = backend.send(config_.connection, o.input, o.bytes(), o.root, o.tag, &message.handle, &error);
  } else {
    status = backend.receive(config_.connection, o.data, o.bytes(), o.root, o.tag, &message.handle, &error);
  }
  watch_.expect(message.deadline);
  recorder_.started(message.record, Clock::now());
  const std::uint64_t sequence = message.sequence;
  if (std::optional<Failure> failure = to_failure(status, error, message)) fail(lock, sequence, std::move(*failure));
  return sequence;
}

int ProcessGroup::wait_for_message(std::uint64_t sequence, Lock& lock) {
  while (!ended(sequence)) {
    Message* message = find_message(sequence);
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

// Gloo cannot be asked whether a message has ended, only be waited for: by a thread of the message's own.
bool ProcessGroup::look_at_message(std::uint64_t sequence, Clock::time_point until, Lock& lock) {
  Message* message = find_message(sequence);
  if (state_ == State::Alive && message != nullptr && !message->ended && !message->awaited) {
    message->awaited = true;
    message->waiter = start_service_thread("ddp-message", [this, message] {
      Lock waiters_lock(mutex_);
      await_message(*message, waiters_lock);
    });
  }
  if (!changed_.wait_until(lock, until, [&] { return ended(sequence); })) return false;
  throw_if_failed(sequence);
  return true;
}

// The caller has set message.awaited.
void ProcessGroup::await_message(Message& message, Lock& lock) {
  lock.unlock();
  if (config_.call_log) config_.call_log->message_began(describe_message(message.operation));
  BackendError error;
  std::int32_t peer = -1;
  std::string disagreement;
  const ddp_backend_status status =
      checker_ ? wait_for_labelled(message, &peer, &disagreement, &error)
               : config_.backend->message_wait(config_.connection, message.handle, backend_timeout_ms(message.deadline),
                                               &peer, &error);
  lock.lock();
  message.awaited = false;
  if (state_ == State::Alive) {
    std::optional<Failure> failure = to_failure(status, error, message);
    if (!disagreement.empty()) failure = {ErrorCode::Mismatch, disagreement};
    if (failure) {
      fail(lock, message.sequence, std::move(*failure));
    } else {
      message.ended = true;
      recorder_.ended(message.record, Clock::now());
      message.peer = peer;
      free_handles(message);
    }
  }
  changed_.notify_all();
}

// The label goes by the message's tag, what it announces by a tag of its own: receives may be waited for in another
// order than they were posted.
ddp_backend_status ProcessGroup::start_labelled(Message& message, ddp_backend_error* error) {
  const ddp_backend_table& backend = *config_.backend;
  const Operation& o = message.operation;
  if (o.kind == OperationKind::Receive) {
    return backend.receive(config_.connection, &message.label, sizeof(Label), o.root, kLabels | o.tag,
                           &message.label_handle, error);
  }
  message.label = {o.dtype, static_cast<std::int64_t>(o.count), static_cast<std::uint32_t>(message.sequence)};
  const auto status = backend.send(config_.connection, &message.label, sizeof(Label), o.root, kLabels | o.tag,
                                   &message.label_handle, error);
  if (status != DDP_BACKEND_OK) return status;
  return backend.send(config_.connection, o.input, o.bytes(), o.root, kLabelled | message.sequence % kLabels,
                      &message.handle, error);
}

ddp_backend_status ProcessGroup::wait_for_labelled(Message& message, std::int32_t* peer, std::string* disagreement,
                                                   ddp_backend_error* error) {
  const ddp_backend_table& backend = *config_.backend;
  const Operation& o = message.operation;
  const std::int64_t timeout_ms = backend_timeout_ms(message.deadline);
  const Label& label = message.label;
  auto status = backend.message_wait(config_.connection, message.label_handle, timeout_ms, peer, error);
  if (status != DDP_BACKEND_OK) return status;
  if (o.kind == OperationKind::Receive) {
    if (label.dtype != o.dtype || label.count != static_cast<std::int64_t>(o.count)) {
      *disagreement = "ranks disagree: rank " + std::to_string(*peer) + " sends " + std::to_string(label.count) + " " +
                      dtype_name(static_cast<std::int32_t>(label.dtype)) + ", rank " + std::to_string(config_.rank) +
                      " expects " + std::to_string(o.count) + " " + dtype_name(o.dtype);
      return DDP_BACKEND_OK;
    }
    status = backend.receive(config_.connection, o.data, o.bytes(), *peer,
                             kLabelled | static_cast<std::uint32_t>(label.number), &message.handle, error);
    if (status != DDP_BACKEND_OK) return status;
  }
  return backend.message_wait(config_.connection, message.handle, timeout_ms, peer, error);
}

void ProcessGroup::free_handles(Message& message) {
  for (ddp_backend_message** handle : {&message.handle, &message.label_handle}) {
    if (*handle != nullptr) config_.backend->message_free(std::exchange(*handle, nullptr));
  }
}

// Forgets a message that ended; returns the other rank.
int ProcessGroup::collect(std::uint64_t sequence, Lock& lock) {
  const auto message = find_in(messages_, sequence);
  if (message == messages_.end()) return -1;  // another thread did
  std::list<Message> collected;
  collected.splice(collected.end(), messages_, message);
  const int peer = message->peer;
  if (message->waiter.joinable()) {
    lock.unlock();
    message->waiter.join();
    lock.lock();
  }
  spare_messages_.splice(spare_messages_.end(), collected);
  return peer;
}

// ---- Operations on the memory of a GPU ----

// A barrier is for the host, unless the group has a backend for GPUs only.
bool ProcessGroup::runs_on_device(const Operation& operation) const {
  if (operation.kind == OperationKind::Barrier) return config_.on_device != nullptr && !host_;
  return operation.device != kNoDevice;
}

// Returns once it is on the side stream, or the group has failed.
std::uint64_t ProcessGroup::start_on_device(const Operation& operation, Milliseconds timeout, Lock& lock) {
  enter(operation, timeout, lock);
  config_.on_device->check(operation);
  collect_from_device();
  OnDevice& issued = append(on_device_, spare_on_device_);
  fill(issued, kOnDevice | next_++, operation, timeout);
  issued.start = Start::Underway;
  const std::uint64_t sequence = issued.sequence;
  watch_.expect(std::min(issued.deadline, Clock::now() + kBetweenChecks));
  lock.unlock();
  BackendError error;
  const ddp_backend_status status = config_.on_device->start(
      issued.operation, current_stream(config_.on_device->device()), issued.deadline, issued.done, &error);
  lock.lock();
  issued.start = status == DDP_BACKEND_OK ? Start::OnStream : Start::Failed;
  recorder_.started(issued.record, Clock::now());
  if (state_ == State::Alive) {
    if (std::optional<Failure> failure = to_failure(status, error, issued)) fail(lock, sequence, std::move(*failure));
  }
  changed_.notify_all();
  return sequence;
}

// This thread's current stream waits; of a barrier, the host.
void ProcessGroup::follow_on_device(std::uint64_t sequence, Lock& lock) {
  changed_.wait(lock, [&] {
    return ended(sequence) || (state_ == State::Alive && find_on_device(sequence)->start == Start::OnStream);
  });
  OnDevice* issued = find_on_device(sequence);
  if (issued != nullptr && state_ == State::Alive) {
    if (issued->operation.kind == OperationKind::Barrier) {
      await_on_device(sequence, Clock::time_point::max(), lock);
      return;
    }
    BackendError error;
    const ddp_backend_status status =
        config_.on_device->follow(current_stream(config_.on_device->device()), issued->done, &error);
    if (std::optional<Failure> failure = to_failure(status, error, *issued)) fail(lock, sequence, std::move(*failure));
  }
  if (state_ == State::Dead) throw_if_failed(sequence);
}

// A GPU tells nobody that it is done: it is asked.
bool ProcessGroup::await_on_device(std::uint64_t sequence, Clock::time_point until, Lock& lock) {
  for (int looks = 0;; ++looks) {
    if (state_ == State::Alive) collect_from_device();
    if (ended(sequence)) break;
    if (Clock::now() >= until) return false;
    lock.unlock();
    if (looks < kLooksAtOnce) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kBetweenLooks);
    }
    lock.lock();
  }
  throw_if_failed(sequence);
  return true;
}

// Forgets what has ended. Only while Alive: afterwards an operation ends because it was aborted.
void ProcessGroup::collect_from_device() {
  bool any = false;
  while (!on_device_.empty() && on_device_.front().start == Start::OnStream &&
         config_.on_device->has_ended(on_device_.front().done)) {
    recorder_.ended(on_device_.front().record, Clock::now());
    spare_on_device_.splice(spare_on_device_.begin(), on_device_, on_device_.begin());
    any = true;
  }
  if (any) changed_.notify_all();
}

// Null: it ended well.
ProcessGroup::OnDevice* ProcessGroup::find_on_device(std::uint64_t sequence) {
  const auto it = find_in(on_device_, sequence);
  return it != on_device_.end() ? &*it : nullptr;
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

DeadlineWatch::Time ProcessGroup::check_deadlines(DeadlineWatch::Time now) {
  Lock lock(mutex_);
  if (state_ != State::Alive) return DeadlineWatch::Time::max();
  DeadlineWatch::Time next = DeadlineWatch::Time::max();
  const Issued* passed = nullptr;
  const auto look = [&](const Issued& issued) {
    if (issued.sequence == in_barrier_) return;  // it keeps its deadline itself, and knows who is missing
    next = std::min(next, issued.deadline);
    if (issued.deadline <= now && passed == nullptr) passed = &issued;
  };
  for (const Issued& issued : queue_) look(issued);
  for (const Message& message : messages_) {
    if (!message.ended) look(message);
  }
  collect_from_device();
  for (const OnDevice& issued : on_device_) look(issued);
  if (passed != nullptr) {
    fail(lock, passed->sequence, passed_deadline(*passed));
    return DeadlineWatch::Time::max();
  }
  if (on_device_.empty()) return next;
  BackendError error;
  const Issued& oldest = on_device_.front();
  if (auto failure = to_failure(config_.on_device->look(&error), error, oldest)) {
    fail(lock, oldest.sequence, std::move(*failure));
    return DeadlineWatch::Time::max();
  }
  return std::min(next, now + kBetweenChecks);
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
  const auto message = std::find_if(messages_.begin(), messages_.end(), [](const Message& m) { return !m.ended; });
  std::uint64_t oldest = message != messages_.end() ? message->sequence : 0;
  if (!queue_.empty()) oldest = queue_.front().sequence;
  if (!on_device_.empty() && (queue_.empty() || (on_device_.front().sequence & ~kOnDevice) < oldest)) {
    oldest = on_device_.front().sequence;
  }
  if (oldest == 0) unheard_ = cause;
  fail(lock, oldest, {ErrorCode::PeerLost, cause, true});
}

// Called in Alive; leaves in Dead. Gives the lock away in between.
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
  // Those who are told first hear of it from here: so whatever is known of the others goes with it.
  if (failure.code == ErrorCode::Timeout && !failure.is_cause) {
    failure.why += config_.call_log ? what_others_do(blamed) : " (DDP_DEBUG=detail says what the others did instead)";
  }
  const std::string cause = end_connections(failure, blamed);
  failure.why = blamed.words + (cause.empty() ? failure.why : cause);
  if (config_.on_device != nullptr && config_.on_device->left_behind()) {
    failure.why += " (NCCL does not come back from an abort: end this process)";
  }
  give_up_barrier(failure.why);
  write_flight_recorder(failure.why);
  lock.lock();
  failure_ = failure;
  state_ = State::Dead;
  changed_.notify_all();
}

// Returns the cause, if somebody knows it better than this rank does.
std::string ProcessGroup::end_connections(const Failure& failure, const Blamed& blamed) {
  // After a mismatch of a collective every rank fails by itself; closing connections might cut off one that is still
  // comparing. Of a message only the receiver knows.
  const bool all_know = failure.code == ErrorCode::Mismatch && !blamed.operation.is_message();
  if (!is_connected() || all_know) return "";
  const bool is_loss = failure.code == ErrorCode::PeerLost;
  // First the word, then the deed: so the rank that is told to be lost is the one that was lost first, not the first
  // that gave up for it.
  std::string told;
  if (!failure.is_cause && config_.tell_cause)
    told = config_.tell_cause(is_loss ? failure.why : blamed.words + failure.why);
  if (config_.connection != nullptr) config_.backend->group_abort(config_.connection);
  if (config_.on_device != nullptr) config_.on_device->abort();
  if (!config_.ask_for_cause || failure.is_cause || (!is_loss && failure.code != ErrorCode::Timeout)) return "";
  const std::string known = config_.ask_for_cause(is_loss ? kCauseAfterLostPeer : kCauseAfterTimeout);
  if (!known.empty()) return known;
  return is_loss ? told + what_others_do(blamed) : told;
}

// For the end of an error's text: what the log of calls knows of the ranks that were waited for.
std::string ProcessGroup::what_others_do(const Blamed& blamed) {
  const Operation& o = blamed.operation;
  if (!config_.call_log || blamed.sequence == 0 || is_on_device(blamed.sequence)) return "";
  std::string others;
  if (!o.is_message()) {
    others = config_.call_log->who_did_not_call(blamed.sequence, numbered_name(o, blamed.sequence));
  } else if (o.root != kAnyRank) {
    others = config_.call_log->last_call_of(o.root);
  }
  return others.empty() ? "" : "; " + others;
}

int ProcessGroup::wait(std::uint64_t sequence) {
  Lock lock(mutex_);
  check_issued(sequence);
  if (is_message(sequence)) return wait_for_message(sequence, lock);
  if (is_on_device(sequence)) {
    follow_on_device(sequence, lock);
    return -1;
  }
  execute_until(sequence, lock);
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
  // A look of more than an hour is cut to an hour: now + a huge timeout would overflow.
  const auto until = Clock::now() + std::clamp<Milliseconds>(timeout, Milliseconds(0), std::chrono::hours(1));
  if (is_message(sequence)) return look_at_message(sequence, until, lock);
  if (is_on_device(sequence)) return await_on_device(sequence, until, lock);
  if (!changed_.wait_until(lock, until, [&] { return ended(sequence); })) return false;
  throw_if_failed(sequence);
  return true;
}

void ProcessGroup::drain() {
  Lock lock(mutex_);
  const auto nobody_waits = [](const Message& m) { return !m.ended && !m.awaited; };
  while (state_ == State::Alive) {
    const auto message = std::find_if(messages_.begin(), messages_.end(), nobody_waits);
    if (message == messages_.end()) break;
    message->awaited = true;
    await_message(*message, lock);
  }
  changed_.wait(lock, [&] {
    return running_ == 0 &&
           (state_ == State::Dead || (state_ == State::Alive && queue_.empty() && on_device_.empty())) &&
           std::none_of(messages_.begin(), messages_.end(), [](const Message& m) { return m.awaited; }) &&
           std::all_of(on_device_.begin(), on_device_.end(),
                       [](const OnDevice& o) { return o.start != Start::Underway; });
  });
}

std::unique_ptr<DeviceCollectives> ProcessGroup::split_device(int color, GroupPlace place,
                                                              DeadlineWatch::Time deadline) {
  try {
    return config_.on_device->split(color, place, deadline);
  } catch (const Error& e) {
    throw Error(e.code(), config_.name + ": splitting its NCCL communicator: " + e.what());
  }
}

collectives::NcclCommunicator* ProcessGroup::nccl_communicator() {
  if (config_.on_device == nullptr) {
    throw Error(ErrorCode::InvalidArgument, config_.name + ": the group has no NCCL communicator; give it \"nccl\"");
  }
  if (collectives::NcclCommunicator* communicator = config_.on_device->nccl().communicator()) return communicator;
  throw Error(ErrorCode::Aborted, config_.name + ": the group's NCCL communicator was aborted by an earlier error");
}

bool ProcessGroup::alive() {
  const std::lock_guard lock(mutex_);
  return state_ == State::Alive;
}

bool ProcessGroup::ended(std::uint64_t sequence) {
  if (is_on_device(sequence)) {
    const OnDevice* issued = find_on_device(sequence);
    return issued == nullptr || (state_ == State::Dead && issued->start != Start::Underway);
  }
  if (!is_message(sequence)) return sequence <= ended_ || (state_ == State::Dead && running_ != sequence);
  const Message* message = find_message(sequence);
  return message == nullptr || message->ended || (state_ == State::Dead && !message->awaited);
}

void ProcessGroup::check_issued(std::uint64_t sequence) {
  const std::uint64_t number = sequence & ~kMessage & ~kOnDevice;
  if (number > 0 && number < (is_message(sequence) ? next_message_ : next_)) return;
  throw Error(ErrorCode::InvalidArgument,
              config_.name + ": no operation #" + std::to_string(sequence) + " was issued in this group");
}

void ProcessGroup::throw_if_failed(std::uint64_t sequence) {
  if (is_on_device(sequence) ? find_on_device(sequence) == nullptr : !is_message(sequence) && sequence <= ended_)
    return;
  const Message* message = is_message(sequence) ? find_message(sequence) : nullptr;
  if (is_message(sequence) && (message == nullptr || message->ended)) return;
  if (sequence == blamed_) throw Error(failure_->code, failure_->why);
  throw Error(ErrorCode::Aborted, config_.name + ": " + describe_here(sequence) +
                                      ": the group was aborted by an earlier error: " + failure_->why);
}

// Null: it ended well and was collected.
ProcessGroup::Message* ProcessGroup::find_message(std::uint64_t sequence) {
  const auto it = find_in(messages_, sequence);
  return it != messages_.end() ? &*it : nullptr;
}

// Null: it ended well, or there is none.
ProcessGroup::Issued* ProcessGroup::find(std::uint64_t sequence) {
  if (is_message(sequence)) return find_message(sequence);
  if (is_on_device(sequence)) return find_on_device(sequence);
  const auto it = find_in(queue_, sequence);
  return it != queue_.end() ? &*it : nullptr;
}

std::string ProcessGroup::describe_here(std::uint64_t sequence) {
  const std::uint64_t number = sequence & ~kOnDevice;
  const Issued* issued = find(sequence);
  return issued != nullptr ? describe(issued->operation, number) : "operation #" + std::to_string(number);
}

}  // namespace ddp::runtime
