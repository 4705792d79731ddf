// SPDX-License-Identifier: BSD-3-Clause
// Events of the Chrome/Perfetto JSON trace format, one a line. A file is "[", these lines, and "]"; the format lets the
// end be missing, so that a job that was killed leaves a file that loads.
//
//     {"name":"all_reduce","ph":"X","ts":1234.567,"dur":12.000,"pid":3,"tid":1,"args":{"sequence":412}},
//
// Times are in microseconds. "pid" and "tid" name tracks, not processes: rank R is at R + 1, node N at kNodeTracks + N,
// so that a rank keeps its track when a restart moves it to another process or node.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ddp::launcher {

inline constexpr int kNodeTracks = 1'000'000;

struct TraceTrack {
  int process = 0;
  int thread = 0;
  bool operator<(const TraceTrack& other) const {
    return process != other.process ? process < other.process : thread < other.thread;
  }
};

inline TraceTrack track_of_rank(int rank, int thread = 0) { return {rank + 1, thread}; }
inline TraceTrack track_of_node(int node_rank, int thread = 0) { return {kNodeTracks + node_rank, thread}; }

// `args` is a JSON object, or empty. Each returns a line with its comma and newline.
std::string trace_begin(std::string_view name, TraceTrack track, std::int64_t ns, std::string_view args = "");
std::string trace_end(TraceTrack track, std::int64_t ns, std::string_view args = "");
std::string trace_instant(std::string_view name, TraceTrack track, std::int64_t ns, std::string_view args = "");
// `quoted_name` is a JSON string already: a job has millions of these, and few names.
std::string trace_slice(std::string_view quoted_name, TraceTrack track, std::int64_t ns, std::int64_t duration_ns,
                        std::string_view args);
// `what` is "process_name", "process_labels" or "thread_name".
std::string trace_label(std::string_view what, TraceTrack track, std::string_view text);
// Where the track's process stands among the others.
std::string trace_order(TraceTrack track, int index);

}  // namespace ddp::launcher
