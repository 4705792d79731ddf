# SPDX-License-Identifier: BSD-3-Clause
# Writes page.html as a C++ source, whose function page_html() returns it:
#
#   cmake -DFROM=page.html -DTO=page_html.cpp -P make_constant.cmake
#
# As bytes: a semicolon or a bracket in the page would mean something to CMake.
cmake_minimum_required(VERSION 3.25)
file(READ "${FROM}" bytes HEX)
string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
string(REGEX REPLACE "(................................................................................)" "\\1\n" bytes "${bytes}")
file(WRITE "${TO}" "// Made from page.html.
#include \"launcher/local/page/page_html.hpp\"

namespace ddp::launcher {

std::string_view page_html() {
  static constexpr unsigned char kBytes[] = {
${bytes}
  };
  return {reinterpret_cast<const char*>(kBytes), sizeof kBytes};
}

}  // namespace ddp::launcher
")
