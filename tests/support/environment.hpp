// SPDX-License-Identifier: BSD-3-Clause
// Variables of the environment that tests and their workers read: the size of a run, a seed, how a fake is to behave.
#pragma once

#include <charconv>
#include <cstdlib>
#include <stdexcept>
#include <string>

namespace ddp::testing {

// Returns the variable's value; `otherwise` if it is not set or empty.
inline std::string variable(const char* name, const std::string& otherwise = "") {
  const char* const value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

// Returns the variable's value as a whole number, `otherwise` if it is not set or empty. Throws std::invalid_argument
// if it is no such number.
template <typename Number>
Number number_from(const char* name, Number otherwise) {
  const std::string text = variable(name, std::to_string(otherwise));
  Number result = {};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), result);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw std::invalid_argument(std::string(name) + "=" + text + " is not a whole number, or too large");
  }
  return result;
}

}  // namespace ddp::testing
