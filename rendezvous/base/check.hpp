// SPDX-License-Identifier: BSD-3-Clause
// DDP_CHECK(condition, values...): for what cannot happen. On in every build; prints the values and aborts. libddp has
// the words in the error file too, through a hook: there is no other way from here to there.
#pragma once

#include <cstdlib>
#include <iostream>
#include <sstream>

namespace ddp::rendezvous {

// Called before the abort, if it is set.
inline void (*check_failed_hook)(const char* text) noexcept = nullptr;

template <typename... Values>
[[noreturn]] void check_failed(const char* file, int line, const char* condition, const Values&... values) {
  std::ostringstream text;
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
