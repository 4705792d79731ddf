// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/base/error_file.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "rendezvous/error_file_schema.hpp"

TEST_CASE("error file: it has the format of torchrun, whatever bytes the message has", "[runtime][unit]") {
  CHECK(
      ddp::runtime::error_file_text("bad \"loss\"\n", "bad \"loss\"\n", 1700000000) ==
      R"({"message":{"extraInfo":{"py_callstack":"bad \"loss\"\n","timestamp":"1700000000"},"message":"bad \"loss\"\n"}})");
  CHECK(ddp::runtime::error_file_text("\xff", "", 0).find("\xef\xbf\xbd") != std::string::npos);
}

TEST_CASE("error file: a signal handler's text and the library's JSON are one record", "[runtime][unit]") {
  namespace schema = ddp::rendezvous::error_file;
  std::string by_hand(schema::kBeforeText);
  by_hand.append("SIGSEGV").append(schema::kBeforeTrace).append("in main");
  by_hand.append(schema::kBeforeTimestamp).append("1700000000").append(schema::kEnd);
  const std::string by_library = ddp::runtime::error_file_text("SIGSEGV", "in main", 1700000000);
  CHECK(nlohmann::json::parse(by_hand) == nlohmann::json::parse(by_library));
}
