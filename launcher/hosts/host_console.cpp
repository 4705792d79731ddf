// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/hosts/host_console.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace ddp::launcher {
namespace {

bool are_one_file(int a, int b) {
  struct stat of_a = {}, of_b = {};
  return fstat(a, &of_a) == 0 && fstat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

LineAssembler::Style style_of(const std::string& prefix, bool on_terminal) {
  using Form = LineAssembler::Form;
  return {.form = prefix.empty() ? Form::Whole : Form::Prefixed, .prefix = prefix, .on_terminal = on_terminal};
}

}  // namespace

HostConsole::HostConsole(const std::vector<std::string>& names)
    : out_(STDOUT_FILENO, "stdout", [this](const std::string& line) { say(line); }) {
  if (!are_one_file(STDOUT_FILENO, STDERR_FILENO)) err_.emplace(STDERR_FILENO, "stderr", [](const auto&) {});
  out_streams_.resize(names.size());
  err_streams_.resize(names.size());
  for (const std::string& name : names) {
    prefixes_.push_back(names.size() == 1 ? "" : name + ": ");
    open(prefixes_.size() - 1);
  }
}

void HostConsole::open(std::size_t host) {
  for (const Stream stream : {Stream::Out, Stream::Err}) {
    ConsoleFeed& feed = feed_of(stream);
    auto& streams = stream == Stream::Out ? out_streams_ : err_streams_;
    streams[host] = feed.open({.writer = ++writers_,
                               .round = 1,
                               .file = "",
                               .lines = LineAssembler(style_of(prefixes_[host], feed.sink().is_terminal()))});
  }
}

bool HostConsole::may_take() const { return !out_.sink().is_behind() && !(err_ && err_->sink().is_behind()); }

void HostConsole::take(std::size_t host, Stream stream, std::string_view bytes) {
  ConsoleFeed::Stream* const to = (stream == Stream::Out ? out_streams_ : err_streams_)[host];
  if (to) feed_of(stream).take(*to, bytes, nullptr, Clock::now());
}

void HostConsole::end(std::size_t host) {
  if (auto* const stream = std::exchange(out_streams_[host], nullptr)) out_.end(*stream);
  if (auto* const stream = std::exchange(err_streams_[host], nullptr)) feed_of(Stream::Err).end(*stream);
}

void HostConsole::begin_again(std::size_t host) {
  end(host);
  open(host);
}

void HostConsole::say(const std::string& line) { feed_of(Stream::Err).write_line("ddprun: " + line + "\n"); }

void HostConsole::flush() {
  for (ConsoleFeed* feed : {&out_, err_ ? &*err_ : nullptr}) {
    if (!feed) continue;
    if (feed->sink().is_behind()) feed->sink().flush();
    feed->show(Clock::now());
  }
}

std::optional<HostConsole::Clock::time_point> HostConsole::due() const {
  auto soonest = out_.due(Clock::now());
  const auto other = err_ ? err_->due(Clock::now()) : std::nullopt;
  if (other && (!soonest || *other < *soonest)) soonest = other;
  return soonest;
}

bool HostConsole::has_unshown() const { return out_.has_unshown() || (err_ && err_->has_unshown()); }

std::size_t HostConsole::give_up() {
  const auto lines = [](const ConsoleFeed::Unshown& unshown) { return unshown.lines_in_files + unshown.other_lines; };
  return lines(out_.give_up()) + (err_ ? lines(err_->give_up()) : 0);
}

}  // namespace ddp::launcher
