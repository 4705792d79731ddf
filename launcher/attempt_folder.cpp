// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/attempt_folder.hpp"

#include <algorithm>
#include <filesystem>

#include "launcher/random_id.hpp"
#include "rendezvous/error.hpp"

namespace ddp::launcher {

namespace fs = std::filesystem;

namespace {

void make_folders(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (!error) return;
  throw rendezvous::Error(rendezvous::ErrorCode::System, "cannot make the folder " + path.string() + ": " +
                                                             error.message() + "; choose another with --log-dir");
}

}  // namespace

AttemptFolder::AttemptFolder(const std::string& log_dir, const std::string& run_id) : temporary_(log_dir.empty()) {
  const fs::path base = temporary_ ? fs::temp_directory_path() : fs::absolute(log_dir);
  std::string name = run_id;
  std::replace(name.begin(), name.end(), '/', '_');
  name += "_" + random_id().substr(0, 8);
  root_ = (base / (temporary_ ? "ddprun_" + name : name)).string();
  make_folders(root_);
}

AttemptFolder::~AttemptFolder() {
  std::error_code ignored;
  if (temporary_) fs::remove_all(root_, ignored);
}

std::string AttemptFolder::error_file(int attempt, int local_rank) const {
  const fs::path folder = fs::path(root_) / ("attempt_" + std::to_string(attempt)) / std::to_string(local_rank);
  make_folders(folder);
  return (folder / "error.json").string();
}

}  // namespace ddp::launcher
