// SPDX-License-Identifier: BSD-3-Clause
// A job of processes of one worker program (JOB_WORKER) for one test: started with the environment a launcher would
// give them, watched through their output, gone when the Job is.
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
  int signal = 0;  // that killed it, or 0
  std::string output;
};

class Job {
 public:
  // Ranks 0..size-1 of `scenario`; the store is at 127.0.0.1:port. agent_store: somebody but rank 0 hosts it. more: for
  // the environment of all.
  Job(int size, const std::string& scenario, std::uint16_t port, bool agent_store, const Variables& more = {});
  ~Job();  // kills and reaps what is left
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // Also for one process without the environment of a job (size 0 above).
  pid_t start(const std::vector<std::string>& arguments, const Variables& variables);
  void wait_for_line(std::size_t process, const std::string& line);
  // Until its first thread waits for something: inside an operation, if that comes next after what it said last.
  void wait_until_asleep(std::size_t process);
  void kill(std::size_t process, int signal);
  Ended finish(std::size_t process);

 private:
  struct Process {
    pid_t pid = -1;
    int output = -1;
    std::string read;
  };
  bool read_more(Process& process);  // false: end of output

  std::vector<Process> processes_;
};

// Does this environment variable tell a process what job it is part of? Whoever runs the tests may be part of one.
bool describes_a_job(const std::string& name);
// A port nobody listens on now.
std::uint16_t free_port();
// Has every child of this process been reaped?
bool no_child_left();

}  // namespace ddp::test
