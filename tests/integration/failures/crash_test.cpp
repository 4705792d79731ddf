// SPDX-License-Identifier: BSD-3-Clause
// C++ workers that use libddp and crash. ddprun's report says why and where, and they die as they
// would without libddp.
#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/integration/ddprun.hpp"

using namespace ddp::testing;
using nlohmann::json;

namespace {

Result crash(const std::vector<std::string>& how, const Process::Options& options = {}) {
  std::vector<std::string> words = {CRASHING_WORKER_BINARY};
  words.insert(words.end(), how.begin(), how.end());
  Process job(ddprun_raw(words), options);
  Result result = job.wait();
  CHECK(job.left_over().empty());
  return result;
}

// Runs a worker without a launcher but with an error file. Returns the file's content, or null.
json record_of(const std::vector<std::string>& how, int code) {
  const TemporaryFolder folder;
  Process::Options options;
  options.environment = {{"TORCHELASTIC_ERROR_FILE", folder / "error.json"}};
  std::vector<std::string> words = {CRASHING_WORKER_BINARY};
  words.insert(words.end(), how.begin(), how.end());
  const Result result = run(words, options);
  CAPTURE(result.out, result.err);
  CHECK(result.code == code);
  const auto entries = std::filesystem::directory_iterator(folder.path());
  CHECK(std::distance(begin(entries), end(entries)) <= 1);  // no temporary file is left
  const std::string path = folder / "error.json";
  return std::filesystem::exists(path) ? json::parse(read_file(path)) : json();
}

}  // namespace

TEST_CASE("crash: the report has the reason and a backtrace, the exit code is the signal's", "[runtime][integration]") {
  const struct {
    const char* how;
    int signal;
    const char* says;
  } rows[] = {
      {"segv", SIGSEGV, "    | SIGSEGV at address 0x0\n"},
      {"bus", SIGBUS, "    | SIGBUS at address 0x"},
      {"fpe", SIGFPE, "    | SIGFPE at address 0x"},
      {"ill", SIGILL, "    | SIGILL at address 0x"},
      {"abort", SIGABRT, "    | SIGABRT\n"},
      {"sys", SIGSYS, "    | SIGSYS\n"},
      {"trap", SIGTRAP, "    | SIGTRAP\n"},
      {"kill", SIGSEGV, "    | SIGSEGV\n"},
      {"overflow", SIGSEGV, " (stack overflow)\n"},
      {"throw", SIGABRT, "    | uncaught exception std::runtime_error: loss is \"NaN\"\n"},
      {"throw number", SIGABRT, "    | uncaught exception int\n"},
      {"terminate", SIGABRT, "    | std::terminate was called, with no exception\n"},
      {"check", SIGABRT, "this should not happen: zero == 1 is false [0]\n"},
  };
  for (const auto& row : rows) {
    const Result result = crash({row.how});
    CAPTURE(row.how, result.err);
    CHECK(result.code == 128 + row.signal);
    CHECK(count(result.err, row.says) >= 1);
    CHECK(count(result.err, "    | backtrace:") == 1);
    CHECK(count(result.err, "stack overflow") == (row.how == std::string("overflow") ? 1 : 0));
    // The overflowing stack is deeper than a backtrace.
    if (row.how != std::string("overflow")) CHECK(count(result.err, "(crash_here+0x") == 1);
  }
}

TEST_CASE("crash: a session records crashes without being asked", "[runtime][integration]") {
  CHECK(count(crash({"segv", "after init"}).err, "(crash_here+0x") == 1);
}

TEST_CASE("crash: the groups' last operations are written too, and the report says where", "[runtime][integration]") {
  const TemporaryFolder folder;  // the report names a file, so the folder is kept
  Process::Options options;
  options.environment = {{"TMPDIR", folder.path()}};
  for (const char* how : {"segv", "throw"}) {
    const Result result = crash({how, "after init"}, options);
    CAPTURE(result.err);
    const std::string label = "  last operations of rank 0 on ";
    const auto at = result.err.find(label);
    REQUIRE(at != std::string::npos);
    const std::string line = result.err.substr(at, result.err.find('\n', at) - at);
    const std::string path = line.substr(line.find(": ") + 2);
    const json file = json::parse(read_file(path));
    CHECK(count(file["why"], how == std::string("segv") ? "SIGSEGV at address 0x0" : "uncaught exception") == 1);
    CHECK(file["groups"][0]["name"] == "world");
  }
}

