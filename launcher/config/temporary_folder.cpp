// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/config/temporary_folder.hpp"

#include <filesystem>

namespace ddp::launcher {

std::string temporary_folder() {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(error);
  return error ? "/tmp" : std::filesystem::absolute(folder, error).string();
}

}  // namespace ddp::launcher
