// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/output/worker_stream.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace ddp::launcher {

namespace {

constexpr std::size_t kTailBytes = 32 << 10;   // bytes that are searched for the last lines
constexpr off_t kMaxFileTailBytes = 16 << 20;  // and at most, at the end of a file
constexpr std::size_t kTailWidth = 1000;
constexpr std::size_t kLongLine = 64 << 10;

std::string_view end_of(std::string_view text) { return text.substr(text.size() - std::min(text.size(), kTailBytes)); }

std::string end_of_file(int fd, off_t size) {
  std::string bytes(static_cast<std::size_t>(size), '\0');
  const ssize_t read = pread(fd, bytes.data(), bytes.size(), lseek(fd, 0, SEEK_END) - size);
  bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(0, read)));
  return bytes;
}

// Reads further and further back until there are enough lines, since a file contains every state of
// a progress bar.
std::vector<std::string> last_lines_of_file(const std::string& path) {
  std::vector<std::string> lines;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return lines;
  const off_t whole = std::min<off_t>(lseek(fd, 0, SEEK_END), kMaxFileTailBytes);
  for (off_t size = kTailBytes; lines.size() < kTailLines; size *= 8) {
    lines = last_lines(end_of_file(fd, std::min(size, whole)), kTailLines, kTailWidth);
    if (size >= whole) break;
  }
  close(fd);
  return lines;
}

LineHolder::Ends ends_of_lines(StreamRoute::Lines lines, const Sink& console) {
  if (lines == StreamRoute::Lines::Teed) return LineHolder::Ends::UniversalNewline;
  return console.is_terminal() ? LineHolder::Ends::Terminal : LineHolder::Ends::Newline;
}

}  // namespace

bool LineFilter::matches(std::string_view line) const {
  return std::any_of(words.begin(), words.end(),
                     [&](const std::string& word) { return line.find(word) != std::string_view::npos; });
}

WorkerStream::WorkerStream(StreamRoute route, int writer, Sink* console, std::unique_ptr<Sink> file, LineFilter* filter)
    : route_(std::move(route)), writer_(writer), console_(console), file_(std::move(file)), filter_(filter) {
  if (console_ && route_.lines != StreamRoute::Lines::AsWritten) {
    lines_.emplace(ends_of_lines(route_.lines, *console_), kMaxHeldBytes);
  }
}

bool WorkerStream::may_take() const { return !console_ || !console_->is_behind() || (file_ && console_->is_stuck()); }

void WorkerStream::take(std::string_view bytes) {
  if (route_.console == Console::Stderr) {
    tail_.append(end_of(bytes));
    if (tail_.size() > 2 * kTailBytes) {
      forget_overwritten(tail_);
      tail_.erase(0, tail_.size() - std::min(tail_.size(), kTailBytes));
    }
  }
  if (file_) file_->write(writer_, bytes);
  if (lines_) {
    lines_->take(bytes, [this](std::string_view text) { show(text); });
  } else if (console_) {
    show(bytes);
  }
}

void WorkerStream::finish() {
  if (lines_) lines_->finish([this](std::string_view text) { show(text); });
}

std::vector<std::string> WorkerStream::last_lines() const {
  const bool held_by_worker = !route_.file.empty() && !file_;
  return held_by_worker ? last_lines_of_file(route_.file) : launcher::last_lines(tail_, kTailLines, kTailWidth);
}

void WorkerStream::show(std::string_view text) {
  if (route_.lines == StreamRoute::Lines::Teed) return show_teed(text);
  console_->write(writer_, text);
}

void WorkerStream::show_teed(std::string_view text) {
  std::string shown, filtered;
  const auto flush = [&] {
    put_on_console(shown);
    shown.clear();
  };
  bool goes_on = console_->has_open_line_of(writer_);  // a piece of a line whose beginning has been written
  for_each_line(text, [&](std::string_view line, bool ended) {
    if (!std::exchange(goes_on, false)) shown += route_.prefix;
    if (line.size() > kLongLine) {  // long lines are not copied again
      flush();
      put_on_console(line);
    } else {
      shown += line;
    }
    if (ended) shown += '\n';
    if (filter_ && filter_->matches(line)) filtered.append(route_.prefix).append(line).append("\n");
  });
  flush();
  if (filter_) filter_->file->write(writer_, filtered);
}

void WorkerStream::put_on_console(std::string_view text) {
  if (file_) {
    console_->write_spare(writer_, text);
  } else {
    console_->write(writer_, text);
  }
}

}  // namespace ddp::launcher