TEST_CASE("crash: in another thread it is recorded too, with its stack overflow if the thread asked for it",
          "[runtime][integration]") {
  const Result plain = crash({"segv", "in a thread"});
  CHECK(plain.code == 128 + SIGSEGV);
  CHECK(count(plain.err, "SIGSEGV at address 0x0, in thread ") == 1);
  CHECK(count(plain.err, "(crash_here+0x") == 1);
  const Result deep = crash({"overflow", "in a thread with handlers"});
  CHECK(deep.code == 128 + SIGSEGV);
  CHECK(count(deep.err, ", in thread ") == 1);
  CHECK(crash({"overflow", "in a thread"}).code == 128 + SIGSEGV);
}

TEST_CASE("crash: of threads that crash at once one is recorded whole, twenty times", "[runtime][integration]") {
  for (int i = 0; i < 20; ++i) {
    const json record = record_of({"segv", "in threads"}, 128 + SIGSEGV);
    REQUIRE(record.is_object());
    CHECK(record["message"]["extraInfo"]["py_callstack"].get<std::string>().find("crash_here") != std::string::npos);
  }
}

TEST_CASE("crash: a stack that cannot be walked costs the backtrace only", "[runtime][integration]") {
  const Result result = crash({"jump"});
  CHECK(result.code == 128 + SIGSEGV);
  CHECK(count(result.err, "SIGSEGV at address 0x0") >= 1);
}

TEST_CASE("crash: a crash within the handler costs only the backtrace, and does not change how the worker dies",
          "[runtime][integration]") {
  const Result lost = crash({"no stack"});
  CHECK(lost.code == 128 + SIGSEGV);
  CHECK(count(lost.err, "    | SIGSEGV at address 0x") == 1);
  const Result aborted = crash({"abort with no stack"});
  CHECK(aborted.code == 128 + SIGABRT);
  CHECK(count(aborted.err, "    | SIGABRT\n") == 1);
}

TEST_CASE("crash: the C++ runtime still says its words", "[runtime][integration]") {
  CHECK(count(crash({"throw"}).err, "terminate called after throwing an instance of 'std::runtime_error'") >= 1);
}

TEST_CASE("crash: handlers installed by others are kept", "[runtime][integration]") {
  CHECK(record_of({"segv", "own handler"}, 42).is_null());
  CHECK(record_of({"segv", "after words"}, 128 + SIGSEGV)["message"]["message"] == "words of its own");
  CHECK(record_of({"segv", "in a child"}, 3).is_null());
}

TEST_CASE("crash: DDP_FAILURE_HANDLERS=0 turns it off", "[runtime][integration]") {
  Process::Options off;
  off.environment = {{"DDP_FAILURE_HANDLERS", "0"}};
  for (const char* how : {"segv", "throw"}) {
    const Result result = crash({how}, off);
    CHECK(result.code > 128);
    CHECK(count(result.err, "backtrace:") == 0);
  }
}

TEST_CASE("crash: the record is JSON that torchrun reads, whatever it quotes", "[runtime][integration]") {
  for (const char* how : {"segv", "throw"}) {
    const json message = record_of({how}, how == std::string("segv") ? 128 + SIGSEGV : 128 + SIGABRT).at("message");
    CHECK(std::stol(message.at("extraInfo").at("timestamp").get<std::string>()) > 1'700'000'000);
    CHECK(message.at("message").is_string());
    CHECK(message.at("extraInfo").at("py_callstack").get<std::string>().find("\nbacktrace:\n") != std::string::npos);
  }
}
