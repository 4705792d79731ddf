// SPDX-License-Identifier: BSD-3-Clause
// The errors of a command line. Nothing has been started when one of them is thrown.
#pragma once

#include <stdexcept>

namespace ddp::apps {

// The options ask for something that cannot be. Exit code 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The command line cannot even be read: an unknown option, no program, a word in the place of a number. Called as
// torchrun, ddprun exits with 2 for these only, as torchrun's parser does.
class SyntaxError : public UsageError {
 public:
  using UsageError::UsageError;
};

}  // namespace ddp::apps
