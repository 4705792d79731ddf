// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/output/trace/trace_event.hpp"

#include "rendezvous/wire/json_text.hpp"

namespace ddp::launcher {
namespace {

// Appends nanoseconds as microseconds with three digits behind the point.
void append_microseconds(std::string& line, std::int64_t ns) {
  if (ns < 0) line += '-';
  const std::uint64_t size = ns < 0 ? 0 - static_cast<std::uint64_t>(ns) : static_cast<std::uint64_t>(ns);
  const std::string digits = std::to_string(1000 + size % 1000);
  line.append(std::to_string(size / 1000)).append(".").append(digits, 1, 3);
}

std::string event(std::string_view quoted_name, std::string_view phase, TraceTrack track) {
  std::string line = "{\"name\":";
  line.append(quoted_name).append(",\"ph\":\"").append(phase).append("\",\"pid\":");
  return line.append(std::to_string(track.process)).append(",\"tid\":").append(std::to_string(track.thread));
}

std::string ended(std::string line, std::string_view args) {
  if (!args.empty()) line.append(",\"args\":").append(args);
  return line.append("},\n");
}

std::string timed(std::string line, std::int64_t ns) {
  line += ",\"ts\":";
  append_microseconds(line, ns);
  return line;
}

}  // namespace

std::string trace_begin(std::string_view name, TraceTrack track, std::int64_t ns, std::string_view args) {
  return ended(timed(event(rendezvous::quoted_json(name), "B", track), ns), args);
}

std::string trace_end(TraceTrack track, std::int64_t ns, std::string_view args) {
  return ended(timed(event("\"\"", "E", track), ns), args);
}

std::string trace_instant(std::string_view name, TraceTrack track, std::int64_t ns, std::string_view args) {
  return ended(timed(event(rendezvous::quoted_json(name), "i", track), ns) + ",\"s\":\"p\"", args);
}

std::string trace_slice(std::string_view quoted_name, TraceTrack track, std::int64_t ns, std::int64_t duration_ns,
                        std::string_view args) {
  std::string line = timed(event(quoted_name, "X", track), ns) + ",\"dur\":";
  append_microseconds(line, duration_ns);
  return ended(std::move(line), args);
}

std::string trace_label(std::string_view what, TraceTrack track, std::string_view text) {
  const char* const member = what == "process_labels" ? "labels" : "name";
  return ended(event(rendezvous::quoted_json(what), "M", track), rendezvous::JsonObject().text(member, text).str());
}

std::string trace_order(TraceTrack track, int index) {
  return ended(event("\"process_sort_index\"", "M", track), rendezvous::JsonObject().number("sort_index", index).str());
}

}  // namespace ddp::launcher
