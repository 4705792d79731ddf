// SPDX-License-Identifier: BSD-3-Clause
// Processes beside the agent, which the keeper starts when the agent asks for them, and starts again when they are
// killed. They are forked from the keeper, so they need no program of their own and have what it had before the agent.
//
//     agent ── ask(), once ──▶ keeper ── fork ──▶ each process of the list
//                                └── one is killed ──▶ fork again, with how the life before ended
//
// A process that ends before it has said that it is up, or that ends by itself, has failed; so has one that cannot be
// forked. Once that happened kTries times in a row nothing is started any more but the first process of the list, which
// gets the reason, so that it can report it. The processes end with the keeper.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/process/shared_page.hpp"
#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/base/pipe.hpp"

namespace ddp::launcher {

class Supervisor {
 public:
  static constexpr int kTries = 5;
  // Codes with which a process of the list ends without having failed.
  static constexpr int kDone = 0;    // there is nothing to do any more
  static constexpr int kAgain = 10;  // another process is to begin

  struct Life {
    bool was_up = false;         // one before has said that it is up
    std::string why_before;      // "ddp-store (pid 7) was killed by SIGKILL": how the one before ended; empty: none was
    std::string gives_up_since;  // why nothing goes on; empty: it does
  };
  struct Kind {
    const char* name;  // as ps shows it
    std::function<int(const Life&)> run;
  };

  // Call it before the agent is forked.
  explicit Supervisor(std::vector<Kind> kinds);
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // In the agent: has the processes started, with these words and copies of these descriptors. Returns false, with the
  // reason in errno, if the keeper cannot be asked.
  bool ask(const std::string& text, const std::vector<int>& descriptors) const;
  // What an agent had asked for before this one was forked, and what the processes have.
  bool were_asked_for() const { return was_asked_; }
  const std::string& text() const { return text_; }
  const std::vector<rendezvous::Descriptor>& descriptors() const { return descriptors_; }

  // Called in a process of the list: reports that the process is up, or why it is about to end.
  void say_up();
  void say_why(const std::string& why);

  // In the keeper.
  int fd() const { return requests_.right.get(); }  // readable when the agent asks
  void take_request(const std::vector<int>& not_theirs);
  // Takes the end of a child. Returns false if it is none of these.
  bool reap(pid_t pid, int status);
  // Starts what could not be forked before, if it is time. Returns after how many milliseconds to call it again; -1:
  // when a child has ended.
  int try_again();
  std::vector<pid_t> pids() const;
  // Waits for the end of the first process of the list, if it runs, but no longer than `within`.
  void wait_for_first(std::chrono::milliseconds within);

 private:
  struct Page;
  struct Process {
    Kind kind;
    pid_t pid = 0;
    Life life = {};
    int failed = 0;                                                     // times in a row
    std::optional<std::chrono::steady_clock::time_point> fork_at = {};  // it could not be forked before
  };
  void start(std::size_t index);
  void failed(std::size_t index, const std::string& why);
  void give_up(const std::string& why);

  std::vector<Process> processes_;
  rendezvous::SocketPair requests_;  // left: the agent; right: the keeper
  SharedPage<Page> page_;
  bool was_asked_ = false;
  bool has_given_up_ = false;
  std::string text_;
  std::vector<rendezvous::Descriptor> descriptors_;
  std::vector<int> not_theirs_;  // descriptors of the keeper's alone
  std::size_t own_ = 0;          // in a process of the list: which one it is
};

}  // namespace ddp::launcher
