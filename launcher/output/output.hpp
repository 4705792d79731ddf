// SPDX-License-Identifier: BSD-3-Clause
// Writes workers' output and ddprun's own lines to ddprun's stdout and stderr and to log files, in
// whole lines.
//
//     worker ── pipe, or pty if ours is a terminal ──▶ [ output thread ] ──▶ stdout / stderr
//        │                                                 │      ▲ what a slow console missed
//        │                                                 └──▶ stdout.log, filtered_stdout.log, …
//        └──── only redirected: holds its log file itself
//
// One thread reads and writes; all other threads post requests to it. Nothing is lost because a
// console is slow. A worker whose stream is teed goes on: the console gets the rest from the log
// file (ConsoleFeed). A worker whose stream is on the console only is slowed down. If stdout and
// stderr are one file, one feed serves both. If a console is closed, its output is read and
// dropped. A file that cannot be written is reported once, and at the end of the round with the
// number of lines that it lacks. The job goes on in either case. The bytes of a single worker are
// passed on as they come; other lines are assembled by LineAssembler. Streams belong to a round;
// end_round() closes them.
#pragma once

#include <chrono>
#include <cstdint>
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
  // `log` is called, on any thread, when something cannot be written. It may call write_line().
  // `owner` is a descriptor that is readable once nobody waits for this process any more; -1: none.
  explicit Output(std::function<void(const std::string&)> log, int owner = -1);
  // The destructor writes what is left, and waits for the consoles as long as they are there. The
  // wait ends a moment after SIGTERM, SIGINT, SIGHUP or SIGQUIT is pending (and blocked), or
  // `owner` is readable; then it says how many lines were not shown and where they are.
  ~Output();
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  // Writes teed lines that contain one of `words` to the file `path` too, until the end of the
  // round. To be called before the round's streams are opened.
  void filter_lines(Console console, const std::string& path, const std::vector<std::string>& words);

  // Returns where this process's stdout and stderr lead.
  Consoles consoles() const;

  // Returns the descriptor that becomes a worker's stdout, its stderr, or both; it is close-on-exec, and the
  // caller closes it after the fork. If the route's file cannot be opened, the stream goes to the
  // console. Throws rendezvous::Error if no descriptor is left.
  rendezvous::Descriptor open_stream(const StreamRoute& route);
  // Starts reading the streams that were opened: the thread is woken once for all of them.
  void begin_round();

  // Writes a line of ddprun's own, given without its newline. Does not block.
  void write_line(Console console, std::string text);

  // Opens the file that write_event() appends to. Throws rendezvous::Error if it cannot be opened.
  void open_events(const std::string& path);
  // Appends a line to the event file, if there is one.
  void write_event(std::string line);

  // The end of a worker's stderr.
  struct LastWords {
    std::vector<std::string> lines;
    std::string log;  // the file with all of its stderr; empty: none
  };
  // Ends a round whose processes are gone: reads what is left in their pipes, completes unfinished
  // lines and closes the streams. Returns the last words of each local rank. Waits at most
  // `deadline`, in case the console blocks.
  std::vector<LastWords> end_round(std::chrono::milliseconds deadline);

  // Returns the last words of each local rank up to now, while its round goes on. What is left in the pipes of
  // `ended`, whose processes are gone, is read before. Waits at most `deadline`, in case the console blocks.
  std::vector<LastWords> last_words(const std::vector<int>& ended, std::chrono::milliseconds deadline);

  // Returns the bytes that came from workers so far. Any thread may ask.
  std::uint64_t bytes_read() const;

  // Gives the workers' ptys the terminal's new size.
  void resize();

 private:
  class Thread;
  std::unique_ptr<Thread> thread_;
  int owner_;
};

}  // namespace ddp::launcher
