// SPDX-License-Identifier: BSD-3-Clause
// The head's stdout and stderr, which get whole lines of all hosts. A host whose console is slow is not read meanwhile,
// so that its workers wait, as they do for a slow console of their own.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/output/console_feed.hpp"

namespace ddp::launcher {

class HostConsole {
 public:
  using Clock = ConsoleFeed::Clock;
  enum class Stream { Out, Err };

  // `names` stand before the lines of the hosts; none does if there is one host.
  explicit HostConsole(const std::vector<std::string>& names);

  bool may_take() const;
  void take(std::size_t host, Stream stream, std::string_view bytes);
  void end(std::size_t host);
  // Ends the lines of the host's process. Another one follows.
  void begin_again(std::size_t host);
  void say(const std::string& line);  // writes a line as ddprun

  // The descriptors that poll() reports when flush() can go on; -1: nothing waits.
  int waiting_out() const { return waiting(out_); }
  int waiting_err() const { return err_ ? waiting(*err_) : -1; }
  void flush();
  std::optional<Clock::time_point> due() const;
  bool has_unshown() const;
  // Returns the number of lines that nobody has taken, and drops them.
  std::size_t give_up();

 private:
  static int waiting(const ConsoleFeed& feed) { return feed.sink().is_behind() ? feed.sink().writable_fd() : -1; }
  void open(std::size_t host);
  ConsoleFeed& feed_of(Stream stream) { return stream == Stream::Err && err_ ? *err_ : out_; }

  ConsoleFeed out_;
  std::optional<ConsoleFeed> err_;     // none: both are one file
  std::vector<std::string> prefixes_;  // by host, what stands before its lines
  int writers_ = 0;
  std::vector<ConsoleFeed::Stream*> out_streams_, err_streams_;
};

}  // namespace ddp::launcher
