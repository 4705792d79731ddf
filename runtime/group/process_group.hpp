// SPDX-License-Identifier: BSD-3-Clause
// Runs the operations of one group. There are three kinds, with a source file each:
//   * Collectives (process_group.cpp) are numbered in the order they are issued and run in that order, one at a time. A
//     blocking one runs on its caller's thread when its turn comes, an asynchronous one on the group's own thread or on
//     a thread that waits for it. Over a backend that does nothing, a blocking all_reduce takes about 130 ns, and an
//     asynchronous one that is waited for 166 ns.
//   * Messages between two ranks (process_group_messages.cpp) start at once, independently of everything else.
//   * Operations on GPU memory (process_group_device.cpp) share the numbers of collectives but run in order on a stream
//     of the group's own: see device_collectives.hpp.
// process_group_failures.cpp is how a group fails, process_group_memory.cpp is memory for its buffers.
//
//     Alive --an operation fails, or its deadline passes--> Failing --the cause is known--> Dead
//
// A group is single-use after an error: the operation to blame fails with the cause, all later ones fail with
// ErrorCode::Aborted and quote it. While the group is Failing, it closes its connections, so that other ranks notice,
// and asks the store once which worker failed.
//
// Threads: any, but only one issues operations at a time. The session's deadline watch calls in as well.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "ddp/backend.h"
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
    Milliseconds timeout{0};                         // for operations that give none
    const ddp_backend_table* backend = nullptr;      // null for a group of one, and without a backend for CPU memory
    ddp_backend_group* connection = nullptr;         // owned by this object from now on
    std::unique_ptr<DeviceCollectives> on_device{};  // null: no backend for CUDA memory
    std::size_t flight_recorder_size = 0;            // operations that the recorder keeps
    // Set with DDP_DEBUG=detail: calls are compared before each collective, and recorded for ranks that wait in vain.
    std::optional<CallLog::Group> call_log;
    // Opens a connection to the job's store, in which this group's keys begin with key_prefix. Throws
    // rendezvous::Error.
    std::function<std::unique_ptr<rendezvous::Store>()> open_store;
    std::string key_prefix;
    // Returns the launcher's report of a failure, waiting at most this long; "" if there is none. Must not throw.
    std::function<std::string(Milliseconds)> ask_for_cause;
    // Publishes this rank's reason for the other ranks, which only see a broken connection. If another rank was first,
    // returns that rank's reason instead. Must not throw.
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
  // Returns the GPU whose memory the group reaches, or null.
  std::shared_ptr<collectives::CudaDevice> gpu() const {
    return config_.on_device != nullptr ? config_.on_device->gpu() : nullptr;
  }

  // Run, issue and wait for operations. `timeout` runs from now to the operation's end. They throw rendezvous::Error.
  // run and wait return the rank that a message came from or went to, or -1 for a collective and for a message in GPU
  // memory that was issued. For operations on GPU memory they do not block; this thread's current stream waits instead.
  int run(const Operation& operation, Milliseconds timeout = kGroupsOwnTimeout);
  std::uint64_t issue(const Operation& operation, Milliseconds timeout = kGroupsOwnTimeout);
  int wait(std::uint64_t sequence);
  bool wait_for(std::uint64_t sequence, Milliseconds timeout);
  // Returns zeroed memory for buffers, the backend's if it has such memory: then this is a collective.
  void* allocate(std::size_t bytes, Milliseconds timeout = kGroupsOwnTimeout);
  // Frees memory of allocate(); what is left is freed with the group.
  void free(void* memory);

  // Waits for the operation, and blocks for operations on GPU memory too.
  void synchronize(std::uint64_t sequence);
  // Returns once the operation does not use its caller's memory any more. Throws rendezvous::Error as wait() does.
  void drop(std::uint64_t sequence);

  // Makes all operations in flight fail with ErrorCode::Aborted and this reason.
  void abort(const std::string& reason);
  // Fails the group because another rank is certainly gone. The oldest operation in flight is to blame.
  void lose_peer(const std::string& cause);
  // Returns once nothing is in flight but receives that no thread waits for, whose messages may never come. The group
  // issues no more operations.
  void drain();
  bool alive();
  // Splits the communicator; every rank of the group must call it. Returns the part for this rank's color, or null if
  // color is negative or NCCL is too old. Throws rendezvous::Error.
  std::unique_ptr<DeviceCollectives> split_device(int color, GroupPlace place, DeadlineWatch::Time deadline);
  // Returns what knows of NCCL and of memory that is registered with it, or null; and when an operation that begins now
  // has to be done.
  collectives::NcclGroup* nccl() const { return config_.on_device != nullptr ? &config_.on_device->nccl() : nullptr; }
  std::chrono::steady_clock::time_point deadline() const { return std::chrono::steady_clock::now() + config_.timeout; }
  // Returns NCCL's own handle, for callers that use NCCL directly. Throws rendezvous::Error if there is none or it was
  // aborted.
  collectives::NcclCommunicator* nccl_communicator();

 private:
  using Clock = std::chrono::steady_clock;
  enum class State { Alive, Failing, Dead };
  struct Issued {
    std::uint64_t sequence = 0;  // for messages: kMessage and a number of their own
    Operation operation;
    std::vector<std::size_t> counts;  // those of an all_to_all, which `operation` refers to
    Clock::time_point deadline;
    Milliseconds timeout{0};
    std::uint64_t record = 0;  // the flight recorder's number
    bool asynchronous = false;

    Clock::time_point issued_at() const { return deadline - timeout; }
  };
  struct Message : Issued {
    HostMessage transfer;
    int callers = 0;         // threads that wait for it
    bool awaited = false;    // a thread waits for it in the backend
    bool ended = false;      // but not collected yet
    bool left_over = false;  // a receive for which no thread waits when the group ends
    int peer = -1;
    std::thread waiter;                 // waits in the backend where that cannot be polled
    std::vector<unsigned char> memory;  // where a receive goes on that was dropped
  };
  enum class StartState { Underway, OnStream, Failed };
  struct OnDevice : Issued {  // its sequence is kOnDevice and the number
    StartState start = StartState::Underway;
    DeviceCollectives::Event done;  // valid once `start` is OnStream
    std::uint64_t capture = 0;      // number of the CUDA graph that has the operation; 0: it runs
  };
  struct Failure {
    rendezvous::ErrorCode code;
    std::string why;
    bool is_cause = false;  // certain: no other report can explain it better
  };
  struct Blamed {  // a copy of what is needed without the lock
    std::uint64_t sequence = 0;
    Operation operation;
    std::string words;
  };
  using Lock = std::unique_lock<std::mutex>;

  // Marks in sequence numbers. Messages have numbers of their own; operations on a GPU share those of collectives.
  static constexpr std::uint64_t kMessage = std::uint64_t{1} << 63;
  static constexpr std::uint64_t kOnDevice = std::uint64_t{1} << 62;
  static bool is_message(std::uint64_t sequence) { return (sequence & kMessage) != 0; }
  static bool is_on_device(std::uint64_t sequence) { return (sequence & kOnDevice) != 0; }
  // Polling interval for operations on a GPU while no thread waits for them.
  static constexpr std::chrono::milliseconds kBetweenChecks{10};

  bool is_connected() const { return config_.connection != nullptr || config_.on_device != nullptr; }
  void enter(const Operation& operation, Milliseconds timeout, Lock& lock);
  void fill(Issued& issued, std::uint64_t sequence, const Operation& operation, Milliseconds timeout);
  const Issued& enqueue(const Operation& operation, Milliseconds timeout, bool asynchronous, Lock& lock);
  bool front_can_start() const;
  void execute_front(Clock::time_point now, Lock& lock);
  void execute_until(std::uint64_t sequence, Clock::time_point now, Lock& lock);
  void run_asynchronous();
  std::optional<Failure> perform(const Issued& issued, Clock::time_point now);
  std::optional<Failure> perform_collective(const Issued& issued, Clock::time_point now);
  std::optional<Failure> wait_for_all(const Issued& issued);
  void give_up_barrier(const std::string& why);

  std::uint64_t start_message(const Operation& operation, Milliseconds timeout, Lock& lock);
  int wait_for_message(std::uint64_t sequence, Lock& lock);
  void start_waiter(Message& message);
  Message* join_callers(std::uint64_t sequence);
  bool poll_message(std::uint64_t sequence, Clock::time_point until, Lock& lock);
  void await_message(Message& message, Lock& lock, std::optional<Clock::time_point> until = std::nullopt);
  int collect(std::uint64_t sequence, Lock& lock);

  // A barrier runs on the host, unless the group has a backend for GPU memory only.
  bool runs_on_device(const Operation& operation) const {
    if (operation.kind == OperationKind::Barrier) return config_.on_device != nullptr && !host_;
    return operation.device != kNoDevice;
  }
  std::uint64_t start_on_device(const Operation& operation, Milliseconds timeout, Lock& lock);
  void follow_on_device(std::uint64_t sequence, Lock& lock);
  bool await_on_device(std::uint64_t sequence, Clock::time_point until, Lock& lock);
  void collect_from_device();
  void check_captures(const OnDevice& issued) const;
  void retire_captured(std::uint64_t sequence);
  void forget_captures(std::uint64_t underway);
  bool polls_device() const { return !on_device_.empty() || has_captured_; }
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
  std::optional<HostCollectives> host_;  // none in a group of one; this and the next are used by the running operation
  std::optional<CallChecker> checker_;
  std::optional<MonitoredBarrier> barrier_;
  std::atomic<std::uint64_t> in_barrier_{0};  // sequence number of the monitored barrier that a thread is in; 0: none
  FlightRecorder recorder_;                   // used under the lock

  std::mutex mutex_;
  std::condition_variable changed_;
  State state_ = State::Alive;
  InFlight<Issued> queue_;  // collectives not ended yet; after a failure also those that never will
  std::uint64_t next_ = 1;
  std::uint64_t ended_ = 0;     // all collectives up to this one succeeded
  std::uint64_t running_ = 0;   // 0: none
  InFlight<Message> messages_;  // messages not collected yet
  std::uint64_t next_message_ = 1;
  InFlight<OnDevice> on_device_;  // operations on the GPU in the order of the side stream, kept like queue_
  bool has_captured_ = false;     // operations of a CUDA graph may run at any time
  std::uint64_t blamed_ = 0;      // sequence number of the operation that failed first; 0: abort()
  std::optional<Failure> failure_;
  std::map<void*, std::unique_ptr<unsigned char[]>> own_memory_;  // what allocate() gave where the backend has none
  std::string unheard_;  // the loss of a peer that no operation has reported to the caller yet

  std::condition_variable asynchronous_front_;
  bool ending_ = false;
  std::thread thread_;  // started by the first asynchronous operation
};

}  // namespace ddp::runtime
