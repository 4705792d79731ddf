// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/text/demangle.hpp"

#include <catch2/catch.hpp>

using namespace ddp::launcher;

TEST_CASE("demangle: names in a backtrace become readable, all else stays", "[launcher][unit]") {
  CHECK(demangled("SIGSEGV\n./a(_ZN5Model4stepEi+0x1f)[0x1]\n./a(main+0x2)[0x3]") ==
        "SIGSEGV\n./a(Model::step(int)+0x1f)[0x1]\n./a(main+0x2)[0x3]");
  CHECK(demangled("(_Z3fooid)(_Z3barv") == "(foo(int, double))(bar()");
  CHECK(demangled("(_Znothing+0x1) _Z3barv") == "(_Znothing+0x1) _Z3barv");
  CHECK(demangled("").empty());
}
