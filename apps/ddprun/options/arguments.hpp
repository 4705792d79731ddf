// SPDX-License-Identifier: BSD-3-Clause
// The first pass over argv: where ddprun's own options end and the program begins, and each option's full name. It does
// what Python's argparse does for torchrun: dashes and underscores are alike, an unambiguous prefix stands for an
// option, and the program's arguments are left alone, except that the first "--" of a command line is dropped if it
// stands before the program or right after it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/ddprun/options/option.hpp"

namespace ddp::apps {

struct Arguments {
  std::vector<std::string> options;    // one word each, with full names: "--nproc-per-node=8"
  std::optional<std::string> program;  // the first word that is not an option
  std::vector<std::string> program_args;
};

// Splits argv. Throws SyntaxError for an option that is unknown (naming the nearest known one) or ambiguous, and for a
// missing value.
Arguments split_arguments(const std::vector<std::string>& words, const Options& known);

}  // namespace ddp::apps
