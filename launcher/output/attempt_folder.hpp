// SPDX-License-Identifier: BSD-3-Clause
// Where workers' logs and error files are, laid out as torchrun does:
//
//     <log dir>/<run id>_<random>/attempt_<round - 1>/<local rank>/{stdout.log,stderr.log,error.json}
//                                                    /{filtered_stdout.log,filtered_stderr.log}
//
// Where nobody asked for logs or for a place, all error files share one folder, as attempt_<round - 1>_error_<local
// rank>.json: to make a folder for each worker and to remove it would take longer than to start it.
//
// Earlier attempts are kept: a round that began because nodes came or went is one too, while torchrun counts restarts
// and writes over it. Without a log dir it is a folder under $TMPDIR, removed at the end if it held no logs.
#pragma once

#include <functional>
#include <string>

#include "launcher/config/compatibility_mode.hpp"
#include "launcher/config/log_config.hpp"

namespace ddp::launcher {

class AttemptFolder {
 public:
  using Logger = std::function<void(const std::string&)>;

  // A log dir that cannot be had is replaced by a temporary one, or by none, and the job goes on: `warn` says so, once.
  // `will` hears, before it is made, of a folder that is to be removed at the end, should this process not live to do
  // it. Throws rendezvous::Error if the log dir is a file.
  AttemptFolder(const LogConfig& config, CompatibilityMode compatibility, const std::string& run_id, Logger log,
                const std::function<void(const std::string& path)>& on_temporary);
  ~AttemptFolder();
  AttemptFolder(const AttemptFolder&) = delete;
  AttemptFolder& operator=(const AttemptFolder&) = delete;

  // Made by the call; empty: there is none.
  std::string of_attempt(int attempt);
  // For a worker's logs; empty: it has none.
  std::string of_worker(int attempt, int local_rank);
  // Its folder is made.
  std::string error_file(int attempt, int local_rank);

  // Not removed at the end, whatever it holds: somebody is told of a file in it.
  void keep() { removed_at_end_ = false; }

 private:
  bool make(const std::string& path, const std::string& instead);
  std::string made(const std::string& path);

  Logger log_;
  bool has_logged_ = false;
  bool is_shared_;    // by all error files
  std::string root_;  // empty: nothing is kept
  bool removed_at_end_ = false;
};

}  // namespace ddp::launcher
