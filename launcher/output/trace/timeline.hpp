// SPDX-License-Identifier: BSD-3-Clause
// What a node's part of a trace says: turns what the agent tells and what its workers record into lines. It holds no
// file and no thread, and reads no clock: `at` is this node's CLOCK_MONOTONIC in nanoseconds.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "launcher/output/trace/clock_offset.hpp"
#include "launcher/output/trace/operation_reader.hpp"
#include "launcher/output/trace/trace_event.hpp"
#include "rendezvous/link/messages.hpp"

namespace ddp::launcher {

struct TraceSettings {
  std::string path;  // as given
  std::string job, program, host, incarnation;
  bool coordinates = true;
};

class Timeline {
 public:
  using Write = std::function<void(const std::string& line)>;
  Timeline(const TraceSettings& settings, Write write) : settings_(settings), write_(std::move(write)) {}

  // What follows is moved by this estimate; without one, by nothing. The first call begins the timeline.
  void use_clock(std::int64_t at, const std::optional<ClockOffset::Estimate>& clock);

  void begin_round(std::int64_t at, int round, const std::string& epoch, const rendezvous::Assignment& assignment);
  void end_round(std::int64_t at);
  void worker_started(std::int64_t at, int rank, int pid);
  void worker_ended(std::int64_t at, int rank, const std::string& how, bool is_failure);
  void note(std::int64_t at, const std::string& what);

  // The worker of this rank records there, until worker_ended().
  void add_reader(std::int64_t at, int rank, std::shared_ptr<OperationReader> reader);
  bool has_readers() const { return !readers_.empty(); }
  // Writes what has ended since the last call; only counts it if the file `is_full`.
  void read_operations(bool is_full);

  // Ends what is open. Returns what is not in the trace, for the user; empty: nothing is missing.
  std::string end(std::int64_t at);
  const std::string& epoch() const { return epoch_; }

 private:
  struct GroupTrack {
    std::string name;
    std::int64_t last_end = 0;
  };
  std::int64_t in_timeline(std::int64_t at) const { return at + ahead_ns_; }
  void label_node();
  void name_once(const char* what, TraceTrack track, const std::string& name);
  void end_reader(std::int64_t at, int rank);
  void write_operation(int rank, const TracedOperation& operation, std::int64_t ended_at);

  const TraceSettings settings_;
  const Write write_;
  std::int64_t ahead_ns_ = 0;
  bool has_begun_ = false;
  std::string clock_words_, epoch_;
  int node_rank_ = -1;  // in the newest round
  bool is_round_open_ = false;
  std::set<int> running_;  // ranks whose processes are open slices
  std::set<int> ordered_;  // processes of tracks that have a place among the others
  std::map<std::pair<std::string, TraceTrack>, std::string> names_;
  std::map<TraceTrack, GroupTrack> group_tracks_;
  std::map<int, std::shared_ptr<OperationReader>> readers_;  // by rank
  bool is_full_ = false;
  std::uint64_t missed_ = 0, left_out_ = 0, groups_left_out_ = 0;
};

}  // namespace ddp::launcher
