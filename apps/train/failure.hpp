// SPDX-License-Identifier: BSD-3-Clause
// How a training ends that cannot go on. Every rank throws the same.
#pragma once

#include <stdexcept>

namespace train {

// The message is one line: what is wrong, with what, and what to do.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The command line or the data cannot be worked with: exit code 2 instead of 1.
struct BadInput : Failure {
  using Failure::Failure;
};

}  // namespace train
