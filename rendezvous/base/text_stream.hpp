// SPDX-License-Identifier: BSD-3-Clause
// Streams that read and write numbers as text in one way only. Those of C++ follow the locale that the program of a
// worker has set, which may put commas into numbers: 0-3,8 is then no list.
#pragma once

#include <fstream>
#include <locale>
#include <sstream>
#include <utility>

namespace ddp::rendezvous {

template <typename Stream>
class WithoutLocale : public Stream {
 public:
  template <typename... Arguments>
  explicit WithoutLocale(Arguments&&... arguments) : Stream(std::forward<Arguments>(arguments)...) {
    this->imbue(std::locale::classic());
  }
};
using TextStream = WithoutLocale<std::istringstream>;
using FileStream = WithoutLocale<std::ifstream>;

}  // namespace ddp::rendezvous
