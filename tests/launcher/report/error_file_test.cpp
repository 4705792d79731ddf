// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/report/error_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <future>
#include <nlohmann/json.hpp>

#include "rendezvous/base/descriptor.hpp"
#include "tests/support/process.hpp"

using namespace ddp::launcher;
using ddp::rendezvous::WorkerFailure;
using ddp::testing::read_file;
using ddp::testing::TemporaryFolder;
using nlohmann::json;

namespace {

ErrorFile read(const std::string& bytes) {
  const TemporaryFolder folder;
  return read_error_file(folder.write("error.json", bytes));
}

constexpr char kTorch[] =
    R"({"message": {"message": "ValueError: no", "extraInfo": {"py_callstack": "Traceback\nValueError: no\n", "timestamp": "17"}}})";

WorkerFailure cause(const std::string& record, int code, int signal) {
  WorkerFailure failure;
  failure.rank = 3;
  failure.host = "b";
  failure.status = {code, signal};
  failure.time = ddp::rendezvous::WallTime(std::chrono::seconds(42));
  failure.error_record = record;
  return failure;
}

}  // namespace

TEST_CASE("error file: both of PyTorch's shapes are read", "[launcher][unit]") {
  CHECK(read(kTorch).text == "Traceback\nValueError: no");
  CHECK(json::parse(read(kTorch).record) == json::parse(kTorch));
  CHECK(read(kTorch).unix_seconds == 17);
  CHECK(read(R"({"message": "plain", "timestamp": 17})").text == "plain");
  CHECK_FALSE(read(R"({"message": "plain", "timestamp": 17})").record.empty());
  CHECK_FALSE(read(R"({"message": "plain", "timestamp": "17"})").record.empty());
  CHECK(read(R"({"message": {"message": "a", "extraInfo": {"py_callstack": "b", "timestamp": 17}}})").text == "a\nb");
}

TEST_CASE("error file: content of another shape is quoted, and never passed on", "[launcher][unit]") {
  for (const char* bytes : {"{\"mess", "[1, 2]", "\"text\"", "7", "{\"other\": 1}", "{\"message\": 7}", "words",
                            R"({"message": {"message": 7}})", R"({"message": {"extraInfo": []}})"}) {
    CAPTURE(bytes);
    CHECK(read(bytes).text == bytes);
    CHECK(read(bytes).record.empty());
  }
  // ddprun can read these, but torchrun's agent would fail on them.
  const ErrorFile timeless = read(R"({"message": {"message": "a", "extraInfo": {"timestamp": "soon"}}})");
  CHECK((timeless.text == "a" && timeless.record.empty()));
  CHECK(read(R"({"message": "a"})").record.empty());
  CHECK((read("").text.empty() && read("").record.empty()));
}

