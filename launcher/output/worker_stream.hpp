// SPDX-License-Identifier: BSD-3-Clause
// What one worker writes to stdout or stderr, on its way through ddprun: to the console, to its log file, to the file
// of filtered lines, and, of stderr, the end of it into the failure report. Used by the output thread only.
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

// On the console a line longer than this is written in pieces, between which other lines may come; each is then a line
// of its own. It bounds what workers without newlines can make us hold. Log files have every byte in its place.
inline constexpr std::size_t kMaxHeldBytes = 16 << 20;
// Of each worker's stderr, kept for the failure report.
inline constexpr std::size_t kTailLines = 20;

// --duplicate-stdout-filters, --duplicate-stderr-filters, for one round.
struct LineFilter {
  std::vector<std::string> words;
  std::unique_ptr<Sink> file;

  bool matches(std::string_view line) const;
};

class WorkerStream {
 public:
  // writer: its number among those of the sinks. console: not null if the route is shown. file: null if there is none,
  // or if the worker holds it itself. filter: may be null.
  WorkerStream(StreamRoute route, int writer, Sink* console, std::unique_ptr<Sink> file, LineFilter* filter);

  const StreamRoute& route() const { return route_; }
  // May its bytes be taken now? Not while its console is behind, so that the worker is slowed down to what the console
  // takes; but a stuck one does not hold back what is in a log file too.
  bool may_take() const;

  void take(std::string_view bytes);
  // Nothing more comes: the last line may have no end.
  void finish();
  // Of stderr; if the worker wrote into a file itself, that file's.
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
