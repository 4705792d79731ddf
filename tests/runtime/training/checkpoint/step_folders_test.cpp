// SPDX-License-Identifier: BSD-3-Clause
#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/training/checkpoint/step_folders.hpp"
#include "tests/support/process.hpp"

using namespace ddp::runtime;
using ddp::testing::read_file;
using ddp::testing::TemporaryFolder;
using ddp::testing::write_file;
namespace fs = std::filesystem;
using Steps = std::vector<std::int64_t>;

namespace {

void make_complete(const std::string& path, const std::string& text) {
  fs::create_directory(path);
  write_file(path + "/checkpoint.json", text);
}

}  // namespace

TEST_CASE("retention: the last checkpoints and the multiples are kept", "[training][unit]") {
  const Steps steps = {100, 200, 300, 400, 500};
  CHECK(steps_to_remove(steps, 500, 0, 0).empty());
  CHECK(steps_to_remove(steps, 500, 0, 200).empty());
  CHECK(steps_to_remove(steps, 500, 2, 0) == Steps{100, 200, 300});
  CHECK(steps_to_remove(steps, 500, 2, 200) == Steps{100, 300});
  CHECK(steps_to_remove(steps, 500, 9, 0).empty());
}

TEST_CASE("retention: a training that has gone back removes no later step, nor the one it has just saved",
          "[training][unit]") {
  CHECK(steps_to_remove({100, 200, 300, 400, 500}, 300, 1, 0) == Steps{100, 200});
  CHECK(steps_to_remove({100, 200}, 100, 1, 0).empty());
}

TEST_CASE("step folders: only a folder with a step's name and a record is a step", "[training][unit]") {
  const TemporaryFolder folder;
  const StepFolders folders(folder.path());
  CHECK(StepFolders(folder / "none").steps().empty());
  make_complete(folder / "step-000000007", "7");
  make_complete(folder / "step-1234567890", "large");
  make_complete(folder / ".writing-step-000000008.12ab", "8");
  make_complete(folder / ".removed-step-000000006.12ab", "6");
  make_complete(folder / "step-9", "not so");
  make_complete(folder / "step-000000009x", "not so");
  fs::create_directory(folder / "step-000000010");
  folder.write("step-000000011", "a file");
  CHECK(folders.steps() == Steps{7, 1234567890});
}

TEST_CASE("step folders: a crash's leftovers are tidied up, and a step that was being replaced is kept",
          "[training][unit]") {
  const TemporaryFolder folder;
  const StepFolders folders(folder.path());
  make_complete(folder / ".replaced-step-000000005", "the old 5");
  make_complete(folder / ".replaced-step-000000006", "the old 6");
  make_complete(folder / "step-000000006", "the new 6");
  make_complete(folder / ".writing-step-000000007.12ab", "7");
  make_complete(folder / ".removed-step-000000004.12ab", "4");
  folder.write("notes.txt", "mine");
  CHECK(folders.steps() == Steps{5, 6});
  CHECK(read_file(folders.place_of(5) + "/checkpoint.json") == "the old 5");
  CHECK(read_file(folders.place_of(6) + "/checkpoint.json") == "the new 6");

  folders.tidy_up();
  CHECK(folders.steps() == Steps{5, 6});
  CHECK(read_file(folders.path_of(5) + "/checkpoint.json") == "the old 5");
  CHECK(read_file(folders.path_of(6) + "/checkpoint.json") == "the new 6");
  CHECK(fs::exists(folder / "notes.txt"));
  CHECK(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()) == 3);
}

TEST_CASE("step folders: publishing replaces the same step, and a step can be removed", "[training][unit]") {
  const TemporaryFolder folder;
  const StepFolders folders(folder.path());
  for (const char* text : {"first", "second"}) {
    const std::string written = folders.create_writing_folder(3);
    write_file(written + "/checkpoint.json", text);
    folders.publish(written, 3);
    CHECK(folders.steps() == Steps{3});
    CHECK(read_file(folders.path_of(3) + "/checkpoint.json") == text);
  }
  folders.remove(3);
  CHECK(fs::is_empty(folder.path()));
}