TEST_CASE("error file: bytes that are not text, and escape sequences, do nothing to a terminal", "[launcher][unit]") {
  CHECK(read("{\"mess\xff\x1b]0;title\a\x1b[2J\x01").text == "{\"mess\xef\xbf\xbd\\x01");
  CHECK(read(R"({"message": "a\u001b[31mb\u009bc\u0000", "timestamp": 1})").text == "ab\\u009bc\\x00");
}

TEST_CASE("error file: only the first MiB of an endless one is read", "[launcher][unit]") {
  CHECK(read(std::string(3 << 20, 'x')).text.size() == 1 << 20);
}

TEST_CASE("error file: one that is nested deeply is shown as it is, and passed on to nobody", "[launcher][unit]") {
  const auto nested = [](std::size_t depth) {
    return R"({"message": {"message": "x", "extraInfo": {"timestamp": "17"}, "more": )" + std::string(depth, '[') +
           std::string(depth, ']') + "}}";
  };
  CHECK(read(nested(30)).text == "x");
  CHECK_FALSE(read(nested(30)).record.empty());
  for (const std::size_t depth : {std::size_t{40}, std::size_t{300'000}}) {
    CAPTURE(depth);
    CHECK(read(nested(depth)).record.empty());
    CHECK(read(nested(depth)).text == nested(depth));
    // It may have come from another node.
    CHECK(json::parse(record_for_parent(cause(nested(depth), 1, 0))).at("message").at("message") ==
          "rank 3 on node b exited with code 1");
  }
}

TEST_CASE("error file: a folder, a pipe, a device or nothing in its place causes no error and no wait",
          "[launcher][unit]") {
  const TemporaryFolder folder;
  REQUIRE(mkfifo((folder / "pipe").c_str(), 0600) == 0);
  REQUIRE(symlink("/dev/zero", (folder / "zero").c_str()) == 0);
  REQUIRE(symlink((folder / "circle").c_str(), (folder / "circle").c_str()) == 0);
  for (const std::string& path :
       {folder.path(), folder / "pipe", folder / "zero", folder / "circle", folder / "nothing", std::string()}) {
    CAPTURE(path);
    CHECK(read_error_file(path).text.empty());
  }
}

TEST_CASE("error file: the parent gets the worker's record with the exit code, which is negative for a signal",
          "[launcher][unit]") {
  json expected = json::parse(kTorch);
  expected["message"]["errorCode"] = 1;
  CHECK(json::parse(record_for_parent(cause(kTorch, 1, 0))) == expected);
  expected["message"]["errorCode"] = -SIGSEGV;
  CHECK(json::parse(record_for_parent(cause(kTorch, 0, SIGSEGV))) == expected);
  const std::string plain = R"({"message": "plain", "timestamp": 17})";
  CHECK(json::parse(record_for_parent(cause(plain, 1, 0))) == json::parse(plain));  // torchrun leaves it as it is
}

TEST_CASE("error file: the parent gets the facts of this job's failure, never those of a job within it",
          "[launcher][unit]") {
  json inner = json::parse(kTorch);
  inner["failure"] = {{"rank", 7}};
  json record = json::parse(record_for_parent(cause(inner.dump(), 1, 0), R"({"rank": 3})"));
  CHECK(record.at("failure") == json{{"rank", 3}});
  record = json::parse(record_for_parent(cause(inner.dump(), 1, 0)));
  CHECK_FALSE(record.contains("failure"));
}

TEST_CASE("error file: if the worker left none, the parent gets one with what is known", "[launcher][unit]") {
  WorkerFailure failure = cause("", 0, SIGKILL);
  failure.stderr_tail = {"last words"};
  const json message = json::parse(record_for_parent(failure)).at("message");
  CHECK(message.at("message") == "rank 3 on node b was killed by SIGKILL");
  CHECK(message.at("errorCode") == -SIGKILL);
  CHECK(message.at("extraInfo").at("py_callstack") == "rank 3 on node b was killed by SIGKILL\nlast words");
  CHECK(message.at("extraInfo").at("timestamp") == "42");
}

TEST_CASE("error file: it replaces an earlier one, but never a device", "[launcher][unit]") {
  const TemporaryFolder folder;
  const std::string path = folder.write("error.json", "an earlier one, which is longer");
  CHECK(write_error_file(path, "new"));
  CHECK(read_file(path) == "new");
  struct stat written = {};
  CHECK((stat(path.c_str(), &written) == 0 && (written.st_mode & 07777) == 0600));
  REQUIRE(symlink("/dev/null", (folder / "null").c_str()) == 0);
  CHECK(write_error_file(folder / "null", "nobody reads this"));
  struct stat status = {};
  CHECK((lstat((folder / "null").c_str(), &status) == 0 && S_ISLNK(status.st_mode)));
  CHECK_FALSE(write_error_file(folder.path(), "a folder"));
  CHECK_FALSE(write_error_file(folder / "none/error.json", "no folder"));
  REQUIRE(mkfifo((folder / "pipe").c_str(), 0600) == 0);
  CHECK_FALSE(write_error_file(folder / "pipe", "nobody reads this"));  // and does not wait for a reader
}

TEST_CASE("error file: a pipe takes a record of any length, as fast as it is read", "[launcher][unit]") {
  const TemporaryFolder folder;
  const std::string path = folder / "pipe";
  REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  std::string record(5 << 20, 'x');
  record += "end";
  const ddp::rendezvous::Descriptor reader(open(path.c_str(), O_RDONLY | O_NONBLOCK));
  REQUIRE(reader);
  REQUIRE(fcntl(reader.get(), F_SETFL, 0) == 0);  // from here on, reads wait while there is a writer
  auto is_written = std::async(std::launch::async, [&] { return write_error_file(path, record); });
  std::string taken;
  char buffer[4096];
  while (true) {
    const ssize_t count = read(reader.get(), buffer, sizeof buffer);
    if (count > 0) taken.append(buffer, static_cast<std::size_t>(count));
    if (count <= 0 && is_written.wait_for(std::chrono::seconds(0)) == std::future_status::ready) break;
  }
  CHECK(is_written.get());
  CHECK(taken == record);
}
