// SPDX-License-Identifier: BSD-3-Clause
// The operations of one group. Collectives are numbered in the order they are issued and run in that order, one at a
// time: a blocking one on its caller's thread when its turn comes, an asynchronous one on the group's own thread, or on
// that of somebody who waits for it. Messages between two ranks start at once, each apart from everything else. What
// works on the memory of a GPU has numbers of the same row, but runs on a stream of the group's own, in its order: see
// device_collectives.hpp. These three are process_group.cpp, process_group_messages.cpp and process_group_device.cpp;
// how a group fails is process_group_failures.cpp.
//
//     Alive --an operation fails, or its deadline passes--> Failing --the cause is known--> Dead
//
// A group is single-use after an error: the operation to blame fails with the cause, all later ones with
// ErrorCode::Aborted quoting it. In between (Failing) connections are closed, so that other ranks notice, and the store
// is asked once which worker failed.
//
// Threads: any, one issuing at a time. The session's deadline watch calls in as well.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "collectives/backend.h"
#include "rendezvous/base/error.hpp"
#include "rendezvous/store/store.hpp"
#include "runtime/base/deadline_watch.hpp"
#include "runtime/collective/call_checker.hpp"
#include "runtime/collective/host_collectives.hpp"
#include "runtime/collective/host_message.hpp"
#include "runtime/collective/operation.hpp"
#include "runtime/device/device_collectives.hpp"
#include "runtime/device/in_flight.hpp"
#include "runtime/diagnosis/call_log.hpp"
#include "runtime/diagnosis/flight_recorder.hpp"
#include "runtime/group/monitored_barrier.hpp"

namespace ddp::runtime {

class ProcessGroup final : private DeadlineWatch::Watched {
 public:
  using Milliseconds = std::chrono::milliseconds;
  static constexpr Milliseconds kGroupsOwnTimeout{0};

  struct Config {
    std::string name;
    int rank = 0;
    int size = 1;
    Milliseconds timeout{0};                         // of an operation that gives none
    const ddp_backend_table* backend = nullptr;      // null for a group of one, and where there is none for the CPU
    ddp_backend_group* connection = nullptr;         // becomes this object's
    std::unique_ptr<DeviceCollectives> on_device{};  // null: no backend for CUDA memory
    std::size_t flight_recorder_size = 0;            // operations it keeps
    // DDP_DEBUG=detail: calls are compared before each collective, and told to ranks that wait in vain.
    std::optional<CallLog::Group> call_log;
    // Opens a connection to the job's store, where this group's keys begin with key_prefix. Throws rendezvous::Error.
    std::function<std::unique_ptr<rendezvous::Store>()> open_store;
    std::string key_prefix;
    // Who failed, as the launcher knows it; waits at most so long; empty if it does not know. Must not throw.
    std::function<std::string(Milliseconds)> ask_for_cause;
    // Leaves this rank's reason for the others, who only see a broken connection, unless one of them was first: then
    // that one's is returned. Must not throw.
    std::function<std::string(const std::string&)> publish_cause;
  };

  ProcessGroup(Config config, DeadlineWatch& watch);
  ~ProcessGroup();  // drain() first
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  const std::string& name() const { return config_.name; }
  int rank() const { return config_.rank; }
  int size() const { return config_.size; }
  GroupPlace place() const { return {config_.rank, config_.size}; }
  bool reaches_host_memory() const { return host_ || config_.size == 1; }
  // Whose memory it reaches besides; null: none.
  std::shared_ptr<collectives::CudaDevice> gpu() const {
    return config_.on_device != nullptr ? config_.on_device->gpu() : nullptr;
  }

  // timeout: from now to the end. Throw rendezvous::Error.
  // run and wait return the rank that a message came from or went to; of a collective, and of a message in the memory
  // of a GPU that was issued, -1. For an operation on such memory they do not wait: this thread's current stream does.
  int run(const Operation& operation, Milliseconds timeout = kGroupsOwnTimeout);
  std::uint64_t issue(const Operation& operation, Milliseconds timeout = kGroupsOwnTimeout);
  int wait(std::uint64_t sequence);
  bool wait_for(std::uint64_t sequence, Milliseconds timeout);
  // Waits for operations on the memory of a GPU too.
  void synchronize(std::uint64_t sequence);

  // Makes all operations not yet ended fail with ErrorCode::Aborted and this reason.
  void abort(const std::string& reason);
  // Another rank of this group is gone, as somebody knows for certain: the oldest operation in flight is to blame.
  void lose_peer(const std::string& cause);
  // Returns once nothing is in flight.
  void drain();
  bool alive();
  // A part of the communicator, for those of one color; every rank of the group calls it. Null: color is negative, or
  // NCCL is too old. Throws rendezvous::Error.
  std::unique_ptr<DeviceCollectives> split_device(int color, GroupPlace place, DeadlineWatch::Time deadline);
  // NCCL's own handle, for those who call NCCL themselves. Throws rendezvous::Error: there is none, or no longer.
  collectives::NcclCommunicator* nccl_communicator();

