// SPDX-License-Identifier: BSD-3-Clause
// Writes the timeline of a job (--trace FILE) for viewers such as https://ui.perfetto.dev.
//
//     agent's loop ── what happens ──▶ [ thread "ddprun-trace" ] ──▶ FILE, or FILE.part-HOST-ID
//     workers ── shared memory, read 50 times a second ──▶ ┘
//
// The node that coordinates writes FILE, all others a part beside it. Where the folder is shared, the parts are in FILE
// when the job has ended. Times are the coordinator's CLOCK_MONOTONIC; of other nodes' they are estimates
// (ClockOffset), and their tracks say so. A part begins once there is an estimate, and its events wait for that.
//
// The file may lie on a disk that stands still: calls only put something into a queue, and finish() has a deadline.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "launcher/output/trace/clock_offset.hpp"
#include "launcher/output/trace/timeline.hpp"
#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/link/messages.hpp"

namespace ddp::launcher {

// Returns this node's CLOCK_MONOTONIC, which libddp records too.
std::int64_t trace_clock_ns();

class Trace {
 public:
  using Log = std::function<void(const std::string&)>;  // called on any thread

  // Throws rendezvous::Error if the file cannot be made.
  Trace(const TraceSettings& settings, Log log);
  ~Trace();  // as finish(), if it was not called
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  const std::string& path() const;  // where this node writes

  // A heartbeat has come back; see ClockOffset::add().
  void round_trip(std::int64_t sent_ns, std::int64_t coordinator_ns);

  void begin_round(int round, const std::string& epoch, const rendezvous::Assignment& assignment);
  void worker_started(int rank, int pid);
  // `is_failure`: nobody had told it to end.
  void worker_ended(int rank, const std::string& how, bool is_failure);
  void end_round();
  // Something that concerns the node: why a round ends, a hang.
  void note(const std::string& what);

  // Reads what the worker of this rank records in this memory, until worker_ended(). Throws rendezvous::Error.
  void read_from(int rank, const rendezvous::Descriptor& memory);

  // Ends the file, with what other nodes have written if this one coordinates. Nothing follows. A disk that takes
  // longer than this is left alone, and the log says so.
  void finish(std::chrono::milliseconds within);

 private:
  class Thread;
  const Log log_;
  ClockOffset offset_;
  bool is_finished_ = false;
  std::shared_ptr<Thread> thread_;  // its own too: it outlives this object if the disk stands still
};

}  // namespace ddp::launcher
