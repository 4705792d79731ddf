// SPDX-License-Identifier: BSD-3-Clause
// The file's content, byte by byte, and what several processes do to it, some of which die.
#include "rendezvous/store/file_store.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/store/prefix_store.hpp"
#include "tests/rendezvous/store/allocation_meter.hpp"
#include "tests/rendezvous/store/failure_of.hpp"
#include "tests/rendezvous/store/hex.hpp"
#include "tests/support/process.hpp"

namespace ddp::rendezvous {
namespace {

using namespace std::chrono_literals;
using testing::kDeadline;
using testing::TemporaryFolder;

// Bytes that torch 2.15.0 writes for FileStore(path, 2), set k=v, add n 5, delete k.
constexpr char kOpened[] = "09000000 726566636f756e742f 01000000 31";
constexpr char kSetK[] = "02000000 2f6b 01000000 76";
constexpr char kAddN[] = "02000000 2f6e 01000000 35";
constexpr char kDeleteK[] = "03000000 2d2f6b 00000000";
constexpr char kClosed[] = "08000000 636c65616e75702f 01000000 31  09000000 726566636f756e742f 01000000 30";

// Runs `body` in a child process, which then ends without running destructors.
pid_t in_child(const std::function<void()>& body) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  try {
    body();
  } catch (const std::exception& e) {
    std::cerr << e.what() << std::endl;
    ::_exit(1);
  }
  ::_exit(0);
}

bool ended_well(pid_t child) {
  int status = 0;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool no_child_left() { return ::waitpid(-1, nullptr, WNOHANG) == -1 && errno == ECHILD; }

TEST_CASE("file store: writes the bytes that torch writes", "[rendezvous][unit]") {
  const TemporaryFolder folder;
  const std::string path = folder / "store";
  {
    FileStore store(path, 2, kDeadline);
    store.set("k", "v");
    store.add("n", 5);
    store.delete_key("k");
    CHECK(to_hex(testing::read_file(path)) ==
          to_hex(from_hex(kOpened) + from_hex(kSetK) + from_hex(kAddN) + from_hex(kDeleteK)));
  }
  CHECK(to_hex(testing::read_file(path)) ==
        to_hex(from_hex(kOpened) + from_hex(kSetK) + from_hex(kAddN) + from_hex(kDeleteK) + from_hex(kClosed)));
}

TEST_CASE("file store: the last of world_size to leave removes the file", "[rendezvous][unit]") {
  const TemporaryFolder folder;
  const std::string path = folder / "store";
  auto first = std::make_unique<FileStore>(path, 2, kDeadline);
  auto second = std::make_unique<FileStore>(path, 2, kDeadline);
  first.reset();
  CHECK(std::filesystem::exists(path));
  second.reset();
  CHECK_FALSE(std::filesystem::exists(path));
  { const FileStore nobodys(path, -1, kDeadline); }
  CHECK(std::filesystem::exists(path));
}

TEST_CASE("file store: processes that share a file lose nothing", "[rendezvous][unit]") {
  const TemporaryFolder folder;
  const std::string path = folder / "store";
  constexpr int kProcesses = 4;
  constexpr int kEach = 100;
  FileStore store(path, -1, kDeadline);
  std::vector<pid_t> children;
  for (int rank = 0; rank < kProcesses; ++rank) {
    children.push_back(in_child([&] {
      FileStore mine(path, -1, kDeadline);
      for (int i = 0; i < kEach; ++i) {
        mine.add("n", 1);
        mine.append("log", ".");
      }
      mine.set("rank " + std::to_string(rank), "done");
      mine.barrier("all", kProcesses, kDeadline);
      if (!mine.check({"rank 0", "rank 1", "rank 2", "rank 3"})) ::_exit(2);
    }));
  }
  for (const pid_t child : children) CHECK(ended_well(child));
  CHECK(store.get("n") == std::to_string(kProcesses * kEach));
  CHECK(store.get("log").size() == kProcesses * kEach);
  CHECK(no_child_left());
}

TEST_CASE("file store: readers ignore half a record at the end, and the next writer cuts it off",
          "[rendezvous][unit]") {
  const TemporaryFolder folder;
  const std::string path = folder / "store";
  const std::string whole = from_hex(kOpened) + from_hex(kSetK);
  const std::string last = from_hex(kAddN);
  for (std::size_t size = 1; size < last.size(); ++size) {
    testing::write_file(path, whole);
    FileStore store(path, -1, kDeadline);
    const std::string before = testing::read_file(path);
    testing::write_file(path, before + last.substr(0, size));
    CHECK(store.get("k") == "v");
    CHECK_FALSE(store.check({"n"}));
    CHECK(failure_of([&] { store.get("n", 1ms); }).code == ErrorCode::Timeout);
    store.set("k", "v");
    CHECK(to_hex(testing::read_file(path)) == to_hex(before + from_hex(kSetK)));
  }
}

TEST_CASE("file store: a killed process is still counted, so the file stays with its content", "[rendezvous][unit]") {
  const TemporaryFolder folder;
  const std::string path = folder / "store";
  CHECK(ended_well(in_child([&] { FileStore(path, 1, kDeadline).set("by", "the dead"); })));
  CHECK_FALSE(std::filesystem::exists(path));  // it ended its store
  CHECK(ended_well(in_child([&] {
    FileStore store(path, 1, kDeadline);
    store.set("by", "the dead");
    ::_exit(0);
  })));
  {
    FileStore next(path, 1, kDeadline);
    CHECK(next.get("by") == "the dead");
  }
  CHECK(std::filesystem::exists(path));
  CHECK(no_child_left());
}

TEST_CASE("file store: a file of another kind is refused and left as it is", "[rendezvous][unit]") {
  const TemporaryFolder folder;
  const std::string path = folder / "notes.txt";
  for (const std::string& text : {std::string("What to buy: bread"), std::string("Hi!\n"), std::string(100, '\0')}) {
    testing::write_file(path, text);
    const Failure failure = failure_of([&] { FileStore(path, 1, kDeadline); });
    CHECK(failure.code == ErrorCode::Corrupt);
    CHECK(failure.message == "file store " + path + ": what is at byte 0 is no record (is it another kind of file?)");
    CHECK(testing::read_file(path) == text);
  }
}

TEST_CASE("file store: sizes that a file has or claims, but did not fill, are refused and take no memory",
          "[rendezvous][unit]") {
  const TemporaryFolder folder;
  const std::string path = folder / "store";
  const auto refused = [&](const std::string& content, off_t size) {
    const Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    REQUIRE(::write(file.get(), content.data(), content.size()) == static_cast<ssize_t>(content.size()));
    REQUIRE(::ftruncate(file.get(), size) == 0);
    reset_largest_allocation();
    const Failure failure = failure_of([&] { FileStore(path, 2, kDeadline); });
    CHECK(failure.code == ErrorCode::Corrupt);
    CHECK(largest_allocation() < 32 << 20);
    return failure.message;
  };
  CHECK_THAT(refused("", off_t{1} << 40), Catch::Contains("what is at byte 0 is no record"));
  CHECK_THAT(refused(from_hex("02000000 2f6b ffffffff"), off_t{1} << 40),
             Catch::Contains("the record at byte 0 claims a value of 4294967295 bytes"));
}

TEST_CASE("file store: records that are longer than one read are read whole", "[rendezvous][unit]") {
  const TemporaryFolder folder;
  const std::string path = folder / "store";
  const std::string large(5 << 20, 'l');
  FileStore writer(path, -1, kDeadline);
  writer.set("before", "b");
  writer.set("large", large);
  writer.set("after", "a");
  FileStore reader(path, -1, kDeadline);
  CHECK(reader.multi_get({"before", "large", "after"}, kDeadline) == std::vector<std::string>{"b", large, "a"});
}

TEST_CASE("file store: a lock that is never released is a timeout that says so", "[rendezvous][unit]") {
  const TemporaryFolder folder;
  const std::string path = folder / "store";
  FileStore store(path, -1, kDeadline);
  const int holder = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  REQUIRE(::flock(holder, LOCK_EX) == 0);
  store.set_timeout(30ms);
  const Failure failure = failure_of([&] { store.set("k", "v"); });
  ::close(holder);
  CHECK(failure.code == ErrorCode::Timeout);
  CHECK(failure.message == "file store " + path + ": another process kept it locked for 30 ms (is one stopped?)");
  CHECK_NOTHROW(store.set("k", "v"));
}

TEST_CASE("file store: a missing folder is an error at once", "[rendezvous][unit]") {
  const TemporaryFolder folder;
  const std::string path = folder / "none/store";
  CHECK(failure_of([&] { FileStore(path, 1, kDeadline); }).message ==
        "file store " + path + ": opening it: No such file or directory (is its folder there?)");
}

TEST_CASE("file store: a file that was removed is created again", "[rendezvous][unit]") {
  const TemporaryFolder folder;
  const std::string path = folder / "store";
  FileStore store(path, -1, kDeadline);
  store.set("old", "");
  std::filesystem::remove(path);
  CHECK_FALSE(store.check({"old"}));
  store.set("new", "");
  CHECK(to_hex(testing::read_file(path)) == to_hex(from_hex("04000000 2f6e6577 00000000")));
}

TEST_CASE("file store: has no queues, and says what has", "[rendezvous][unit]") {
  const TemporaryFolder folder;
  FileStore store(folder / "store", 1, kDeadline);
  PrefixStore prefixed("prefix", store);
  CHECK(store.queues() == nullptr);
  CHECK(prefixed.queues() == nullptr);
  const Failure failure = failure_of([&] { queues_of(prefixed); });
  CHECK(failure.code == ErrorCode::InvalidArgument);
  CHECK_THAT(failure.message, Catch::StartsWith(store.name()));
  CHECK_THAT(failure.message, Catch::EndsWith("a file has no queues, here as in PyTorch; use a TcpStore"));
}

}  // namespace
}  // namespace ddp::rendezvous
