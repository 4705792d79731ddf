// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/output/trace/timeline.hpp"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "launcher/output/trace/trace_file.hpp"
#include "launcher/text/time_text.hpp"
#include "rendezvous/wire/json_text.hpp"

namespace ddp::launcher {
namespace {

constexpr int kEventsTrack = 1;  // thread of a node's track, beside its rounds

std::string microseconds(std::int64_t ns) {
  return std::to_string(ns / 1000) + "." + std::to_string(std::abs(ns) / 100 % 10) + " us";
}

}  // namespace

void Timeline::use_clock(std::int64_t at, const std::optional<ClockOffset::Estimate>& clock) {
  if (clock) ahead_ns_ = clock->ahead_ns;
  if (std::exchange(has_begun_, true)) return;
  if (settings_.coordinates) {
    clock_words_ = "its clock is the timeline's";
    rendezvous::JsonObject args;
    args.text("job", settings_.job).text("program", settings_.program).text("host", settings_.host);
    args.text("utc", utc_now());
    write_(trace_label("process_name", {0, 0}, "job " + settings_.job + ": " + settings_.program));
    write_(trace_order({0, 0}, -1));
    write_(trace_instant("the trace begins", {0, 0}, at, args.str()));
  } else if (clock) {
    clock_words_ = "its clock is " + microseconds(clock->ahead_ns) +
                   " behind the timeline's, an estimate that is at most " + microseconds(clock->error_ns) + " wrong";
  } else {
    clock_words_ = "its clock has nothing to do with the timeline's: no estimate came in time";
  }
}

void Timeline::begin_round(std::int64_t at, int round, const std::string& epoch,
                           const rendezvous::Assignment& assignment) {
  node_rank_ = assignment.node_rank;
  if (epoch_ != epoch) {
    epoch_ = epoch;
    if (!settings_.coordinates) write_(trace_part_line(epoch));
  }
  label_node();
  const int restarts = assignment.restart_count;
  const std::string name =
      "round " + std::to_string(round) + (restarts > 0 ? " (restart " + std::to_string(restarts) + ")" : std::string());
  rendezvous::JsonObject args;
  args.number("world_size", assignment.world_size).number("nodes", assignment.node_count);
  args.number("restarts", restarts).number("max_restarts", assignment.max_restarts);
  write_(trace_begin(name, track_of_node(node_rank_), in_timeline(at), args.str()));
  is_round_open_ = true;
}

void Timeline::worker_started(std::int64_t at, int rank, int pid) {
  const TraceTrack track = track_of_rank(rank);
  name_once("process_name", track, "rank " + std::to_string(rank));
  name_once("process_labels", track, "on " + settings_.host);
  name_once("thread_name", track, "process");
  if (ordered_.insert(track.process).second) write_(trace_order(track, kNodeTracks + rank));
  write_(trace_begin("process " + std::to_string(pid), track, in_timeline(at),
                     rendezvous::JsonObject().number("pid", pid).text("host", settings_.host).str()));
  running_.insert(rank);
}

void Timeline::worker_ended(std::int64_t at, int rank, const std::string& how, bool is_failure) {
  end_reader(at, rank);
  if (running_.erase(rank) == 0) return;
  const TraceTrack track = track_of_rank(rank);
  const std::string args = rendezvous::JsonObject().text("how", how).str();
  if (is_failure) write_(trace_instant("failure: " + how, track, in_timeline(at), args));
  write_(trace_end(track, in_timeline(at), args));
}

void Timeline::end_round(std::int64_t at) {
  if (std::exchange(is_round_open_, false)) write_(trace_end(track_of_node(node_rank_), in_timeline(at)));
}

void Timeline::note(std::int64_t at, const std::string& what) {
  if (node_rank_ < 0) label_node();
  write_(trace_instant(what, track_of_node(std::max(node_rank_, 0), kEventsTrack), in_timeline(at)));
}

void Timeline::add_reader(std::int64_t at, int rank, std::shared_ptr<OperationReader> reader) {
  end_reader(at, rank);  // the process has asked twice, or another one took its place
  readers_[rank] = std::move(reader);
}

void Timeline::end_reader(std::int64_t at, int rank) {
  const auto reader = readers_.extract(rank);
  if (!reader) return;
  reader.mapped()->read_last([&](const TracedOperation& operation) { write_operation(rank, operation, at); });
  missed_ += reader.mapped()->missed();
  groups_left_out_ += reader.mapped()->groups_left_out();
}

void Timeline::label_node() {
  const TraceTrack track = track_of_node(std::max(node_rank_, 0));
  name_once("process_name", track, "node " + std::to_string(std::max(node_rank_, 0)) + ": " + settings_.host);
  name_once("process_labels", track, clock_words_);
  name_once("thread_name", track, "rounds");
  name_once("thread_name", track_of_node(std::max(node_rank_, 0), kEventsTrack), "events");
  if (ordered_.insert(track.process).second) write_(trace_order(track, std::max(node_rank_, 0)));
}

void Timeline::name_once(const char* what, TraceTrack track, const std::string& name) {
  std::string& named = names_[{what, track}];
  if (std::exchange(named, name) != name) write_(trace_label(what, track, name));
}

void Timeline::read_operations(bool is_full) {
  is_full_ = is_full;
  for (const auto& [rank, reader] : readers_) {
    reader->read([&, rank = rank](const TracedOperation& operation) { write_operation(rank, operation, 0); });
  }
}

// `ended_at` is the end of what has none, since its process died.
void Timeline::write_operation(int rank, const TracedOperation& operation, std::int64_t ended_at) {
  if (is_full_) {
    ++left_out_;
    return;
  }
  const TraceTrack track = track_of_rank(rank, static_cast<int>(operation.group_index) + 1);
  GroupTrack& of_group = group_tracks_[track];
  if (of_group.name != *operation.group) {
    of_group.name = *operation.group;
    write_(trace_label("thread_name", track, "group " + of_group.name));
  }
  const bool is_over = operation.ended_ns != 0;
  const std::int64_t from = operation.started_ns != 0 ? operation.started_ns : operation.issued_ns;
  const std::int64_t to = is_over ? operation.ended_ns : ended_at;
  // One after the other, whatever became of the estimate meanwhile: viewers drop slices that overlap.
  const std::int64_t begin = std::max(in_timeline(from), of_group.last_end);
  const std::int64_t end = std::max(in_timeline(to), begin);
  of_group.last_end = end;
  const bool failed = operation.state == rendezvous::OperationState::Failed;
  rendezvous::JsonObject args;
  args.number("sequence", static_cast<std::int64_t>(operation.sequence));
  args.number("elements", static_cast<std::int64_t>(operation.count)).text("dtype", *operation.dtype);
  args.number("bytes", static_cast<std::int64_t>(operation.bytes));
  args.number("queued_us", (from - operation.issued_ns) / 1000);
  args.text("state", !is_over ? "the process ended in it" : failed ? "failed" : "ended");
  write_(trace_slice(rendezvous::quoted_json(*operation.operation), track, begin, end - begin, args.str()));
}

std::string Timeline::end(std::int64_t at) {
  while (!readers_.empty()) end_reader(at, readers_.begin()->first);
  while (!running_.empty()) worker_ended(at, *running_.begin(), "the trace ended", false);
  end_round(at);
  std::string missing;
  const auto add = [&missing](std::uint64_t count, const char* why) {
    if (count > 0) missing += (missing.empty() ? "" : "; ") + std::to_string(count) + why;
  };
  add(missed_, " collectives came too fast to be read");
  add(left_out_, " collectives are left out, since the file has 1 GiB");
  add(groups_left_out_, " groups are left out, since their process had too many");
  if (!missing.empty()) note(at, "not in this trace: " + missing);
  return missing;
}

}  // namespace ddp::launcher
