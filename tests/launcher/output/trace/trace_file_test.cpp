// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/output/trace/trace_file.hpp"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "launcher/output/trace/trace_event.hpp"
#include "rendezvous/base/error.hpp"
#include "tests/support/process.hpp"

using namespace ddp::launcher;
using namespace ddp::testing;
using nlohmann::json;

namespace {

const auto no_line = [](const std::string& line) { FAIL("it says: " + line); };

}  // namespace

TEST_CASE("trace file: it is whole JSON once closed, and lacks only the end before", "[launcher][unit]") {
  const TemporaryFolder folder;
  TraceFile file(folder / "trace.json", no_line);
  file.write(trace_begin("round \"1\"\n", track_of_node(0), 1'234'567));
  const std::string before = read_file(folder / "trace.json");
  CHECK(json::parse(before.substr(0, before.rfind(',')) + "]").size() == 1);
  file.close();
  const json events = json::parse(read_file(folder / "trace.json"));
  REQUIRE(events.size() == 2);
  CHECK(events[0]["name"] == "round \"1\"\n");
  CHECK(events[0]["ts"] == 1234.567);
}

TEST_CASE("trace file: it replaces a file or a link that is there, and never writes through one", "[launcher][unit]") {
  const TemporaryFolder folder;
  const std::string victim = folder.write("victim", "precious");
  REQUIRE(symlink(victim.c_str(), (folder / "trace.json").c_str()) == 0);
  TraceFile(folder / "trace.json", no_line).close();
  CHECK(read_file(victim) == "precious");
  CHECK(std::filesystem::is_regular_file(std::filesystem::symlink_status(folder / "trace.json")));
  CHECK_THROWS_AS(TraceFile(folder / "no/such/folder", no_line), ddp::rendezvous::Error);
}

TEST_CASE("trace file: it takes in the parts of its job, whole lines only, and leaves those of others",
          "[launcher][unit]") {
  const TemporaryFolder folder;
  const std::string path = folder / "trace[1].json";
  const auto part = [&](const std::string& host, const std::string& epoch, const std::string& end) {
    const std::string at = trace_part(path, host, "0123");
    write_file(at, "[\n" + trace_part_line(epoch) + trace_begin(host, track_of_node(1), 5) + end);
    return at;
  };
  const std::string whole = part("b", "mine", "{\"name\":\"end\",\"ph\":\"M\",\"pid\":0,\"tid\":0}\n]\n");
  const std::string killed = part("c", "mine", "{\"name\":\"half");
  const std::string other = part("d", "another job's", "]\n");
  REQUIRE(symlink((folder / "elsewhere").c_str(), trace_part(path, "e", "0").c_str()) == 0);
  TraceFile file(path, no_line);
  file.take_in_parts("mine");
  file.close();
  std::string names;
  for (const json& event : json::parse(read_file(path))) names += event["name"].get<std::string>() + ";";
  CHECK(names == "part of;b;part of;c;end of the trace;");
  CHECK_FALSE(std::filesystem::exists(whole));
  CHECK_FALSE(std::filesystem::exists(killed));
  CHECK(std::filesystem::exists(other));
}

TEST_CASE("trace file: a full disk ends it at a whole line, with a word about it", "[launcher][unit]") {
  std::string said;
  const TemporaryFolder folder;
  const pid_t child = fork();  // the limit is of a whole process
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {1000, 1000};
    setrlimit(RLIMIT_FSIZE, &limit);
    TraceFile file(folder / "trace.json", [&said](const std::string& line) { said += line; });
    for (int i = 0; i < 50; ++i) file.write(trace_begin("round", track_of_node(0), i));
    file.close();
    _exit(said.find("ends here") != std::string::npos ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  const std::string text = read_file(folder / "trace.json");
  CHECK(text.size() <= 1000);
  CHECK_FALSE(json::parse(text.substr(0, text.rfind(',')) + "]").empty());
  CHECK(text.substr(text.size() - 3) == "},\n");
}
