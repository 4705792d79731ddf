// SPDX-License-Identifier: BSD-3-Clause
// A worker's stdout or stderr on its way through ddprun: to the console, to its log file and to the
// file of filtered lines. The end of stderr is kept for the failure report. Used by the output
// thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/output/console_feed.hpp"
#include "launcher/output/sink.hpp"
#include "launcher/output/stream_route.hpp"
#include "launcher/text/lines.hpp"

namespace ddp::launcher {

// Number of lines at the end of each worker's stderr that are kept for the failure report.
inline constexpr std::size_t kTailLines = 20;

// Selects the lines of --duplicate-stdout-filters or --duplicate-stderr-filters, for one round.
struct LineFilter {
  std::vector<std::string> words;
  std::unique_ptr<Sink> file;

  bool matches(std::string_view line) const;
};

class WorkerStream {
 public:
  using Clock = ConsoleFeed::Clock;

  struct Settings {
    StreamRoute route;
    int writer;                  // the stream's number as a writer of sinks
    std::uint64_t round;         // a number that grows from round to round
    ConsoleFeed* console;        // not null if the route is shown
    std::unique_ptr<Sink> file;  // null if there is none or if the worker holds it itself
    LineFilter* filter;          // may be null
  };
  explicit WorkerStream(Settings settings);

  const StreamRoute& route() const { return route_; }
  // Returns whether bytes may be read from the worker now; see ConsoleFeed.
  bool may_take() const { return !shown_ || console_->may_take(*shown_); }

  void take(std::string_view bytes, Clock::time_point now);
  // Ends the stream, and with it a last line without a newline. The console may be given the rest
  // later.
  void finish();
  // Returns the last lines of stderr, from the worker's file if the worker holds that itself.
  std::vector<std::string> last_lines() const;
  // Returns the file that ddprun writes; null: none.
  const Sink* file() const { return file_.get(); }

 private:
  void keep_tail(std::string_view bytes);
  void filter(std::string_view text);

  StreamRoute route_;
  int writer_;
  ConsoleFeed* console_;
  ConsoleFeed::Stream* shown_;  // belongs to console_; null: the stream is not shown
  std::unique_ptr<Sink> file_;
  LineFilter* filter_;
  LineHolder filtered_;
  std::string tail_;
};

}  // namespace ddp::launcher
