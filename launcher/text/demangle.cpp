// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/text/demangle.hpp"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

namespace ddp::launcher {

std::string demangled(const std::string& text) {
  constexpr char kBefore[] = "(_Z";
  std::string out;
  std::size_t at = 0;
  for (std::size_t found; (found = text.find(kBefore, at)) != std::string::npos;) {
    const std::size_t name = found + 1;
    const std::size_t end = std::min(text.find_first_of("+)\n", name), text.size());
    const std::string mangled = text.substr(name, end - name);
    int status = 0;
    const std::unique_ptr<char, decltype(&std::free)> plain(
        abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status), &std::free);
    out.append(text, at, name - at).append(plain ? plain.get() : mangled.c_str());
    at = end;
  }
  return out.append(text, at);
}

}  // namespace ddp::launcher
