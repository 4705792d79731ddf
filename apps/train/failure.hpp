// SPDX-License-Identifier: BSD-3-Clause
// How a training ends that cannot go on. Every rank throws the same.
#pragma once

#include <stdexcept>
#include <string>

namespace train {

// The message is one line: what is wrong, with what, and what to do.
class Failure : public std::runtime_error {
 public:
  explicit Failure(const std::string& message, int exit_code = 1)
      : std::runtime_error(message), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

// The command line or the data cannot be worked with.
class BadInput : public Failure {
 public:
  explicit BadInput(const std::string& message) : Failure(message, 2) {}
};

}  // namespace train
