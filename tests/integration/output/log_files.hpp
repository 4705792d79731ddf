// SPDX-License-Identifier: BSD-3-Clause
// The log files of one job under a --log-dir.
#pragma once

#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>

#include "tests/support/process.hpp"

namespace ddp::testing {

class LogFiles {
 public:
  // Reads the files of the only run in `log_dir`.
  explicit LogFiles(const std::string& log_dir) {
    for (const auto& run : std::filesystem::directory_iterator(log_dir)) {
      if (!root_.empty()) throw std::runtime_error("more than one run in " + log_dir);
      root_ = run.path();
    }
    if (root_.empty()) throw std::runtime_error("no run in " + log_dir);
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root_)) {
      if (entry.is_regular_file()) {
        files_[entry.path().lexically_relative(root_).string()] = read_file(entry.path());
      }
    }
  }

  std::string name() const { return root_.filename(); }
  // Returns the text of each file by its name, such as "attempt_0/1/stdout.log".
  const std::map<std::string, std::string>& all() const { return files_; }
  const std::string& at(const std::string& name) const {
    const auto found = files_.find(name);
    if (found == files_.end()) throw std::runtime_error("no " + name + " in " + root_.string());
    return found->second;
  }

 private:
  std::filesystem::path root_;
  std::map<std::string, std::string> files_;
};

}  // namespace ddp::testing
