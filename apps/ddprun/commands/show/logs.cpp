// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddprun/commands/show/logs.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <optional>
#include <string_view>
#include <utility>

#include "apps/ddprun/commands/agents.hpp"
#include "apps/ddprun/commands/arguments.hpp"
#include "apps/ddprun/commands/table.hpp"
#include "launcher/local/job_view.hpp"
#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/base/error.hpp"

namespace ddp::apps {
namespace {

using rendezvous::Descriptor;

constexpr std::chrono::milliseconds kReadAgain{100};
constexpr std::chrono::seconds kAskForRoundAgain{1};  // whether there is a new round

// One stream of one worker, as its file has it.
class LogFile {
 public:
  LogFile(const std::string& path, std::string prefix)
      : prefix_(std::move(prefix)), file_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW)) {}

  bool is_there() const { return static_cast<bool>(file_); }

  // Prints the whole lines that are new; with `is_end` also a last one that is not whole.
  void print(bool is_end) {
    char buffer[65536];
    ssize_t size;
    while ((size = read(file_.get(), buffer, sizeof buffer)) > 0 || (size < 0 && errno == EINTR)) {
      if (size > 0) add({buffer, static_cast<std::size_t>(size)});
    }
    if (!is_end || line_.empty()) return;
    put(line_ + "\n");
    line_.clear();
  }

 private:
  void add(std::string_view bytes) {
    for (std::size_t newline; (newline = bytes.find('\n')) != std::string_view::npos;
         bytes.remove_prefix(newline + 1)) {
      line_.append(bytes.substr(0, newline + 1));
      put(line_);
      line_.clear();
    }
    line_.append(bytes);
  }
  void put(const std::string& line) const {
    fputs(prefix_.c_str(), stdout);
    fwrite(line.data(), 1, line.size(), stdout);
  }

  std::string prefix_;
  Descriptor file_;
  std::string line_;  // what has no newline yet
};

class Logs {
 public:
  Logs(FoundJob job, std::optional<std::int64_t> rank) : job_(std::move(job)), rank_(rank) {}

  int run(bool follows) {
    Descriptor launcher;  // where its pid is another process's, the agent is asked for the job's end
    if (job_.has_pids_of_here) launcher = Descriptor(static_cast<int>(syscall(SYS_pidfd_open, job_.view.pid, 0)));
    if (!open_round(job_.view)) return 1;
    print(!follows);
    auto next_question = std::chrono::steady_clock::now() + kAskForRoundAgain;
    while (follows) {
      pollfd ended = {launcher.get(), POLLIN, 0};
      const bool is_over = poll(&ended, launcher ? 1 : 0, static_cast<int>(kReadAgain.count())) > 0;
      print(is_over);
      if (is_over) return 0;
      if (std::chrono::steady_clock::now() < next_question) continue;
      next_question = std::chrono::steady_clock::now() + kAskForRoundAgain;
      if (!look_for_round()) {
        print(true);
        return 0;
      }
    }
    return 0;
  }

 private:
  void print(bool is_end) {
    for (LogFile& file : files_) file.print(is_end);
    fflush(stdout);
  }

  // Opens the files of a newer round, if there is one. Returns false if the job has ended.
  bool look_for_round() {
    try {
      const auto view = launcher::agent_view(ask_state(job_.socket));
      if (!view) return false;
      if (view->facts.round == round_ || view->workers.empty()) return true;
      print(true);
      open_round(*view);
      return true;
    } catch (const rendezvous::Error& error) {
      return error.code() != rendezvous::ErrorCode::PeerLost;
    }
  }

  bool open_round(const launcher::AgentView& view) {
    files_.clear();
    round_ = view.facts.round;
    if (view.log_folder.empty()) {
      return fail(
          "its workers' output is not written into files, and ddprun keeps none of it: start the job with "
          "--tee 3 or --redirects 3, and --log-dir to choose the folder");
    }
    const bool is_one = rank_ || view.workers.size() == 1;
    bool is_here = false;
    for (const launcher::WorkerView& worker : view.workers) {
      if (rank_ && worker.rank != *rank_) continue;
      is_here = true;
      const std::string folder =
          view.log_folder + "/attempt_" + std::to_string(round_ - 1) + "/" + std::to_string(worker.local_rank) + "/";
      const std::string prefix = is_one ? "" : "[rank " + std::to_string(worker.rank) + "] ";
      for (const char* name : {"stdout.log", "stderr.log"}) {
        LogFile file(folder + name, prefix);
        if (file.is_there()) files_.push_back(std::move(file));
      }
    }
    if (rank_ && !is_here) {
      return fail("rank " + std::to_string(*rank_) + " does not run on this machine; `ddprun ps " + view.job +
                  "` shows all ranks with their nodes, on which this command prints their files");
    }
    if (is_here && files_.empty()) return fail("there are no files of these workers in " + view.log_folder);
    return true;
  }

  bool fail(const std::string& why) const {
    print_line(stderr, "logs: the job " + job_.view.job + ": " + why);
    return false;
  }

  const FoundJob job_;
  const std::optional<std::int64_t> rank_;
  int round_ = 0;
  std::vector<LogFile> files_;
};

}  // namespace

int show_logs(const std::vector<std::string>& arguments) {
  const CommandArguments given(
      {.name = "logs",
       .usage = "ddprun logs [JOB] [--rank N] [-f]",
       .about = "Prints the files of a job's workers on this machine; with -f until the job ends.",
       .flags = {"-f", "--follow"},
       .values = {"--rank"}},
      arguments);
  const auto rank = given.number("--rank", 0, "give a rank, from 0");
  return Logs(find_job("logs", given.job()), rank).run(given.has("-f") || given.has("--follow"));
}

}  // namespace ddp::apps
