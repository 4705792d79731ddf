// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/base/error_file.hpp"

#include <catch2/catch.hpp>

TEST_CASE("error file: is what torchrun writes and reads, whatever bytes the message has", "[runtime][unit]") {
  CHECK(
      ddp::runtime::error_file_text("bad \"loss\"\n", "bad \"loss\"\n", 1700000000) ==
      R"({"message":{"extraInfo":{"py_callstack":"bad \"loss\"\n","timestamp":"1700000000"},"message":"bad \"loss\"\n"}})");
  CHECK(ddp::runtime::error_file_text("\xff", "", 0).find("\xef\xbf\xbd") != std::string::npos);
}
