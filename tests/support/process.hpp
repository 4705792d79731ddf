// SPDX-License-Identifier: BSD-3-Clause
// Runs a program under test. Gives access to its output as it comes, waits for its end with a
// deadline, and finds out whether any process of it is left. Every process started here has a mark
// in its environment, which all descendants inherit, so that left_over() finds them wherever they
// are.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace ddp::testing {

// Generous: a test reaches it only if something hangs.
inline constexpr std::chrono::seconds kDeadline{60};

struct Result {
  int code = -1;  // exit code, or 128 + the signal
  std::string out;
  std::string err;
};

class Process {
 public:
  struct Options {
    std::map<std::string, std::string> environment = {};  // in addition to this process's
    std::string stdin_text = {};
    bool on_terminal = false;   // gives it a pty, and a session with it, as 0, 1 and 2: all output is in out
    bool close_stdout = false;  // the reading end of its stdout is closed at once
    rlim_t max_open_files = 0;  // 0: unchanged
    std::chrono::seconds deadline = kDeadline;  // for each wait
  };
  explicit Process(const std::vector<std::string>& command) : Process(command, Options()) {}
  Process(const std::vector<std::string>& command, const Options& options);
  ~Process();  // kills what is left
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  void type(const std::string& keys);  // on its terminal
  pid_t foreground() const;            // the process group that receives these keys
  void hang_up();                      // closes its terminal

  // Reads until stdout or stderr has contained `text` `times` times. Throws, with all output, if
  // that does not happen.
  void wait_for(const std::string& text, int times = 1);
  // Reads all output and waits for the end; throws if it does not end.
  Result wait();
  const std::string& out() const { return out_; }
  const std::string& err() const { return err_; }

  // Returns the processes that carry this one's mark and still run. Zombies do not count.
  std::vector<pid_t> left_over() const;
  // Waits until there are none; returns false if there are some at the deadline.
  bool all_gone() const;

 private:
  bool read_some(std::chrono::steady_clock::time_point deadline);

  std::string mark_;
  std::chrono::seconds deadline_;
  pid_t pid_ = -1;
  int out_fd_ = -1;
  int err_fd_ = -1;
  std::string out_, err_;
};

// Starts the command and waits for its end.
Result run(const std::vector<std::string>& command, const Process::Options& options = {});

// Returns the state as in /proc/<pid>/stat: 'R'uns, 'S'leeps, s'T'opped, 'Z'ombie, ...; 'X' if
// there is no such process.
char state_of(pid_t pid);

// Kills these processes as if at once: none of them acts on the death of another one.
void kill_at_once(const std::vector<pid_t>& pids);

// Waits until a condition holds; throws if it does not at the deadline.
void wait_until(const std::function<bool()>& true_at_last);

std::vector<pid_t> children_of(pid_t pid);
pid_t only_child_of(pid_t pid);  // throws if it has none, or more

// Returns how often `text` occurs.
int count(const std::string& in, const std::string& text);

// A temporary folder, removed with the object.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  std::string write(const std::string& name, const std::string& text) const;  // returns the file's path

 private:
  std::string path_;
};

// Writes the file, and makes its folders that are missing. Throws std::runtime_error if it cannot.
void write_file(const std::string& path, const std::string& text, bool executable = false);
std::string read_file(const std::string& path);

}  // namespace ddp::testing
