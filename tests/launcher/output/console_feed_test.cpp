// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/output/console_feed.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <memory>

#include "tests/support/process.hpp"

using ddp::launcher::ConsoleFeed;
using ddp::launcher::LineAssembler;
using ddp::launcher::Sink;
using namespace std::chrono_literals;

namespace {

// A feed whose console is a pipe that the test reads when it likes.
struct Terminal {
  Terminal() {
    REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    feed = std::make_unique<ConsoleFeed>(ends[1], "stdout", [this](const std::string& line) { said += line + "\n"; });
  }
  ~Terminal() {
    close_reader();
    close(ends[1]);
  }
  void close_reader() {
    if (ends[0] >= 0) close(ends[0]);
    ends[0] = -1;
  }
  // Fills the pipe, so that the console is behind.
  void fill() { feed->write_line(std::string(100'000, '.') + "\n"); }
  // Reads until nothing is left to show.
  std::string read_all() const {
    std::string all;
    while (true) {
      feed->show(now);
      char buffer[65536];
      const ssize_t size = read(ends[0], buffer, sizeof buffer);
      if (size > 0) all.append(buffer, static_cast<std::size_t>(size));
      if (size <= 0 && !feed->has_unshown()) return all;
      feed->sink().flush();
    }
  }
  // Returns what follows the text of fill().
  std::string read_after_fill() const {
    const std::string all = read_all();
    return all.substr(all.find(".\n") + 2);
  }

  int ends[2];
  std::string said;  // by the sink
  std::unique_ptr<ConsoleFeed> feed;
  ConsoleFeed::Clock::time_point now{1h};
};

// A teed stream with its file.
class Teed {
 public:
  Teed(Terminal& console, int writer, std::uint64_t round = 0)
      : console_(console),
        path_(folder_ / "log"),
        log_(open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600), Sink::Kind::File, path_, nullptr),
        stream_(console.feed->open({.writer = writer,
                                    .round = round,
                                    .file = path_,
                                    .lines = LineAssembler({.form = LineAssembler::Form::Prefixed,
                                                            .prefix = "[" + std::to_string(writer) + "]:"})})) {}
  void write(std::string_view text) {
    log_.write(1, text);
    console_.feed->take(*stream_, text, &log_, console_.now);
  }
  void write_nowhere(std::string_view text) { console_.feed->take(*stream_, text, nullptr, console_.now); }
  void end() { console_.feed->end(*stream_); }
  bool may_take() const { return console_.feed->may_take(*stream_); }
  const std::string& path() const { return path_; }

 private:
  ddp::testing::TemporaryFolder folder_;
  Terminal& console_;
  std::string path_;
  Sink log_;
  ConsoleFeed::Stream* stream_;
};

}  // namespace

TEST_CASE("console feed: what a console missed follows from the files, then ddprun's line", "[launcher][unit]") {
  Terminal console;
  Teed one(console, 1), two(console, 2);
  one.write("before\n");
  console.fill();
  one.write("a\n");
  two.write("b\n");
  one.write("c\nd");
  console.feed->write_line("the end\n");
  one.end();
  two.end();
  CHECK(console.feed->sink().pending() < 100'000);  // nothing of the streams is in memory
  const std::string all = console.read_all();
  CHECK(all.substr(0, 11) == "[1]:before\n");
  CHECK(all.substr(all.find(".\n") + 2) == "[1]:a\n[1]:c\n[1]:d\n[2]:b\nthe end\n");
}

TEST_CASE("console feed: streams of an earlier round come first", "[launcher][unit]") {
  Terminal console;
  Teed first(console, 1, 0);
  console.fill();
  const std::string many(400'000, 'x');  // several turns
  first.write("1\n" + many + "\n2\n");
  first.end();
  Teed second(console, 2, 1);
  second.write("3\n");
  CHECK((console.read_after_fill() == "[1]:1\n[1]:" + many + "\n[1]:2\n[2]:3\n"));
}

TEST_CASE("console feed: a stream that its file cannot take waits for the console", "[launcher][unit]") {
  Terminal console;
  Teed stream(console, 1);
  stream.write_nowhere("at once\n");
  CHECK(stream.may_take());
  console.fill();
  stream.write("file\n");
  CHECK(stream.may_take());
  stream.write_nowhere("memory\n");
  CHECK(!stream.may_take());
  stream.write("rest of the pipe\n");  // when the round ends
  CHECK(console.read_after_fill() == "[1]:file\n[1]:memory\n[1]:rest of the pipe\n");
  CHECK(stream.may_take());
}

TEST_CASE("console feed: after a truncated file the rest and ddprun's lines are shown", "[launcher][unit]") {
  Terminal console;
  Teed stream(console, 1);
  console.fill();
  stream.write("a\n");
  std::filesystem::resize_file(stream.path(), 0);
  stream.write("b\n");
  console.feed->write_line("own\n");
  CHECK(console.read_after_fill() ==
        "[1]:[ddprun: 1 line (2 bytes) cannot be shown here: " + stream.path() + ": it was truncated]\n[1]:b\nown\n");
}

TEST_CASE("console feed: a stream without a file is read at the console's pace", "[launcher][unit]") {
  Terminal console;
  ConsoleFeed::Stream* stream = console.feed->open({.writer = 1, .round = 0, .file = "", .lines = LineAssembler({})});
  CHECK(console.feed->may_take(*stream));
  console.fill();
  CHECK(!console.feed->may_take(*stream));
  console.feed->take(*stream, "rest of the pipe", nullptr, console.now);
  console.feed->end(*stream);
  CHECK(console.read_after_fill() == "rest of the pipe");
}

TEST_CASE("console feed: a part is due after 0.2 s, but not on a console that is behind", "[launcher][unit]") {
  Terminal console;
  Teed stream(console, 1);
  CHECK(!console.feed->due(console.now));
  stream.write("Name? ");
  CHECK(console.feed->due(console.now) == console.now + 200ms);
  console.now += 200ms;
  CHECK(console.read_all() == "[1]:Name? ");
  CHECK(!console.feed->due(console.now));
  stream.write("Bob\nAge? ");
  console.fill();
  console.now += 200ms;
  CHECK(!console.feed->due(console.now));
  CHECK(console.read_after_fill().empty());  // its rest may not have been read meanwhile
  CHECK(console.feed->due(console.now) == console.now + 200ms);
  console.now += 200ms;
  CHECK(console.read_all() == "[1]:Age? ");
}

TEST_CASE("console feed: a console whose reader has gone ends the output", "[launcher][unit]") {
  signal(SIGPIPE, SIG_IGN);
  Terminal console;
  Teed stream(console, 1), ended(console, 2);
  console.fill();
  stream.write("a\n");
  ended.write("b\n");
  ended.end();
  console.feed->write_line("own\n");
  console.close_reader();
  console.feed->sink().flush();
  console.feed->show(console.now);
  CHECK(!console.feed->has_unshown());
  CHECK(!console.feed->due(console.now));
  stream.write("c\n");
  CHECK(stream.may_take());
  CHECK(console.said == "nobody reads stdout any more; the job goes on without it\n");
  stream.end();
}

TEST_CASE("console feed: what is given up is counted, with the files that have it", "[launcher][unit]") {
  Terminal console;
  Teed one(console, 1), two(console, 2);
  console.fill();
  one.write("a\nb\nc");
  one.end();
  two.write("d\n");
  two.write_nowhere("e\n");
  console.feed->write_line("own\n");
  const ConsoleFeed::Unshown unshown = console.feed->give_up();
  CHECK(unshown.lines_in_files == 4);
  CHECK(unshown.files == std::set<std::string>{one.path(), two.path()});
  CHECK(unshown.other_lines == 3);  // e, own, and the one that fill() wrote
  CHECK(!console.feed->has_unshown());
}
