// SPDX-License-Identifier: BSD-3-Clause
// Checkpoints of jobs with several ranks; see worker.cpp.
#include <algorithm>
#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "ddp/ddp.hpp"
#include "tests/runtime/job/run_job.hpp"
#include "tests/runtime/training/checkpoint/job.hpp"
#include "tests/support/process.hpp"

using namespace ddp::test;
using Catch::Matchers::Contains;
using ddp::testing::read_file;
using ddp::testing::TemporaryFolder;
namespace fs = std::filesystem;
using Steps = std::vector<std::int64_t>;

namespace {

Steps steps_in(const std::string& folder) { return ddp::CheckpointFolder(folder, {0, 0, {}, true}).steps(); }

std::size_t entries(const std::string& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

}  // namespace

TEST_CASE("checkpoint folder: any number of ranks can load what other ranks have saved", "[training][integration]") {
  for (const int writers : {1, 2, 3}) {
    const TemporaryFolder place;
    run(writers, "save", steps(place.path(), 1, 2));
    CHECK(steps_in(place.path()) == Steps{1, 2});
    for (const int readers : {1, 2, 4}) {
      INFO(writers << " ranks saved, " << readers << " load");
      for (const std::string& said : run(readers, "load", {{"FOLDER", place.path()}})) CHECK(said == "loaded 2\n");
    }
  }
}

TEST_CASE("checkpoint folder: saves in the background do not disturb the collectives of the training",
          "[training][integration]") {
  const TemporaryFolder place;
  run(3, "save async", with(steps(place.path(), 1, 9), {{"KEEP_LAST", "2"}, {"KEEP_EVERY", "4"}}));
  CHECK(steps_in(place.path()) == Steps{4, 8, 9});
  CHECK(entries(place.path()) == 3);
  for (const std::string& said : run(2, "load", {{"FOLDER", place.path()}})) CHECK(said == "loaded 9\n");
}

TEST_CASE("checkpoint folder: ranks with a GPU-only group can save", "[training][integration]") {
  const TemporaryFolder place;
  run(2, "save",
      with(steps(place.path(), 1, 2), {{"BACKEND", GENERATE("nccl", "cpu:gloo,cuda:nccl")},
                                       {"DDP_CUDA_LIBRARY", FAKE_CUDA},
                                       {"DDP_NCCL_LIBRARY", FAKE_NCCL},
                                       {"FAKE_CUDA_DEVICES", "2"}}));
  CHECK(steps_in(place.path()) == Steps{1, 2});
}

TEST_CASE("checkpoint folder: a mistake of one rank is the same error on all ranks", "[training][integration]") {
  const TemporaryFolder place;
  const std::string start = "checkpoints in " + place.path() + ": step 1: not saved (those before it are untouched): ";
  const std::vector<std::string> outputs = run(2, "mistakes", {{"FOLDER", place.path()}});
  for (const std::string& said : outputs) {
    CHECK_THAT(said, Contains("rows missing failed: 5 " + start + "tensor table is not whole: 42 of the 84 elements"));
    CHECK_THAT(said,
               Contains("given twice failed: 5 " + start + "tensor w is not whole: [0:12] of [12] is given twice"));
    CHECK_THAT(said, Contains("two types failed: 5 " + start + "tensor w is [2] of F32 to one rank and [2] of I32"));
    CHECK_THAT(said, Contains("no data failed: 1 " + start + "rank 1: v: its data is null"));
    CHECK_THAT(said, Contains("rank 1 saves step 2, rank 0 another: step 1"));
    CHECK_THAT(said, Contains("waited failed: 5 " + start + "tensor table"));
    CHECK_THAT(said, Contains("told by the next failed: 5 " + start + "tensor table"));
  }
  CHECK(entries(place.path()) == 1);
}

TEST_CASE("checkpoint folder: ranks can save different whole tensors, and Hugging Face's index says where each is",
          "[training][integration]") {
  const TemporaryFolder place;
  for (const std::string& said : run(3, "shares", {{"FOLDER", place.path()}})) CHECK(said == "saves 2\n");
  const std::string folder = place / "step-000000005";
  CHECK(fs::exists(folder + "/model-00003-of-00003.safetensors"));
  const std::string index = read_file(folder + "/model.safetensors.index.json");
  CHECK_THAT(index, Contains("\"total_size\": 144") && Contains("\"layer0\": \"model-00001-of-00003.safetensors\"") &&
                        Contains("\"layer5\": \"model-00003-of-00003.safetensors\""));
  CHECK(ddp::Checkpoint(folder).tensors().size() == 6);
}

TEST_CASE("checkpoint folder: tensors without elements are saved by one rank each, wherever they stand",
          "[training][integration]") {
  const int size = GENERATE(1, 2, 3);
  const TemporaryFolder place;
  run(size, "empty shares", {{"FOLDER", place.path()}});
  CHECK(steps_in(place.path()) == Steps{1, 2, 3, 4});
}

TEST_CASE("checkpoint folder: a full disk on one rank is an error on all, and later saves succeed",
          "[training][integration]") {
  const TemporaryFolder place;
  run(2, "save", steps(place.path(), 1, 1));
  const Variables full_from_the_first_write = faulty_disk(place.path(), 1, "1:full");
  for (const std::string& said : run(2, "try", with(steps(place.path(), 2, 2), full_from_the_first_write))) {
    for (const char* attempt : {"save failed: 6 ", "again failed: 6 "}) {
      CHECK_THAT(said, Contains(attempt) && Contains("step 2: not saved (those before it are untouched): rank 1: ") &&
                           Contains("No space left on device"));
    }
  }
  CHECK(entries(place.path()) == 1);
  run(2, "save", steps(place.path(), 2, 2));
  CHECK(steps_in(place.path()) == Steps{1, 2});
}

TEST_CASE("checkpoint folder: a disk that hangs on one rank is a timeout on the others", "[training][integration]") {
  const TemporaryFolder place;
  run(2, "save", steps(place.path(), 1, 1));
  ddp::rendezvous::StoreServer store({"127.0.0.1"}, 0);
  {
    const Variables disk = faulty_disk(place.path(), 1, "2:stall");
    Job job(2, "try", store.port(), true, with(with(steps(place.path(), 2, 2), disk), {{"TIMEOUT_MS", "700"}}));
    const Ended ended = job.finish(0);
    CHECK(ended.code == 0);
    CHECK_THAT(ended.output,
               Contains("save failed: 2 checkpoints in " + place.path() + ": step 2: not known to be saved"));
    CHECK_THAT(ended.output, Contains("again failed: 4 "));  // the group cannot be used after a failure
    job.kill(1, SIGKILL);
    job.finish(1);
  }
  CHECK(no_child_left());
  CHECK(steps_in(place.path()) == Steps{1});
  run(2, "save", steps(place.path(), 3, 3));
  CHECK(entries(place.path()) == 2);  // the stalled save's folder is gone
}

TEST_CASE("checkpoint folder: everything is on the disk before a step gets its name", "[training][integration]") {
  const TemporaryFolder place, logs;
  run(1, "save alone",
      with(steps(place.path(), 1, 2), {{"LD_PRELOAD", FAKE_DISK},
                                       {"FAKE_DISK", place.path()},
                                       {"FAKE_DISK_LOG", logs / "calls"},
                                       {"KEEP_LAST", "1"}}));
  // Before a folder is renamed to its final name, the last call for each of its files is fsync, and
  // so is the last call for the folder itself. The next call after the rename is an fsync of the
  // folder that contains it.
  std::istringstream lines(read_file(logs / "calls"));
  std::map<std::string, std::string> last;
  std::string line, before;
  int named = 0, removed = 0;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string call, what, to;
    words >> call >> what >> to;
    INFO(line);
    if (before.starts_with("rename")) CHECK(line == "fsync " + place.path());
    if (call == "rename" && to.find("/step-") != std::string::npos) {
      ++named;
      int files = 0;
      for (const auto& [name, how] : last) {
        if (name.find(what) != 0) continue;
        INFO(name);
        CHECK(how == "fsync");
        ++files;
      }
      CHECK(files == 3);
      last.clear();
    } else if (call == "rename") {
      ++removed;
    } else if (call != "mkdir" && call != "unlink") {
      last[what] = call;
    }
    before = line;
  }
  CHECK(named == 2);
  CHECK(removed == 1);
}
