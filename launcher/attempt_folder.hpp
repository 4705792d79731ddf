// SPDX-License-Identifier: BSD-3-Clause
// Where workers leave their error files, laid out as torchrun does:
//
//     <log dir>/<run id>_<random>/attempt_<restart count>/<local rank>/error.json
//
// Earlier attempts are kept. Without a log dir it is a folder under $TMPDIR that is removed at the end.
#pragma once

#include <string>

namespace ddp::launcher {

class AttemptFolder {
 public:
  // log_dir: "" for a temporary folder; made if missing. Throws rendezvous::Error if it cannot be.
  AttemptFolder(const std::string& log_dir, const std::string& run_id);
  ~AttemptFolder();
  AttemptFolder(const AttemptFolder&) = delete;
  AttemptFolder& operator=(const AttemptFolder&) = delete;

  // The path for this worker; its folder is made. The file is the worker's to write.
  std::string error_file(int attempt, int local_rank) const;

 private:
  std::string root_;
  bool temporary_;
};

}  // namespace ddp::launcher
