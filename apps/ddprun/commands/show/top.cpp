// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddprun/commands/show/top.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <optional>
#include <utility>

#include "apps/ddprun/commands/agents.hpp"
#include "apps/ddprun/commands/arguments.hpp"
#include "apps/ddprun/commands/show/job_page.hpp"
#include "apps/ddprun/commands/show/ps.hpp"
#include "apps/ddprun/commands/show/terminal.hpp"
#include "apps/ddprun/commands/table.hpp"
#include "launcher/local/job_state.hpp"
#include "rendezvous/base/error.hpp"

namespace ddp::apps {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kUsualInterval{1000};

// One job on a terminal. Its agent is asked while keys are awaited, so that `q` ends it at any time.
class Top {
 public:
  Top(std::string socket, milliseconds interval) : socket_(std::move(socket)), interval_(interval) {}

  int run() {
    {
      Terminal terminal;
      ask();
      while (!is_over_) turn(terminal);
      signal_ = terminal.signal();
    }
    if (!last_words_.empty()) {  // on the screen that stays
      for (const std::string& line : last_page_) puts(line.c_str());
      print_line(stdout, "top: " + last_words_);
    }
    return signal_ == 0 ? 0 : 128 + signal_;
  }

 private:
  void turn(Terminal& terminal) {
    const auto until = answer_ ? asked_ + kJobWithin : asked_ + interval_;
    const auto left = std::chrono::ceil<milliseconds>(until - Clock::now());
    const Terminal::Event event = terminal.wait(left, answer_ ? answer_->get() : -1);
    if (event.is_over) is_over_ = true;
    const std::size_t before = skip_;
    take_keys(event.keys, terminal.size().lines);
    if (event.is_other_ready) read_on();
    if ((event.is_resized || skip_ != before) && !answer_) draw(terminal);
    if (is_new_) draw(terminal);
    if (is_over_ || Clock::now() < until) return;
    if (answer_) return end("its agent does not answer any more");
    ask();
  }

  void ask() {
    asked_ = Clock::now();
    text_.clear();
    try {
      answer_ = begin_asking(socket_, "job");
    } catch (const rendezvous::Error& error) {
      end(error.code() == rendezvous::ErrorCode::PeerLost ? "the job has ended" : error.what());
    }
  }

  void read_on() {
    char buffer[16384];
    const ssize_t size = read(answer_->get(), buffer, sizeof buffer);
    if (size < 0 && errno == EINTR) return;
    if (size > 0) {
      text_.append(buffer, static_cast<std::size_t>(size));
      return;
    }
    answer_.reset();
    auto job = launcher::job_state(text_);
    if (!job) return end("the job has ended");
    job_ = std::move(job);
    is_new_ = true;
  }

  void take_keys(const std::string& keys, std::size_t page) {
    if (keys.find('q') != std::string::npos || keys.find('\x03') != std::string::npos) is_over_ = true;
    const auto has = [&keys](const char* key) { return keys.find(key) != std::string::npos; };
    if (has("j") || has("\x1b[B")) ++skip_;
    if (has(" ") || has("\x1b[6~")) skip_ += page / 2;
    if ((has("k") || has("\x1b[A")) && skip_ > 0) --skip_;
    if (has("b") || has("\x1b[5~")) skip_ -= std::min(skip_, page / 2);
    if (!job_) return;
    std::size_t workers = 0;
    for (const auto& node : job_->nodes) workers += node.view ? node.view->workers.size() : 0;
    skip_ = std::min(skip_, workers > 0 ? workers - 1 : 0);
  }

  void draw(Terminal& terminal) {
    is_new_ = false;
    if (!job_) return;
    const Terminal::Size size = terminal.size();
    last_page_ = page_.lines(*job_, asked_, {size.columns, size.lines - 1}, skip_);
    std::vector<std::string> lines = last_page_;
    lines.resize(size.lines - 1);
    lines.emplace_back("q ends; j, k, arrows: other workers; `ddprun stacks` says what each does");
    if (lines.back().size() > size.columns) lines.back().resize(size.columns);
    if (!terminal.show(lines, {0, size.lines - 1})) is_over_ = true;
  }

  void end(const std::string& words) {
    last_words_ = words;
    is_over_ = true;
  }

  const std::string socket_;
  const milliseconds interval_;
  JobPage page_;
  std::optional<launcher::JobState> job_;
  std::optional<rendezvous::Descriptor> answer_;  // while the agent is asked
  std::string text_;                              // what came of it
  Clock::time_point asked_;
  std::size_t skip_ = 0;
  bool is_new_ = false, is_over_ = false;
  int signal_ = 0;
  std::vector<std::string> last_page_;
  std::string last_words_;
};

}  // namespace

int show_top(const std::vector<std::string>& arguments) {
  const CommandArguments given(
      {.name = "top",
       .usage = "ddprun top [JOB] [--interval 1s]",
       .about = "Shows a job on all of its nodes, on the terminal, again and again. q ends it.",
       .flags = {},
       .values = {"--interval"}},
      arguments);
  const milliseconds interval = given.duration("--interval").value_or(kUsualInterval);
  if (!is_screen()) {
    return print_job("top", find_job("top", given.job()), JobForm::Page);
  }
  return Top(find_job("top", given.job()).socket, interval).run();
}

}  // namespace ddp::apps
