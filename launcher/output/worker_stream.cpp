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
constexpr std::size_t kMostFilteredAtOnce = 16 << 20;  // a longer line is filtered in pieces

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

// Returns what assembles the lines that the console shows; none: bytes are shown as they come.
std::optional<LineAssembler> assembler(const StreamRoute& route, const Sink& console) {
  if (route.lines == StreamRoute::Lines::AsWritten) return std::nullopt;
  const bool is_teed = route.lines == StreamRoute::Lines::Teed;
  return LineAssembler({.form = is_teed ? LineAssembler::Form::Prefixed : LineAssembler::Form::Whole,
                        .prefix = route.prefix,
                        .on_terminal = console.is_terminal()});
}

}  // namespace

bool LineFilter::matches(std::string_view line) const {
  return std::any_of(words.begin(), words.end(),
                     [&](const std::string& word) { return line.find(word) != std::string_view::npos; });
}

WorkerStream::WorkerStream(Settings settings)
    : route_(std::move(settings.route)),
      writer_(settings.writer),
      console_(settings.console),
      shown_(console_ ? console_->open({.writer = writer_,
                                        .round = settings.round,
                                        .file = settings.file ? route_.file : "",
                                        .lines = assembler(route_, console_->sink())})
                      : nullptr),
      file_(std::move(settings.file)),
      filter_(route_.lines == StreamRoute::Lines::Teed && shown_ ? settings.filter : nullptr),
      filtered_(kMostFilteredAtOnce) {}

void WorkerStream::take(std::string_view bytes, Clock::time_point now) {
  if (route_.console == Console::Stderr) keep_tail(bytes);
  const bool is_in_file = file_ && file_->write(writer_, bytes);
  if (filter_) filtered_.take(bytes, [this](std::string_view text) { filter(text); });
  if (shown_) console_->take(*shown_, bytes, is_in_file ? file_.get() : nullptr, now);
}

void WorkerStream::finish() {
  if (filter_) filtered_.finish([this](std::string_view text) { filter(text); });
  if (shown_) console_->end(*std::exchange(shown_, nullptr));
}

std::vector<std::string> WorkerStream::last_lines() const {
  const bool held_by_worker = !route_.file.empty() && !file_;
  return held_by_worker ? last_lines_of_file(route_.file) : launcher::last_lines(tail_, kTailLines, kTailWidth);
}

void WorkerStream::keep_tail(std::string_view bytes) {
  tail_.append(bytes);  // all: what goes before may be short once overwritten text is forgotten
  if (tail_.size() <= 2 * kTailBytes) return;
  forget_overwritten(tail_);
  tail_.erase(0, tail_.size() - std::min(tail_.size(), kTailBytes));
}

void WorkerStream::filter(std::string_view text) {
  std::string matching;
  for_each_line(text, [&](std::string_view line, bool) {
    if (filter_->matches(line)) matching.append(route_.prefix).append(line).append("\n");
  });
  filter_->file->write(writer_, matching);
}

}  // namespace ddp::launcher
