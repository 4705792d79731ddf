// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/link/failures.hpp"

#include <algorithm>
#include <string_view>

namespace ddp::rendezvous {

namespace {

// Failures sent to each of `nodes` nodes: 4096 in all, but never fewer than 32.
constexpr std::size_t kFailuresTold = 4096, kFailuresToldEach = 32;
// Their text in bytes: what each node gets at least, and all nodes together.
constexpr std::size_t kTextToldEach = 16 << 10, kTextTold = 64 << 20;
constexpr std::size_t kLineBytes = 200;
constexpr std::size_t kRecordersTold = 16;  // file names of flight recorders

bool continues_character(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

// Returns the nearest end of a UTF-8 character at or before `end`.
std::size_t whole(std::string_view text, std::size_t end) {
  while (end > 0 && end < text.size() && continues_character(text[end])) --end;
  return end;
}

// Returns the line that says what happened: the last line of a Python traceback, else the first line.
std::string_view telling_line(std::string_view message) {
  constexpr std::string_view kBlank = " \n";
  const auto last = message.find_last_not_of(kBlank);
  if (last == std::string_view::npos) return "";
  message = message.substr(message.find_first_not_of(kBlank), last + 1 - message.find_first_not_of(kBlank));
  if (message.starts_with("Traceback (")) return message.substr(message.rfind('\n') + 1);
  return message.substr(0, message.find('\n'));
}

}  // namespace

std::size_t text_bytes(const WorkerFailure& failure) {
  std::size_t bytes = failure.message.size() + failure.error_record.size() + failure.hint.size();
  for (const std::string& line : failure.stderr_tail) bytes += line.size();
  return bytes;
}

void forget_text(WorkerFailure& failure) {
  failure.message.clear();
  failure.error_record.clear();
  failure.hint.clear();
  failure.stderr_tail.clear();
}

std::string describe_with_message(const WorkerFailure& failure) {
  std::string_view line = telling_line(failure.message);
  if (line.empty() && !failure.stderr_tail.empty()) line = failure.stderr_tail.back();
  std::string text = describe(failure);
  if (line.empty() || text.ends_with(line)) return text;  // "... was killed by SIGABRT" has no need of "SIGABRT"
  text.append(": ").append(line.substr(0, whole(line, kLineBytes)));
  return line.size() > kLineBytes ? text + " [...]" : text;
}

std::string shortened(const std::string& text, std::size_t bytes) {
  if (text.size() <= bytes) return text;
  const std::size_t head = whole(text, bytes / 4);
  const std::size_t tail = whole(text, text.size() - (bytes - head));
  return text.substr(0, head) + "\n[" + std::to_string(tail - head) + " bytes left out]\n" + text.substr(tail);
}

void keep_within_link(std::vector<WorkerFailure>& failures) {
  std::size_t left = kMaxFailuresBytes;
  for (const bool stopped : {false, true}) {
    for (WorkerFailure& failure : failures) {
      if (failure.stopped_by_ddprun != stopped) continue;
      failure.message = shortened(failure.message, kMaxMessageBytes);
      if (failure.error_record.size() > kMaxMessageBytes) failure.error_record.clear();
      if (text_bytes(failure) > left) {
        failure.error_record.clear();
        failure.stderr_tail.clear();
        const std::string_view line = telling_line(failure.message);
        failure.message = std::string(line.substr(0, whole(line, kLineBytes)));
        if (text_bytes(failure) > left) failure.message.clear();
      }
      left -= std::min(left, text_bytes(failure));
    }
  }
}

std::vector<WorkerFailure> worth_telling(std::vector<WorkerFailure> failures, std::size_t nodes) {
  nodes = std::max<std::size_t>(nodes, 1);
  const std::size_t limit = std::max(kFailuresToldEach, kFailuresTold / nodes);
  std::stable_partition(failures.begin(), failures.end(), [](const WorkerFailure& f) { return !f.stopped_by_ddprun; });
  if (failures.size() > limit) failures.resize(limit);
  const std::size_t text = std::clamp(kTextTold / nodes, kTextToldEach, kMaxFailuresBytes);
  const std::size_t each = std::min(kMaxMessageBytes, text / std::max<std::size_t>(failures.size(), 1));
  std::size_t recorders = 0;
  for (WorkerFailure& failure : failures) {
    if (!failure.flight_recorder.empty() && ++recorders > kRecordersTold) failure.flight_recorder.clear();
    failure.stderr_tail.clear();
    failure.error_record.clear();
    failure.hint.clear();
    failure.message = shortened(failure.message, each);
  }
  return failures;
}

}  // namespace ddp::rendezvous
