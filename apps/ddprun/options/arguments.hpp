// SPDX-License-Identifier: BSD-3-Clause
// The pass over argv before CLI11: where ddprun's own options end and the program begins, and what each option is
// called in full. It does what Python's argparse does for torchrun and CLI11 does not: dashes and underscores alike,
// unambiguous prefixes, nothing of the program's arguments touched.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/ddprun/options/option.hpp"

namespace ddp::apps {

struct Arguments {
  std::vector<std::string> options;    // "--nproc-per-node=8": full names, one word each
  std::optional<std::string> program;  // the first word that is no option
  std::vector<std::string> program_args;
};

// Throws SyntaxError (options.hpp) for an unknown or ambiguous option, with the nearest known one, or a missing value.
Arguments split_arguments(const std::vector<std::string>& words, const Options& known);

}  // namespace ddp::apps
