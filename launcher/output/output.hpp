// SPDX-License-Identifier: BSD-3-Clause
// What workers print, and ddprun's own lines, to ddprun's stdout and stderr and to log files: whole lines, never mixed
// inside.
//
//     worker ── pipe, or pty if ours is a terminal ──▶ [ output thread: lines ] ──▶ stdout / stderr
//        │                                                        └─────────────▶ stdout.log, filtered_stdout.log, …
//        └──── only redirected: holds its log file itself
//
// One thread owns the reading and writing; everybody else posts to it. A console that is slow slows the workers that
// write to it. One that takes nothing for a second holds no teed worker back: the console misses what the file has, and
// says so. A console that is gone ends the output, not the job: what workers write is then read and dropped. So does a
// log file that cannot be written; it is said once. A single worker's bytes are passed on as they come. '\r' on a
// terminal ends a line (progress bars). Streams belong to a round; end_round closes them.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launcher/config/log_config.hpp"
#include "launcher/output/stream_route.hpp"
#include "rendezvous/base/descriptor.hpp"

namespace ddp::launcher {

class Output {
 public:
  // log: called at most once, on any thread, when something cannot be written; it may call write_line.
  explicit Output(std::function<void(const std::string&)> log);
  // Writes what is left, for as long as the console takes something at least this often, or until one of SIGTERM,
  // SIGINT, SIGHUP, SIGQUIT is pending, blocked. What is lost then is said on stderr.
  static constexpr std::chrono::seconds kFinalFlush{30};
  ~Output();
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  // Teed lines with one of `words` go into the file `path` as well, until the end of the round.
  void filter_lines(Console console, const std::string& path, const std::vector<std::string>& words);

  // What a worker's stdout or stderr becomes (close-on-exec; the caller closes it after the fork). If the
  // file of the route cannot be opened, what would be there is on the console. Throws rendezvous::Error if there are no
  // descriptors left.
  rendezvous::Descriptor open_stream(const StreamRoute& route);
  // What is opened is read from now on: the thread is woken for all of it at once.
  void begin_round();

  // ddprun's own lines; text without its final newline. Does not block.
  void write_line(Console console, std::string text);

  // The file that write_event appends to. Throws rendezvous::Error if it cannot be opened.
  void open_events(const std::string& path);
  // Dropped if there is no such file.
  void write_event(std::string line);

  // The round's processes are gone: reads what they left in their pipes, ends unfinished lines, closes the streams.
  // Returns what each local rank said last on stderr. Waits at most `deadline`, if the console is one that blocks.
  struct LastWords {
    std::vector<std::string> lines;
    std::string log;  // the file that has all of it; empty: none
  };
  std::vector<LastWords> end_round(std::chrono::milliseconds deadline);

  // The terminal changed its size: so do the workers' ptys.
  void resize();

 private:
  class Thread;
  std::unique_ptr<Thread> thread_;
};

}  // namespace ddp::launcher
