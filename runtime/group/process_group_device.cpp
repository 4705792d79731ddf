// SPDX-License-Identifier: BSD-3-Clause
// Operations of a group on GPU memory.
#include <algorithm>
#include <cstdio>
#include <utility>

#include "collectives/backend_error.hpp"
#include "runtime/collective/describe_operation.hpp"
#include "runtime/device/current_stream.hpp"
#include "runtime/group/process_group.hpp"

namespace ddp::runtime {
namespace {

using collectives::BackendError;
using rendezvous::Error;
using rendezvous::ErrorCode;

// Polling of operations while a thread waits for them: some polls without a pause, then at this interval.
constexpr std::chrono::microseconds kPollInterval{50};
constexpr int kPollsWithoutPause = 200;

}  // namespace

// Returns once the operation is on the side stream or the group has failed.
std::uint64_t ProcessGroup::start_on_device(const Operation& operation, Milliseconds timeout, Lock& lock) {
  enter(operation, timeout, lock);
  config_.on_device->check(operation);
  const std::uint64_t capture = config_.on_device->capture_of(current_stream(config_.on_device->device()));
  if (capture != 0 && operation.kind == OperationKind::Barrier) {
    throw Error(ErrorCode::InvalidArgument,
                config_.name + ": barrier: the host waits for it: not while a CUDA graph is captured");
  }
  collect_from_device();
  if (std::any_of(on_device_.begin(), on_device_.end(), [](const OnDevice& o) { return o.capture != 0; })) {
    forget_captures(config_.on_device->own_capture());
  }
  OnDevice& issued = on_device_.add();
  fill(issued, kOnDevice | next_++, operation, timeout);
  issued.start = StartState::Underway;
  issued.capture = capture;
  const std::uint64_t sequence = issued.sequence;
  watch_.expect(std::min(issued.deadline, Clock::now() + kBetweenChecks));
  lock.unlock();
  BackendError error;
  const ddp_backend_status status = config_.on_device->start(
      issued.operation, current_stream(config_.on_device->device()), issued.deadline, issued.done, &error);
  lock.lock();
  issued.start = status == DDP_BACKEND_OK ? StartState::OnStream : StartState::Failed;
  if (capture != 0 && status == DDP_BACKEND_OK) {
    has_captured_ = true;
    issued.deadline = Clock::time_point::max();  // it is not run now, but whenever the graph is
  }
  recorder_.started(issued.record, Clock::now());
  if (state_ == State::Alive) {
    if (std::optional<Failure> failure = to_failure(status, error, issued)) fail(lock, sequence, std::move(*failure));
  }
  changed_.notify_all();
  return sequence;
}

// Makes this thread's current stream wait for the operation. For a barrier the host waits.
void ProcessGroup::follow_on_device(std::uint64_t sequence, Lock& lock) {
  changed_.wait(lock, [&] {
    return ended(sequence) || (state_ == State::Alive && on_device_.find(sequence)->start == StartState::OnStream);
  });
  OnDevice* issued = on_device_.find(sequence);
  if (issued != nullptr && state_ == State::Alive) {
    check_captures(*issued);
    if (issued->operation.kind == OperationKind::Barrier) {
      await_on_device(sequence, Clock::time_point::max(), lock);
      return;
    }
    BackendError error;
    const ddp_backend_status status =
        config_.on_device->follow(current_stream(config_.on_device->device()), issued->done, &error);
    if (std::optional<Failure> failure = to_failure(status, error, *issued)) fail(lock, sequence, std::move(*failure));
    if (state_ == State::Alive && issued->capture != 0) retire_captured(sequence);
  }
  if (state_ == State::Dead) throw_if_failed(sequence);
}

// Refuses to wait for an operation on the other side of a capture's border: the driver would end the capture.
void ProcessGroup::check_captures(const OnDevice& issued) const {
  const std::uint64_t here = config_.on_device->capture_of(current_stream(config_.on_device->device()));
  if (here == issued.capture) return;
  const std::string what = config_.name + ": " + describe(issued.operation, issued.sequence & ~kOnDevice) + ": ";
  throw Error(ErrorCode::InvalidArgument,
              what + (issued.capture == 0 ? "it was started before the capture of a CUDA graph: wait for it before that"
                                          : "it is a part of a CUDA graph: wait for it in the same capture"));
}

// A captured operation has done its part once a stream of the graph follows it.
void ProcessGroup::retire_captured(std::uint64_t sequence) {
  on_device_.retire(on_device_.take(sequence));
  changed_.notify_all();
}

// Forgets operations of other captures than the one under way, which no stream of theirs follows. The driver refuses
// such a capture, but does not notice it with NCCL's kernels; so a line on stderr says it.
void ProcessGroup::forget_captures(std::uint64_t underway) {
  for (auto next = on_device_.begin(); next != on_device_.end();) {
    const OnDevice& issued = *next++;
    if (issued.capture == 0 || issued.capture == underway || issued.start != StartState::OnStream) continue;
    const std::string line = "libddp: " + config_.name + ": " + describe_here(issued.sequence) +
                             ": the capture of a CUDA graph ended without a wait for it: nothing waits for its result "
                             "when that graph is launched\n";
    if (state_ == State::Alive) std::fputs(line.c_str(), stderr);
    on_device_.retire(on_device_.take(issued.sequence));
  }
}

// Polls until the operation has ended or `until` has passed. A GPU does not notify the host.
bool ProcessGroup::await_on_device(std::uint64_t sequence, Clock::time_point until, Lock& lock) {
  if (const OnDevice* issued = on_device_.find(sequence); issued != nullptr && issued->capture != 0) {
    throw Error(ErrorCode::InvalidArgument, config_.name + ": " + describe_here(sequence) +
                                                ": it is a part of a CUDA graph, which the host cannot wait for");
  }
  for (int polls = 0;; ++polls) {
    if (state_ == State::Alive) collect_from_device();
    if (ended(sequence)) break;
    if (Clock::now() >= until) return false;
    lock.unlock();
    if (polls < kPollsWithoutPause) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kPollInterval);
    }
    lock.lock();
  }
  throw_if_failed(sequence);
  return true;
}

// Retires operations that have ended. To be called only while Alive: later, operations end because they are aborted.
void ProcessGroup::collect_from_device() {
  bool any = false;
  for (auto next = on_device_.begin(); next != on_device_.end();) {
    const OnDevice& oldest = *next++;
    if (oldest.start != StartState::OnStream) break;
    if (oldest.capture != 0) continue;  // it does not run, so those after it do not wait for it
    if (!config_.on_device->has_ended(oldest.done)) break;
    recorder_.ended(oldest.record, Clock::now());
    on_device_.retire(on_device_.take(oldest.sequence));
    any = true;
  }
  if (any) changed_.notify_all();
}

// Fails the group if NCCL has failed meanwhile. An operation of a CUDA graph has no number to be blamed by.
void ProcessGroup::poll_device(Lock& lock) {
  BackendError error;
  const Issued none;
  const Issued& oldest = on_device_.empty() ? none : on_device_.front();
  const ddp_backend_status status = config_.on_device->poll_error(&error);
  if (std::optional<Failure> failure = to_failure(status, error, oldest)) {
    fail(lock, oldest.sequence, std::move(*failure));
  }
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

}  // namespace ddp::runtime
