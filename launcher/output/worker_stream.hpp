// SPDX-License-Identifier: BSD-3-Clause
// A worker's stdout or stderr on its way through ddprun: to the console, to its log file and to the
// file of filtered lines. The end of stderr is kept for the failure report. Used by the output
// thread only.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/output/sink.hpp"
#include "launcher/output/stream_route.hpp"
#include "launcher/text/lines.hpp"

namespace ddp::launcher {

// A longer line is written to the console in pieces, each a line of its own, between which other
// lines may come. This bounds the memory that a worker without newlines can take. Log files have
// every byte in its place.
inline constexpr std::size_t kMaxHeldBytes = 16 << 20;
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
  // `writer` is the stream's number as a writer of sinks. `console` is not null if the route is
  // shown. `file` is null if there is none or if the worker holds it itself. `filter` may be null.
  WorkerStream(StreamRoute route, int writer, Sink* console, std::unique_ptr<Sink> file, LineFilter* filter);

  const StreamRoute& route() const { return route_; }
  // Returns whether bytes may be read from the worker now. While its console is behind they may
  // not, which slows the worker down to the console's pace; but a stuck console does not stop a
  // worker that has a log file too.
  bool may_take() const;

  void take(std::string_view bytes);
  // Ends the stream, and with it a last line without a newline.
  void finish();
  // Returns the last lines of stderr, from the worker's file if the worker holds that itself.
  std::vector<std::string> last_lines() const;

 private:
  void show(std::string_view text);
  void show_teed(std::string_view text);
  void put_on_console(std::string_view text);

  StreamRoute route_;
  int writer_;
  Sink* console_;
  std::unique_ptr<Sink> file_;
  LineFilter* filter_;
  std::optional<LineHolder> lines_;  // none: bytes go to the console as they come
  std::string tail_;
};

}  // namespace ddp::launcher