 private:
  using Clock = std::chrono::steady_clock;
  enum class State { Alive, Failing, Dead };
  struct Issued {
    std::uint64_t sequence = 0;  // messages: kMessage and a number of their own
    Operation operation;
    std::vector<std::size_t> counts;  // all_to_all's, which operation refers to
    Clock::time_point deadline;
    Milliseconds timeout{0};
    std::uint64_t record = 0;  // the flight recorder's
    bool asynchronous = false;
  };
  struct Message : Issued {
    HostMessage transfer;
    bool awaited = false;  // a thread waits for the backend
    bool ended = false;    // and is not yet collected
    int peer = -1;
    std::thread waiter;  // of one that somebody only looks at
  };
  enum class StartState { Underway, OnStream, Failed };
  struct OnDevice : Issued {  // sequence: kOnDevice and the number
    StartState start = StartState::Underway;
    DeviceCollectives::Event done;  // means something once it is OnStream
  };
  struct Failure {
    rendezvous::ErrorCode code;
    std::string why;
    bool is_cause = false;  // nobody knows better
  };
  struct Blamed {  // what of it is needed without the lock
    std::uint64_t sequence = 0;
    Operation operation;
    std::string words;
  };
  using Lock = std::unique_lock<std::mutex>;

  // Messages have numbers of their own; what is on a GPU has one of the same row as collectives.
  static constexpr std::uint64_t kMessage = std::uint64_t{1} << 63;
  static constexpr std::uint64_t kOnDevice = std::uint64_t{1} << 62;
  static bool is_message(std::uint64_t sequence) { return (sequence & kMessage) != 0; }
  static bool is_on_device(std::uint64_t sequence) { return (sequence & kOnDevice) != 0; }
  // How often operations on a GPU are looked at while nobody waits for them.
  static constexpr std::chrono::milliseconds kBetweenChecks{10};

  bool is_connected() const { return config_.connection != nullptr || config_.on_device != nullptr; }
  void enter(const Operation& operation, Milliseconds timeout, Lock& lock);
  void fill(Issued& issued, std::uint64_t sequence, const Operation& operation, Milliseconds timeout);
  std::uint64_t enqueue(const Operation& operation, Milliseconds timeout, bool asynchronous, Lock& lock);
  bool front_can_start() const;
  void execute_front(Lock& lock);
  void execute_until(std::uint64_t sequence, Lock& lock);
  void run_asynchronous();
  std::optional<Failure> perform(const Issued& issued);
  std::optional<Failure> perform_collective(const Issued& issued);
  std::optional<Failure> wait_for_all(const Issued& issued);
  void give_up_barrier(const std::string& why);

  std::uint64_t start_message(const Operation& operation, Milliseconds timeout, Lock& lock);
  int wait_for_message(std::uint64_t sequence, Lock& lock);
  bool poll_message(std::uint64_t sequence, Clock::time_point until, Lock& lock);
  void await_message(Message& message, Lock& lock);
  int collect(std::uint64_t sequence, Lock& lock);

  // A barrier is for the host, unless the group has a backend for GPUs only.
  bool runs_on_device(const Operation& operation) const {
    if (operation.kind == OperationKind::Barrier) return config_.on_device != nullptr && !host_;
    return operation.device != kNoDevice;
  }
  std::uint64_t start_on_device(const Operation& operation, Milliseconds timeout, Lock& lock);
  void follow_on_device(std::uint64_t sequence, Lock& lock);
  bool await_on_device(std::uint64_t sequence, Clock::time_point until, Lock& lock);
  void collect_from_device();
  void poll_device(Lock& lock);

  DeadlineWatch::Time check_deadlines(DeadlineWatch::Time now) override;
  std::optional<Failure> to_failure(ddp_backend_status status, const ddp_backend_error& error, const Issued& issued);
  Failure passed_deadline(const Issued& issued) const;
  void fail(Lock& lock, std::uint64_t sequence, Failure failure);
  std::string end_connections(const Failure& failure, const Blamed& blamed);
  std::string describe_others(const Blamed& blamed);
  bool ended(std::uint64_t sequence);
  void check_issued(std::uint64_t sequence);
  void throw_if_failed(std::uint64_t sequence);
  Issued* find(std::uint64_t sequence);
  std::string describe_here(std::uint64_t sequence);

  Config config_;
  DeadlineWatch& watch_;
  HostMessage::Channel channel_;
  std::optional<HostCollectives> host_;  // none in a group of one; these two are the running operation's
  std::optional<CallChecker> checker_;
  std::optional<MonitoredBarrier> barrier_;
  std::atomic<std::uint64_t> in_barrier_{0};  // a thread is in the barrier of this sequence number; 0: none
  FlightRecorder recorder_;                   // under the lock

  std::mutex mutex_;
  std::condition_variable changed_;
  State state_ = State::Alive;
  InFlight<Issued> queue_;  // not ended yet; after a failure also those that never will
  std::uint64_t next_ = 1;
  std::uint64_t ended_ = 0;     // all up to this one succeeded
  std::uint64_t running_ = 0;   // 0: none
  InFlight<Message> messages_;  // not collected yet
  std::uint64_t next_message_ = 1;
  InFlight<OnDevice> on_device_;  // in the order of the side stream; as queue_ otherwise
  std::uint64_t blamed_ = 0;      // the operation that failed first; 0: abort()
  std::optional<Failure> failure_;
  std::string unheard_;  // the loss of a peer, of which no operation has told the caller yet

  std::condition_variable asynchronous_front_;
  bool ending_ = false;
  std::thread thread_;  // started by the first asynchronous operation
};

}  // namespace ddp::runtime
