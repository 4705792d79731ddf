// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/coordination/meeting_file.hpp"

#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/support/process.hpp"

using ddp::launcher::MeetingFile;
using ddp::testing::TemporaryFolder;

namespace {

const MeetingFile::Entry kEntry = {.job = "my job", .epoch = "e1", .addresses = {"10.0.0.1", "fd00::1"}, .port = 4711};

void write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

std::size_t files_in(const std::string& folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

// Lets this many nodes claim the file at the same time and returns how many got it.
int claimed_by(const std::string& path, int nodes) {
  std::atomic<int> ours = 0, there = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < nodes; ++i) {
    threads.emplace_back([&] {
      MeetingFile file(path);
      if (file.claim(kEntry)) ++ours;
      ++there;
      while (there < nodes) std::this_thread::yield();  // none lets go before all have tried
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ours;
}

}  // namespace

TEST_CASE("meeting file: the node that creates it holds it, and it is gone afterwards", "[launcher][unit]") {
  const TemporaryFolder folder;
  const std::string path = folder / "meet";
  {
    MeetingFile first(path), second(path);
    CHECK_FALSE(first.read());
    CHECK_FALSE(first.is_held());
    REQUIRE(first.claim(kEntry));
    const auto entry = second.read();
    REQUIRE(entry);
    CHECK(entry->job == "my job");
    CHECK(entry->epoch == "e1");
    CHECK(entry->addresses == kEntry.addresses);
    CHECK(entry->port == 4711);
    CHECK(second.is_held());
    CHECK_FALSE(second.claim(kEntry));
    CHECK(files_in(folder.path()) == 1);
  }
  CHECK(files_in(folder.path()) == 0);
}

TEST_CASE("meeting file: one that is empty, or whose writer is gone, is taken over by one node", "[launcher][unit]") {
  const TemporaryFolder folder;
  const std::string path = folder / "meet";
  const std::string left_behind = "ddprun meeting file 1\njob none\nepoch e0\naddress 10.0.0.9\nport 1\n";
  for (const std::string& text : {std::string(), left_behind}) {
    CAPTURE(text);
    write(path, text);
    CHECK(MeetingFile(path).read().has_value() == !text.empty());
    CHECK_FALSE(MeetingFile(path).is_held());
    CHECK(claimed_by(path, 8) == 1);
    CHECK(files_in(folder.path()) == 0);
  }
  CHECK(claimed_by(path, 8) == 1);  // without a file as with an empty one
  CHECK(files_in(folder.path()) == 0);
}

TEST_CASE("meeting file: what is not ddprun's is left alone, with an error", "[launcher][unit]") {
  const TemporaryFolder folder;
  const std::string path = folder / "meet";
  for (const std::string text : {"weights", "ddprun meeting file 1\nepoch e\n", "ddprun meeting file 1\nport\n"}) {
    write(path, text);
    CHECK_THROWS_WITH(MeetingFile(path).read(), Catch::Contains(path) && Catch::Contains("ddprun did not write"));
  }
}

TEST_CASE("meeting file: a folder that is not there is an error that says so", "[launcher][unit]") {
  MeetingFile file("/nosuch/folder/meet");
  CHECK_FALSE(file.read());
  CHECK_THROWS_WITH(file.claim(kEntry), Catch::Contains("/nosuch/folder/meet") &&
                                            Catch::Contains("No such file or directory (its folder must exist, and be "
                                                            "shared by all nodes)"));
}
