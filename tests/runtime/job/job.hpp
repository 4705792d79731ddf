// SPDX-License-Identifier: BSD-3-Clause
// A job of processes of one worker program (JOB_WORKER) for one test. Starts them with the environment that a launcher
// would give them, watches their output, and kills them in its destructor.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace ddp::test {

using Variables = std::map<std::string, std::string>;

struct Ended {
  int code = -1;   // exit code, or -1
  int signal = 0;  // the signal that killed it, or 0
  std::string output;
};

class Job {
 public:
  // Starts ranks 0..size-1 of `scenario`, with the store at 127.0.0.1:port. `agent_store`: the test hosts it, not rank
  // 0. `more` is added to the environment of all.
  Job(int size, const std::string& scenario, std::uint16_t port, bool agent_store, const Variables& more = {});
  ~Job();  // kills and reaps what is left
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // Starts one more process. With size 0 above, it is a process without the environment of a job.
  pid_t start(const std::vector<std::string>& arguments, const Variables& variables);
  void wait_for_line(std::size_t process, const std::string& line);
  // Returns once the process's first thread sleeps: inside an operation, if that follows what it printed last.
  void wait_until_asleep(std::size_t process);
  void kill(std::size_t process, int signal);
  Ended finish(std::size_t process);

 private:
  struct Process {
    pid_t pid = -1;
    int output = -1;
    std::string read;
  };
  bool read_more(Process& process);  // returns false at the end of the output

  std::vector<Process> processes_;
};

// Returns whether this environment variable describes the job of a process. The tests may themselves run in a job.
bool describes_a_job(const std::string& name);
// Returns a port on which no process listens now.
std::uint16_t free_port();
// Returns whether every child of this process has been reaped.
bool no_child_left();

}  // namespace ddp::test
