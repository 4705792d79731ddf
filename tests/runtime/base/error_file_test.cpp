// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/base/error_file.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "rendezvous/error_file_schema.hpp"
#include "tests/support/process.hpp"

using ddp::testing::read_file;
using ddp::testing::TemporaryFolder;

TEST_CASE("error file: it has the format of torchrun, whatever bytes the message has", "[runtime][unit]") {
  CHECK(
      ddp::runtime::error_file_text("bad \"loss\"\n", "bad \"loss\"\n", 1700000000) ==
      R"({"message":{"extraInfo":{"py_callstack":"bad \"loss\"\n","timestamp":"1700000000"},"message":"bad \"loss\"\n"}})");
  CHECK(ddp::runtime::error_file_text("\xff", "", 0).find("\xef\xbf\xbd") != std::string::npos);
}

TEST_CASE("error file: a worker's is its user's alone, and no planted link is written through", "[runtime][unit]") {
  const TemporaryFolder folder;
  const std::string victim = folder.write("victim", "precious");
  REQUIRE(symlink(victim.c_str(), (folder / ("error.json.tmp." + std::to_string(getpid()))).c_str()) == 0);
  REQUIRE(setenv("TORCHELASTIC_ERROR_FILE", (folder / "error.json").c_str(), 1) == 0);
  const bool is_written = ddp::runtime::record_error("no more memory");
  unsetenv("TORCHELASTIC_ERROR_FILE");
  CHECK(is_written);
  CHECK(read_file(victim) == "precious");
  CHECK(nlohmann::json::parse(read_file(folder / "error.json")).at("message").at("message") == "no more memory");
  struct stat status = {};
  CHECK((stat((folder / "error.json").c_str(), &status) == 0 && (status.st_mode & 07777) == 0600));
}

TEST_CASE("error file: a signal handler's text and the library's JSON are one record", "[runtime][unit]") {
  namespace schema = ddp::rendezvous::error_file;
  std::string by_hand(schema::kBeforeText);
  by_hand.append("SIGSEGV").append(schema::kBeforeTrace).append("in main");
  by_hand.append(schema::kBeforeTimestamp).append("1700000000").append(schema::kEnd);
  const std::string by_library = ddp::runtime::error_file_text("SIGSEGV", "in main", 1700000000);
  CHECK(nlohmann::json::parse(by_hand) == nlohmann::json::parse(by_library));
}
