// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/output/attempt_folder.hpp"

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>

#include "tests/support/process.hpp"

using namespace ddp::launcher;
using ddp::testing::TemporaryFolder;

namespace {

namespace fs = std::filesystem;

const AttemptFolder::Logger kIgnored = [](const std::string&) {};

int folders_in(const std::string& path) {
  int found = 0;
  for (const auto& entry : fs::recursive_directory_iterator(path)) found += entry.is_directory() ? 1 : 0;
  return found;
}

}  // namespace

TEST_CASE("attempt folder: error files share a folder, which is removed at the end", "[launcher][integration]") {
  std::string root, first, later;
  {
    AttemptFolder folder({}, CompatibilityMode::Ddprun, "job", kIgnored, [&](const std::string& path) { root = path; });
    first = folder.error_file(0, 0);
    CHECK(folder.error_file(0, 1) != first);
    later = folder.error_file(1, 0);
    CHECK(later != first);
    CHECK(fs::is_directory(fs::path(first).parent_path()));
    CHECK(fs::is_directory(fs::path(later).parent_path()));
    CHECK(folders_in(root) == 0);
    CHECK(folder.of_worker(0, 0).empty());
  }
  CHECK_FALSE(fs::exists(root));
}

TEST_CASE("attempt folder: in a log dir it is laid out as torchrun does", "[launcher][integration]") {
  const TemporaryFolder logs;
  LogConfig config;
  config.folder = logs.path();
  AttemptFolder folder(config, CompatibilityMode::Ddprun, "job", kIgnored, kIgnored);
  const std::string worker = folder.of_worker(1, 2);
  CHECK(fs::path(worker).filename() == "2");
  CHECK(fs::path(worker).parent_path().filename() == "attempt_1");
  CHECK(folder.error_file(1, 2) == worker + "/error.json");
}

TEST_CASE("attempt folder: under torchrun's name it has torchrun's layout without a log dir too",
          "[launcher][integration]") {
  AttemptFolder folder({}, CompatibilityMode::Torchrun, "job", kIgnored, kIgnored);
  CHECK(folder.error_file(0, 3) == folder.of_worker(0, 3) + "/error.json");
}
