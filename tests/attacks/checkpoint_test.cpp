// SPDX-License-Identifier: BSD-3-Clause
// Checkpoints that somebody else wrote, and folders in which others may write. Programs read them
// through libddp.
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "ddp/ddp.hpp"
#include "rendezvous/base/descriptor.hpp"
#include "runtime/training/tensor_file/checksum.hpp"
#include "tests/support/process.hpp"

using Catch::Matchers::Contains;
using ddp::testing::count;
using ddp::testing::read_file;
using ddp::testing::TemporaryFolder;
using ddp::testing::write_file;
namespace fs = std::filesystem;

namespace {

constexpr rlim_t kMemory = 256 << 20;  // bytes, for what a small checkpoint says; and what the process has already
constexpr unsigned kSeconds = 30;      // after which an attempt is ended
constexpr std::size_t kCount = 10;     // elements of each checkpoint's only tensor

rlim_t address_space() {
  std::ifstream file("/proc/self/statm");
  rlim_t pages = 0;
  file >> pages;
  return pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
}

// Returns what `body` returns, or what it throws, or how its process ended. It has a process of its
// own, with little memory and time.
std::string attempt(const std::function<std::string()>& body) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("pipe");
  const pid_t pid = fork();
  if (pid == 0) {
    struct rlimit limit = {address_space() + kMemory, RLIM_INFINITY};
    setrlimit(RLIMIT_AS, &limit);
    for (const int number : {SIGSEGV, SIGABRT, SIGALRM}) signal(number, SIG_DFL);
    alarm(kSeconds);
    std::string text;
    try {
      text = body();
    } catch (const std::exception& e) {
      text = e.what();
    }
    _exit(write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string text;
  char part[4096];
  for (ssize_t got; (got = read(ends[0], part, sizeof part)) > 0;) text.append(part, static_cast<std::size_t>(got));
  close(ends[0]);
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFSIGNALED(status) ? "killed by signal " + std::to_string(WTERMSIG(status)) : text;
}

void save(const std::string& folder, std::int64_t step) {
  std::vector<float> values(kCount);
  std::iota(values.begin(), values.end(), static_cast<float>(step));
  ddp::CheckpointFolder(folder).save(step, {{"w", values.data(), ddp::DType::Float32, {kCount}}}, {});
}

// Opens, verifies and reads a checkpoint, and says what was read.
std::string load(const std::string& path) {
  return attempt([&] {
    const ddp::Checkpoint checkpoint(path);
    checkpoint.verify();
    std::vector<float> values(kCount, -1);
    checkpoint.read("w", values, {kCount});
    return "read " + std::to_string(values.front()) + " to " + std::to_string(values.back());
  });
}

// Loads the newest checkpoint that is good, and says which that is and what is wrong with the others.
std::string load_newest(const std::string& folder) {
  return attempt([&] {
    std::string skipped;
    ddp::CheckpointFolder checkpoints(folder);
    const auto newest = checkpoints.latest_valid([&](const std::string& why) { skipped += "skipped: " + why + "\n"; });
    return skipped + "step " + std::to_string(newest.value().step());
  });
}

// Gives a record the checksum that belongs to it: that is no secret.
std::string signed_record(const std::string& body) {
  return "{\"checksum\":\"" + ddp::runtime::checksum_to_string(ddp::runtime::checksum(body.data(), body.size())) +
         "\",\n" + body;
}

std::string safetensors(const std::string& header, const std::string& data) {
  const std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header + data;
}

// A folder with the checkpoints of steps 1 and 2, of which the newer one is forged.
class ForgedStep {
 public:
  ForgedStep() {
    save(folder_.path(), 1);
    save(folder_.path(), 2);
    const std::string record = read_file(record_path());
    body_ = record.substr(record.find('\n') + 1);
    REQUIRE(load(path()) == "read 2.000000 to 11.000000");
  }

  std::string path() const { return folder_ / "step-000000002"; }
  std::string record_path() const { return path() + "/checkpoint.json"; }
  std::string shard_path() const { return path() + "/model.safetensors"; }
  const std::string& folder() const { return folder_.path(); }

  void replace(const std::string& from, const std::string& to) {
    const std::size_t at = body_.find(from);
    REQUIRE(at != std::string::npos);
    body_.replace(at, from.size(), to);
    write_file(record_path(), signed_record(body_));
  }
  const std::string& body() const { return body_; }

  // Checks that the forged step is refused for this reason, and that the one before it is found.
  void check_refused(const std::string& why) const {
    CHECK_THAT(load(path()), Contains(why) && Contains("checkpoint " + path()));
    const std::string newest = load_newest(folder());
    CHECK_THAT(newest, Contains("skipped: ") && Contains(why));
    CHECK(count(newest, "\nstep 1") == 1);
  }

 private:
  TemporaryFolder folder_;
  std::string body_;
};

}  // namespace

TEST_CASE("forged checkpoint: a record whose parts do not make up a tensor is refused, and the older step is used",
          "[attacks][integration]") {
  ForgedStep step;
  const std::size_t begin = step.body().find("\"parts\":[") + 9;
  const std::string part = step.body().substr(begin, step.body().find("}]", begin) + 1 - begin);
  const std::string shape = "\"offset\":[0],\"shape\":[10]";
  REQUIRE_THAT(part, Contains(shape) && Contains("\"begin\":64,"));
  SECTION("no parts") {
    step.replace(part, "");
    step.check_refused("its parts end at 64");
  }
  SECTION("half of the file") {
    step.replace(shape, "\"offset\":[0],\"shape\":[5]");
    step.check_refused("its parts end at 84");
  }
  SECTION("half of the tensor") {
    step.replace("\"F32\",\"shape\":[10]", "\"F32\",\"shape\":[20]");
    step.check_refused("tensor w is not whole: 10 of the 20 elements of [20] are missing");
  }
  SECTION("one half of the tensor twice") {
    std::string first = part, second = part;
    first.replace(first.find(shape), shape.size(), "\"offset\":[0],\"shape\":[5]");
    second.replace(second.find(shape), shape.size(), "\"offset\":[0],\"shape\":[5]");
    second.replace(second.find(":64,"), 4, ":84,");
    step.replace(part, first + "," + second);
    step.check_refused("tensor w is not whole: [0:5] of [10] is given twice");
  }
  SECTION("one of fewer dimensions than the tensor") {
    step.replace(shape, "\"offset\":[0],\"shape\":[]");
    step.check_refused("a part [] at [0] that cannot be");
  }
  SECTION("one of more dimensions than the tensor") {
    step.replace(shape, "\"offset\":[0,0,0],\"shape\":[10,1,1]");
    step.check_refused("that cannot be");
  }
}

TEST_CASE("forged checkpoint: what is no regular file of the checkpoint's folder is not opened",
          "[attacks][integration]") {
  const ForgedStep step;
  const std::string file = GENERATE(std::string("checkpoint.json"), std::string("model.safetensors"));
  const std::string path = step.path() + "/" + file;
  const TemporaryFolder elsewhere;
  INFO(file);
  fs::rename(path, elsewhere / "file");
  SECTION("a FIFO") {
    REQUIRE(mkfifo(path.c_str(), 0600) == 0);
    step.check_refused(file + ": it is not a regular file");
  }
  SECTION("a socket") {
    const ddp::rendezvous::Descriptor socket(::socket(AF_UNIX, SOCK_STREAM, 0));
    sockaddr_un address = {AF_UNIX, {}};
    REQUIRE(path.copy(address.sun_path, sizeof address.sun_path - 1) == path.size());
    REQUIRE(bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    step.check_refused(file + ": it is not a regular file");
  }
  SECTION("a folder") {
    fs::create_directory(path);
    step.check_refused(file + ": it is not a regular file");
  }
  SECTION("a link to the file itself, in another folder") {
    fs::create_symlink(elsewhere / "file", path);
    step.check_refused(file + ": it is a symbolic link");
  }
  SECTION("a link to a device") {
    fs::create_symlink("/dev/zero", path);
    step.check_refused(file + ": it is a symbolic link");
  }
}

TEST_CASE("forged checkpoint: a plain file that is a FIFO or a device is refused at once", "[attacks][integration]") {
  const TemporaryFolder folder;
  REQUIRE(mkfifo((folder / "pipe").c_str(), 0600) == 0);
  CHECK_THAT(load(folder / "pipe"), Contains("it is not a regular file"));
  CHECK_THAT(load("/dev/zero"), Contains("it is not a regular file"));
}

TEST_CASE("forged checkpoint: announced sizes cost no memory", "[attacks][integration]") {
  ForgedStep step;
  SECTION("a header of 8 GiB in a file that has as much") {
    const std::size_t bytes = step.body().find("\"bytes\":") + 8;
    const std::size_t header = step.body().find("\"header_bytes\":") + 15;
    const std::string old_bytes = step.body().substr(bytes, step.body().find(',', bytes) - bytes);
    const std::string old_header = step.body().substr(header, step.body().find(',', header) - header);
    step.replace("\"header_bytes\":" + old_header, "\"header_bytes\":8589934592");
    step.replace("\"bytes\":" + old_bytes, "\"bytes\":8589934632");
    fs::resize_file(step.shard_path(), 8589934632);  // has holes instead of blocks
    step.check_refused("cannot have a header of 8589934592 bytes");
  }
  SECTION("a record of 1 TiB") {
    fs::resize_file(step.record_path(), 1ULL << 40);
    step.check_refused("too many for the record of a checkpoint");
  }
}

TEST_CASE("forged checkpoint: 8 MB of brackets cost neither the stack nor memory", "[attacks][integration]") {
  const std::string brackets(8 << 20, '[');
  const TemporaryFolder folder;
  write_file(folder / "plain", safetensors("{\"w\":" + brackets, ""));
  CHECK_THAT(load(folder / "plain"), Contains("w is not an object"));
  write_file(folder / "plain", safetensors("{\"w\":{\"x\":" + brackets, ""));
  CHECK_THAT(load(folder / "plain"), Contains("nested more than 32 deep"));
  ForgedStep step;
  step.replace("\"metadata\":{}", "\"metadata\":{},\"x\":" + brackets);
  step.check_refused("nested more than 32 deep");
}

TEST_CASE("forged checkpoint: the time to read it grows with its size and no faster", "[attacks][integration]") {
  const TemporaryFolder folder;
  SECTION("100,000 tensors") {
    std::string header = "{\"w\":{\"dtype\":\"F32\",\"shape\":[10],\"data_offsets\":[0,40]}";
    for (int i = 0; i < 100'000; ++i) {
      header += ",\"experts." + std::to_string(i) + "\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[40,40]}";
    }
    write_file(folder / "plain", safetensors(header + "}", std::string(40, '\0')));
  }
  SECTION("900,000 entries that nobody knows") {
    std::string header = "{\"w\":{\"dtype\":\"F32\",\"shape\":[10],\"data_offsets\":[0,40]";
    for (int i = 0; i < 900'000; ++i) header += ",\"" + std::to_string(i) + "\":0";
    write_file(folder / "plain", safetensors(header + "}}", std::string(40, '\0')));
  }
  const auto begin = std::chrono::steady_clock::now();
  CHECK(load(folder / "plain") == "read 0.000000 to 0.000000");
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10));  // half a minute or more at worst
}

TEST_CASE("forged checkpoint: a name in it does nothing to the terminal on which the error is shown",
          "[attacks][integration]") {
  const TemporaryFolder folder;
  write_file(folder / "plain",
             safetensors(R"({"\u001b]0;title\u0007":{"dtype":"F32","shape":[1],"data_offsets":[0,0]}})", ""));
  CHECK_THAT(load(folder / "plain"), Contains("tensor ?]0;title?: bytes 0 to 0 cannot be [1] of F32"));
  write_file(folder / "plain",
             safetensors(R"({"w":{"dtype":"\u001b]0;title\u0007","shape":[],"data_offsets":[0,0]}})", ""));
  CHECK_THAT(load(folder / "plain"), Contains("tensor w: \"?]0;title?\" is no type's name"));
  write_file(folder / "plain", safetensors(R"({"w":{"dtype":"\u009b2J\u202e","shape":[],"data_offsets":[0,0]}})", ""));
  CHECK_THAT(load(folder / "plain"), Contains("tensor w: \"??2J???\" is no type's name"));
}

TEST_CASE("shared folder: a checkpoint is not written through links that others have planted",
          "[attacks][integration]") {
  const TemporaryFolder folder;
  const std::string victim = folder.write("victim", "precious");
  const std::vector<float> values(kCount);
  // A name with the number of the process and of the file can be guessed.
  for (int i = 0; i < 100; ++i) {
    fs::create_symlink(victim, folder / ("model.tmp." + std::to_string(getpid()) + "." + std::to_string(i)));
  }
  ddp::save_checkpoint(folder / "model", {{"w", values.data(), ddp::DType::Float32, {kCount}}}, {});
  CHECK(read_file(victim) == "precious");
  CHECK(load(folder / "model") == "read 0.000000 to 0.000000");
}
