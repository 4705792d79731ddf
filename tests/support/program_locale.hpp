// SPDX-License-Identifier: BSD-3-Clause
// A locale that a program may have set, in which numbers look otherwise: 1,234;5.
#pragma once

#include <locale>
#include <string>

namespace ddp::testing {

// Sets the locale of the whole process while it lives.
class ProgramLocale {
 public:
  ProgramLocale() : before_(std::locale::global(std::locale(std::locale::classic(), new Numbers))) {}
  ~ProgramLocale() { std::locale::global(before_); }
  ProgramLocale(const ProgramLocale&) = delete;
  ProgramLocale& operator=(const ProgramLocale&) = delete;

 private:
  struct Numbers : std::numpunct<char> {
    char do_thousands_sep() const override { return ','; }
    char do_decimal_point() const override { return ';'; }
    std::string do_grouping() const override { return "\3"; }
  };
  std::locale before_;
};

}  // namespace ddp::testing
