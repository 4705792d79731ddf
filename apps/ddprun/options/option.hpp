// SPDX-License-Identifier: BSD-3-Clause
// One option as it was declared: all that --help, the manual page, the completion scripts and the pass over argv know
// of it, so that none of them can tell another story.
#pragma once

#include <string>
#include <vector>

namespace ddp::apps {

enum class Takes {
  Nothing,
  Value,            // --tee 3, --tee=3
  ValueIfAttached,  // --legacy-local-rank, --legacy-local-rank=underscore
};

enum class Origin { Torchrun, Ddprun };

struct Option {
  std::string name;  // "nproc-per-node", without dashes in front
  char letter = 0;   // 'm' for -m
  Takes takes = Takes::Value;
  Origin origin = Origin::Torchrun;
  std::string bare_value = {};  // ValueIfAttached: the value that is meant if none is given

  std::string group = {};
  std::string help = {};
  // What a value looks like. Words in lower case are values: "N|cpu|gpu|auto", "static|c10d"; FILE and DIR are paths.
  std::string metavar = {};
  std::string default_value = {};  // empty: none worth a word
  std::string variable = {};       // whose value is the default; empty: none
};

using Options = std::vector<Option>;

// "-r, --redirects STREAMS"
std::string heading(const Option& option);
// Its help with its default and its variable.
std::string describe(const Option& option);
// The words among its values: {"cpu", "gpu", "auto"}.
std::vector<std::string> choices(const Option& option);

}  // namespace ddp::apps
