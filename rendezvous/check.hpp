// SPDX-License-Identifier: BSD-3-Clause
// DDP_CHECK(condition, values...): for what cannot happen. On in every build; prints the values and aborts.
#pragma once

#include <cstdlib>
#include <iostream>

namespace ddp::rendezvous {

template <typename... Values>
[[noreturn]] void check_failed(const char* file, int line, const char* condition, const Values&... values) {
  std::cerr << file << ":" << line << ": this should not happen: " << condition << " is false";
  ((std::cerr << " [" << values << "]"), ...);
  std::cerr << std::endl;
  std::abort();
}

}  // namespace ddp::rendezvous

#define DDP_CHECK(condition, ...)                                                                                 \
  do {                                                                                                            \
    if (!(condition)) ::ddp::rendezvous::check_failed(__FILE__, __LINE__, #condition __VA_OPT__(, ) __VA_ARGS__); \
  } while (false)
