// SPDX-License-Identifier: BSD-3-Clause
// Brings workers' streams and ddprun's own lines to one console, at the pace of its reader.
//
// A stream that has a log file never waits for the console: what the console did not take in time
// is read back from the file, so that memory stays bounded and nothing is lost. Such a stream
// "lags", and lagging streams take turns, those of an earlier round first. A stream without a log
// file is read only while the console takes its bytes, which slows its worker down. ddprun's own
// lines are few: they wait in memory until what was there before them is shown.
//
// Used by the output thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/output/backlog.hpp"
#include "launcher/output/line_assembler.hpp"
#include "launcher/output/sink.hpp"

namespace ddp::launcher {

class ConsoleFeed {
 public:
  using Clock = LineAssembler::Clock;

  ConsoleFeed(int fd, const std::string& name, Sink::Logger log)
      : sink_(fd, Sink::Kind::Console, name, std::move(log)) {}

  const Sink& sink() const { return sink_; }
  Sink& sink() { return sink_; }

  // A stream of a worker. Once it is open, only this class uses its members.
  struct Stream {
    int writer;                          // its number as a writer of sinks
    std::uint64_t round;                 // a number that grows from round to round
    std::string file;                    // path of its log file; empty: none
    std::optional<LineAssembler> lines;  // none: bytes are shown as they come
    Backlog backlog{file};
    bool has_ended = false;
    bool is_lagging = false;  // it is in lagging_
    bool has_part = false;    // it is in parts_
  };
  // Adds a stream. It stays until end() was called and all of it is shown.
  Stream* open(Stream stream) { return &streams_.emplace_back(std::move(stream)); }
  // Returns whether bytes may be read from the worker now.
  bool may_take(const Stream& stream) const;
  // Takes bytes of the stream. `log` has written them to its file; null: they are in no file.
  void take(Stream& stream, std::string_view bytes, const Sink* log, Clock::time_point now);
  // Ends the stream, and with it a last line without a newline.
  void end(Stream& stream);

  // Shows a line of ddprun's own, which ends with a newline.
  void write_line(std::string text);

  bool has_unshown() const { return sink_.is_behind() || !lagging_.empty(); }
  // Returns when show() has something to do although nothing else happens.
  std::optional<Clock::time_point> due(Clock::time_point now) const;
  // Shows parts of lines that are due and what lags, while the console takes it.
  void show(Clock::time_point now);

  // What the console was never given.
  struct Unshown {
    std::size_t lines_in_files = 0;
    std::set<std::string> files{};
    std::size_t other_lines = 0;  // these are in no file
  };
  // Drops what is not shown.
  Unshown give_up();

 private:
  static constexpr std::size_t kChunk = 128 << 10;  // bytes that are read back for a stream's turn
  static constexpr std::int64_t kTurn = 4 << 20;    // bytes that are shown before workers are read again
  static constexpr int kOwnLines = 0;               // number of ddprun as a writer; workers' streams count from 1

  struct OwnLine {
    std::string text;
    std::int64_t after;  // the value of shown_ from which it is its turn
  };

  static std::int64_t size_of(const Stream& stream) { return static_cast<std::int64_t>(stream.backlog.size()); }
  bool takes_now() const { return !sink_.is_behind() && lagging_.empty(); }
  void show(Stream& stream, std::string_view bytes, Clock::time_point now);
  std::optional<Clock::time_point> part_due(const Stream& stream) const;
  void show_part(Stream& stream);
  void show_parts(Clock::time_point now);
  void show_own_lines();
  void show_next(Clock::time_point now);
  void lag(Stream& stream);
  void finish(Stream& stream);
  void forget(const Stream& stream);
  void drop_all();

  Sink sink_;
  std::list<Stream> streams_;
  std::deque<Stream*> lagging_;      // in the order of their turns
  std::vector<Stream*> parts_;       // streams with a part of a line that will be due
  bool was_behind_ = false;          // after the last show()
  Clock::time_point takes_since_{};  // when the console was found to be behind no more
  std::deque<OwnLine> own_lines_;
  std::int64_t lagged_ = 0;  // bytes that were ever added to a backlog
  std::int64_t shown_ = 0;   // those of them that are not there any more
};

}  // namespace ddp::launcher
