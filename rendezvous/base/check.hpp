// SPDX-License-Identifier: BSD-3-Clause
// DDP_CHECK(condition, values...) states what must be true. It is on in every build; if the condition is false, it
// prints the values and aborts. libddp copies the message into the error file through check_failed_hook, since this
// folder cannot call it.
#pragma once

#include <cstdlib>
#include <iostream>
#include <locale>
#include <sstream>

namespace ddp::rendezvous {

// Receives the message before the abort, if it is set.
inline void (*check_failed_hook)(const char* text) noexcept = nullptr;

template <typename... Values>
[[noreturn]] void check_failed(const char* file, int line, const char* condition, const Values&... values) {
  std::ostringstream text;
  text.imbue(std::locale::classic());  // not the program's, which may put commas into numbers
  text << file << ":" << line << ": this should not happen: " << condition << " is false";
  ((text << " [" << values << "]"), ...);
  std::cerr << text.str() << std::endl;
  if (check_failed_hook) check_failed_hook(text.str().c_str());
  std::abort();
}

}  // namespace ddp::rendezvous

#define DDP_CHECK(condition, ...)                                                                                 \
  do {                                                                                                            \
    if (!(condition)) ::ddp::rendezvous::check_failed(__FILE__, __LINE__, #condition __VA_OPT__(, ) __VA_ARGS__); \
  } while (false)
