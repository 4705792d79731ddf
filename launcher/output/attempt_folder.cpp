// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/output/attempt_folder.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "launcher/config/temporary_folder.hpp"
#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/base/error.hpp"
#include "rendezvous/base/random_id.hpp"

namespace ddp::launcher {

namespace fs = std::filesystem;

namespace {

// Makes a folder that no other user can look into, as torchrun does: tracebacks and logs are in it.
// Nobody else can have made it before.
std::error_code make_private(const std::string& path) {
  if (mkdir(path.c_str(), 0700) == 0) return {};
  return {errno, std::generic_category()};
}

}  // namespace

AttemptFolder::AttemptFolder(const LogConfig& config, CompatibilityMode compatibility, const std::string& run_id,
                             Logger log, const std::function<void(const std::string& path)>& on_temporary)
    : log_(std::move(log)),
      is_shared_(config.folder.empty() && !config.writes_logs() && compatibility == CompatibilityMode::Ddprun) {
  if (config.folder == kNoFolder) return;
  std::string name = run_id;
  std::replace(name.begin(), name.end(), '/', '_');
  name += "_" + rendezvous::random_id().substr(0, 8);

  // In the log dir, if there is one. The user wants the logs there, so no other place will do.
  std::error_code error;
  if (!config.folder.empty()) {
    if (fs::exists(config.folder, error) && !fs::is_directory(config.folder, error)) {
      throw rendezvous::Error(rendezvous::ErrorCode::InvalidArgument,
                              "--log-dir " + config.folder + ": this is a file; give a folder");
    }
    root_ = (fs::absolute(config.folder) / name).string();
    fs::create_directories(config.folder, error);
    if (!error) error = make_private(root_);
    const std::string why = error ? error.message() : write_error();
    if (why.empty()) return;
    if (!error) fs::remove(root_, error);
    throw rendezvous::Error(rendezvous::ErrorCode::InvalidArgument,
                            "--log-dir " + config.folder + ": cannot write in " + root_ + ": " + why +
                                "; give a folder that can be written, or leave it out");
  }
  // Else under $TMPDIR.
  const std::string path = temporary_folder() + "/ddprun_" + name;
  removed_at_end_ = !config.writes_logs();
  if (removed_at_end_) on_temporary(path);
  if (const std::error_code why = make_private(path)) {
    note_failure(path, why, "the job goes on without log files");
    return;
  }
  root_ = path;
  if (!removed_at_end_) log_("logs are in " + root_ + " (--log-dir chooses another place)");
}

AttemptFolder::~AttemptFolder() {
  std::error_code ignored;
  if (removed_at_end_ && !root_.empty()) fs::remove_all(root_, ignored);
}

std::string AttemptFolder::of_attempt(int attempt) {
  return root_.empty() ? "" : made(root_ + "/attempt_" + std::to_string(attempt));
}

std::string AttemptFolder::of_worker(int attempt, int local_rank) {
  if (root_.empty() || is_shared_) return "";
  return made(root_ + "/attempt_" + std::to_string(attempt) + "/" + std::to_string(local_rank));
}

std::string AttemptFolder::error_file(int attempt, int local_rank) {
  if (root_.empty()) return "";
  if (is_shared_) {
    return root_ + "/attempt_" + std::to_string(attempt) + "_error_" + std::to_string(local_rank) + ".json";
  }
  const std::string folder = of_worker(attempt, local_rank);
  return folder.empty() ? "" : folder + "/error.json";
}

// Some file systems notice only when blocks are needed, or when the file is closed.
std::string AttemptFolder::write_error() const {
  if (root_.empty()) return "";
  std::string path = root_ + "/.ddprun_XXXXXX";
  rendezvous::Descriptor file(mkostemp(path.data(), O_CLOEXEC));
  if (!file) return strerror(errno);
  unlink(path.c_str());
  const std::string block(4096, '\0');
  errno = 0;
  const bool is_written = write(file.get(), block.data(), block.size()) == static_cast<ssize_t>(block.size());
  if (is_written && close(file.release()) == 0) return "";
  return errno != 0 ? strerror(errno) : strerror(ENOSPC);  // a short write sets none
}

std::string AttemptFolder::made(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (!error) return path;
  note_failure(path, error, "the job goes on without its logs");
  return "";
}

void AttemptFolder::note_failure(const std::string& path, const std::error_code& why, const std::string& instead) {
  if (std::exchange(has_logged_, true)) return;
  log_("cannot make the folder " + path + ": " + why.message() + "; " + instead);
}

}  // namespace ddp::launcher
