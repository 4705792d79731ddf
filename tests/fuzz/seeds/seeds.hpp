// SPDX-License-Identifier: BSD-3-Clause
// Writes a fuzzer's first inputs.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>

namespace ddp::fuzz {

class Seeds {
 public:
  // Makes the folder if it is not there.
  explicit Seeds(std::filesystem::path folder) : folder_(std::move(folder)) {
    std::filesystem::create_directories(folder_);
  }
  void write(std::string_view input) {
    std::ofstream(folder_ / ("seed-" + std::to_string(count_++)), std::ios::binary) << input;
  }
  int count() const { return count_; }

 private:
  std::filesystem::path folder_;
  int count_ = 0;
};

}  // namespace ddp::fuzz
