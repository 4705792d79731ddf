// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/output/console_feed.hpp"

#include <algorithm>
#include <utility>

#include "launcher/text/lines.hpp"

namespace ddp::launcher {

bool ConsoleFeed::may_take(const Stream& stream) const {
  return stream.file.empty() ? !sink_.is_behind() : stream.backlog.is_in_file();
}

void ConsoleFeed::take(Stream& stream, std::string_view bytes, const Sink* log, Clock::time_point now) {
  if (sink_.is_gone()) {
    sink_.write(stream.writer, bytes);  // which counts what is lost
    return;
  }
  if (stream.file.empty() || (takes_now() && !stream.is_lagging)) return show(stream, bytes, now);
  const std::int64_t before = size_of(stream);
  // Bytes that follow some in memory stay in memory, in their order. Those are few: may_take() says no.
  if (log && stream.backlog.is_in_file()) {
    stream.backlog.add(bytes, *log);
  } else {
    stream.backlog.add_unwritten(bytes);
  }
  const auto added = static_cast<std::int64_t>(bytes.size());
  lagged_ += added;
  shown_ += before + added - size_of(stream);  // 0, unless a truncated file is replaced by a line about it
  if (!stream.is_lagging) lag(stream);
}

void ConsoleFeed::end(Stream& stream) {
  stream.has_ended = true;
  if (stream.is_lagging) return;
  if (!stream.file.empty() && !takes_now() && !sink_.is_gone()) return lag(stream);
  finish(stream);
}

void ConsoleFeed::write_line(std::string text) {
  if (lagging_.empty() || sink_.is_gone()) {
    sink_.write(kOwnLines, text);
  } else {
    own_lines_.push_back({std::move(text), lagged_});
  }
}

std::optional<ConsoleFeed::Clock::time_point> ConsoleFeed::due(Clock::time_point now) const {
  if (sink_.is_behind()) return std::nullopt;  // until it takes more
  if (!lagging_.empty()) return now;
  std::optional<Clock::time_point> soonest;
  for (const Stream* stream : parts_) {
    const auto due = part_due(*stream);
    if (due && (!soonest || *due < *soonest)) soonest = due;
  }
  return soonest;
}

void ConsoleFeed::show(Clock::time_point now) {
  if (sink_.is_gone()) drop_all();
  if (was_behind_) takes_since_ = now;
  show_parts(now);
  const std::int64_t until = shown_ + kTurn;
  while (!lagging_.empty() && !sink_.is_behind() && shown_ < until) {
    show_own_lines();
    if (!sink_.is_behind()) show_next(now);
  }
  if (lagging_.empty()) show_own_lines();
  was_behind_ = sink_.is_behind();
}

void ConsoleFeed::show_next(Clock::time_point now) {
  Stream& stream = *lagging_.front();
  lagging_.pop_front();
  stream.is_lagging = false;
  const std::int64_t before = size_of(stream);
  show(stream, stream.backlog.take(kChunk), now);
  shown_ += before - size_of(stream);
  if (!stream.backlog.is_empty()) {
    lag(stream);
  } else if (stream.has_ended) {
    finish(stream);
  }
}

// Adds the stream behind all others of its round.
void ConsoleFeed::lag(Stream& stream) {
  const auto later =
      std::find_if(lagging_.begin(), lagging_.end(), [&](const Stream* other) { return other->round > stream.round; });
  lagging_.insert(later, &stream);
  stream.is_lagging = true;
}

void ConsoleFeed::show(Stream& stream, std::string_view bytes, Clock::time_point now) {
  if (!stream.lines) {
    sink_.write(stream.writer, bytes);
    return;
  }
  stream.lines->take(now, bytes, sink_.has_open_line_of(stream.writer),
                     [&](std::string_view text) { sink_.write(stream.writer, text, stream.file); });
  if (stream.lines->due() && !std::exchange(stream.has_part, true)) parts_.push_back(&stream);
}

// A part waits after the console was behind, too: meanwhile its worker may not have been read.
std::optional<ConsoleFeed::Clock::time_point> ConsoleFeed::part_due(const Stream& stream) const {
  const auto due = stream.lines->due();
  return due ? std::optional(std::max(*due, takes_since_ + LineAssembler::kPartAfter)) : std::nullopt;
}

void ConsoleFeed::show_part(Stream& stream) {
  if (!stream.lines) return;
  stream.lines->show_part(sink_.has_open_line_of(stream.writer),
                          [&](std::string_view text) { sink_.write(stream.writer, text, stream.file); });
}

void ConsoleFeed::show_parts(Clock::time_point now) {
  std::erase_if(parts_, [&](Stream* stream) {
    if (sink_.is_behind()) return false;
    const auto due = part_due(*stream);
    if (due && *due > now) return false;
    if (due && stream->is_lagging) return false;  // its rest may be there
    if (due) show_part(*stream);
    stream->has_part = false;
    return true;
  });
}

void ConsoleFeed::show_own_lines() {
  while (!own_lines_.empty() && (lagging_.empty() || own_lines_.front().after <= shown_)) {
    sink_.write(kOwnLines, own_lines_.front().text);
    own_lines_.pop_front();
  }
}

void ConsoleFeed::finish(Stream& stream) {
  show_part(stream);
  forget(stream);
}

void ConsoleFeed::forget(const Stream& stream) {
  std::erase(parts_, &stream);
  streams_.remove_if([&](const Stream& other) { return &other == &stream; });
}

void ConsoleFeed::drop_all() {
  own_lines_.clear();
  for (Stream* stream : std::exchange(lagging_, {})) {
    shown_ += size_of(*stream);
    stream->backlog = Backlog(stream->file);
    stream->is_lagging = false;
    if (stream->has_ended) forget(*stream);
  }
}

ConsoleFeed::Unshown ConsoleFeed::give_up() {
  Unshown unshown;
  const auto [lines_in_file, file, other_lines] = sink_.drop_pending();
  unshown.lines_in_files = lines_in_file;
  if (lines_in_file > 0) unshown.files.insert(file);
  unshown.other_lines = other_lines;
  for (const Stream* stream : lagging_) {
    const bool is_in_part = stream->backlog.is_empty() && stream->lines && stream->lines->due();
    const std::size_t in_file = stream->backlog.lines_in_file() + (is_in_part ? 1 : 0);
    unshown.lines_in_files += in_file;
    if (in_file > 0) unshown.files.insert(stream->file);
    unshown.other_lines += stream->backlog.lines_in_memory();
  }
  for (const OwnLine& line : own_lines_) unshown.other_lines += count_lines(line.text);
  drop_all();
  return unshown;
}

}  // namespace ddp::launcher
