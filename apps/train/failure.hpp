// SPDX-License-Identifier: BSD-3-Clause
// Errors that end a training. Every rank throws the same one.
#pragma once

#include <stdexcept>

namespace train {

// The message is one line that says what is wrong, with which value, and what to do.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The command line or the data cannot be used. The exit code is 2 instead of 1.
struct BadInput : Failure {
  using Failure::Failure;
};

}  // namespace train
