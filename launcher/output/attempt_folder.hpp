// SPDX-License-Identifier: BSD-3-Clause
// The folder for workers' logs and error files, laid out as torchrun does:
//
//     <log dir>/<run id>_<random>/attempt_<round - 1>/<local rank>/{stdout.log,stderr.log,error.json}
//                                                    /{filtered_stdout.log,filtered_stderr.log}
//
// With several nodes the node's host follows the run id, since nodes may share the log dir.
//
// If the user asked neither for logs nor for a folder, all error files share one folder and are
// named attempt_<round - 1>_error_<local rank>.json: making and removing a folder for each worker
// would take longer than starting it.
//
// Earlier attempts are kept. A round that began because nodes came or went counts as an attempt
// too; torchrun counts restarts and overwrites the files of such a round. Without a log dir the
// folder is under $TMPDIR, and is removed at the end if it has no logs. Only the user can look into
// <run id>_<random>, wherever it is.
#pragma once

#include <functional>
#include <string>
#include <system_error>

#include "launcher/config/launch_config.hpp"
#include "launcher/config/log_config.hpp"

namespace ddp::launcher {

class AttemptFolder {
 public:
  using Logger = std::function<void(const std::string&)>;

  // Throws rendezvous::Error if the log dir cannot be written. A temporary folder that cannot be
  // made is replaced by none, and the job goes on; `log` gets one line about it. `on_temporary` gets
  // the path of a folder that will be removed at the end, before it is made, so that another process
  // can remove it if this one is killed.
  AttemptFolder(const LogConfig& config, CompatibilityMode compatibility, const std::string& run_id, Logger log,
                const std::function<void(const std::string& path)>& on_temporary);
  ~AttemptFolder();
  AttemptFolder(const AttemptFolder&) = delete;
  AttemptFolder& operator=(const AttemptFolder&) = delete;

  // Returns the attempt's folder, which this call makes; empty if there is none.
  std::string of_attempt(int attempt);
  // Returns the folder for a worker's logs, which this call makes; empty if the worker has no logs.
  std::string of_worker(int attempt, int local_rank);
  // Returns the path of a worker's error file, whose folder this call makes; empty if there is
  // none.
  std::string error_file(int attempt, int local_rank);

  // Returns the path of the whole folder; empty if there is none.
  const std::string& root() const { return root_; }
  // Returns why nothing more can be written in the folder, such as "No space left on device"; empty
  // if it can be, or if there is no folder.
  std::string write_error() const;

  // Returns whether this path lies in the folder.
  bool has(const std::string& path) const { return !root_.empty() && path.starts_with(root_ + "/"); }
  // Keeps the folder at the end, because a message names a file in it.
  void keep() { removed_at_end_ = false; }

 private:
  std::string made(const std::string& path);  // makes it too; empty if that fails
  void note_failure(const std::string& path, const std::error_code& why, const std::string& instead);

  Logger log_;
  bool has_logged_ = false;
  bool is_shared_;    // all error files share one folder
  std::string root_;  // empty: there is no folder
  bool removed_at_end_ = false;
};

}  // namespace ddp::launcher
