// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training/checkpoint/step_folders.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <random>
#include <set>
#include <string_view>
#include <system_error>

#include "rendezvous/base/text.hpp"
#include "runtime/training/checkpoint/checkpoint.hpp"
#include "runtime/training/tensor_file/checksum.hpp"
#include "runtime/training/tensor_file/durable_file.hpp"

namespace ddp::runtime {
namespace {

namespace fs = std::filesystem;

constexpr char kWriting[] = ".writing-";
constexpr char kReplaced[] = ".replaced-";
constexpr char kRemoved[] = ".removed-";

std::string step_name(std::int64_t step) {
  const std::string digits = std::to_string(step);
  return "step-" + std::string(digits.size() < 9 ? 9 - digits.size() : 0, '0') + digits;
}

std::optional<std::int64_t> step_named(std::string_view name) {
  constexpr std::string_view kStart = "step-";
  if (!name.starts_with(kStart)) return std::nullopt;
  const auto step = rendezvous::parse_number<std::int64_t>(name.substr(kStart.size()));
  if (!step || *step < 0 || step_name(*step) != name) return std::nullopt;
  return step;
}

std::optional<std::int64_t> step_replaced(std::string_view name) {
  return name.starts_with(kReplaced) ? step_named(name.substr(sizeof(kReplaced) - 1)) : std::nullopt;
}

bool is_complete(const std::string& folder) { return access((folder + "/" + kRecordFile).c_str(), F_OK) == 0; }

// Returns a name that no other process uses.
std::string with_id(const std::string& name) {
  std::random_device random;
  return name + "." + checksum_to_string(std::uint64_t{random()} << 32 | random()).substr(0, 8);
}

void move(const std::string& from, const std::string& to) {
  if (rename(from.c_str(), to.c_str()) != 0) system_error(to, "cannot rename " + from, errno);
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator each(folder, error);
  for (; !error && each != fs::directory_iterator(); each.increment(error)) {
    names.push_back(each->path().filename().string());
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    system_error(folder, "cannot be listed", error.value());
  }
  return names;
}

}  // namespace

std::vector<std::int64_t> steps_to_remove(const std::vector<std::int64_t>& steps, std::int64_t saved,
                                          std::int64_t keep_last, std::int64_t keep_every) {
  std::vector<std::int64_t> removed;
  if (keep_last <= 0) return removed;
  const auto end = std::upper_bound(steps.begin(), steps.end(), saved);
  for (auto it = steps.begin(); it != end && end - it > keep_last; ++it) {
    if (keep_every <= 0 || *it % keep_every != 0) removed.push_back(*it);
  }
  return removed;
}

bool remove_folder(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  return !error;
}

std::vector<std::int64_t> StepFolders::steps() const {
  std::set<std::int64_t> steps;
  for (const std::string& name : names_in(path_)) {
    const auto step = step_named(name);
    const auto found = step ? step : step_replaced(name);
    if (found && is_complete(in_place(name))) steps.insert(*found);
  }
  return {steps.begin(), steps.end()};
}

std::string StepFolders::path_of(std::int64_t step) const { return in_place(step_name(step)); }

std::string StepFolders::place_of(std::int64_t step) const {
  const std::string replaced = in_place(kReplaced + step_name(step));
  return !is_complete(path_of(step)) && is_complete(replaced) ? replaced : path_of(step);
}

void StepFolders::tidy_up() const {
  for (const std::string& name : names_in(path_)) {
    if (name.starts_with(kWriting) || name.starts_with(kRemoved)) remove_folder(in_place(name));
    const auto step = step_replaced(name);
    if (!step) continue;
    if (is_complete(path_of(*step))) {
      remove_folder(in_place(name));
    } else {
      move(in_place(name), path_of(*step));
    }
  }
}

std::string StepFolders::create_writing_folder(std::int64_t step) const {
  const std::string path = in_place(with_id(kWriting + step_name(step)));
  if (mkdir(path.c_str(), 0777) != 0) system_error(path, "cannot create this folder", errno);
  return path;
}

void StepFolders::publish(const std::string& written, std::int64_t step) const {
  fsync_folder(written);
  const std::string path = path_of(step);
  const std::string replaced = in_place(kReplaced + step_name(step));
  const bool replaces = is_complete(path);
  if (replaces) move(path, replaced);
  move(written, path);
  fsync_folder(path_);
  if (replaces) remove_folder(replaced);
}

void StepFolders::remove(std::int64_t step) const {
  const std::string going = in_place(with_id(kRemoved + step_name(step)));
  move(path_of(step), going);
  fsync_folder(path_);  // otherwise it might come back after a crash without some of its files
  remove_folder(going);
}

}  // namespace ddp::runtime
