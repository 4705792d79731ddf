// SPDX-License-Identifier: BSD-3-Clause
// One option as it was declared. --help, the manual page, the completion script and the pass over argv know nothing
// else about it, so that they cannot disagree.
#pragma once

#include <string>
#include <vector>

namespace ddp::apps {

enum class Takes {
  Nothing,
  Value,            // --tee 3, --tee=3
  ValueIfAttached,  // --legacy-local-rank, --legacy-local-rank=underscore
  ValueIfPort,      // --serve, --serve=8080, --serve 8080: the next word is the value if it ends in a port
};

enum class Origin { Torchrun, Ddprun };

struct Option {
  std::string name;  // "nproc-per-node", without leading dashes
  char letter = 0;   // 'm' for -m
  Takes takes = Takes::Value;
  Origin origin = Origin::Torchrun;
  std::string bare_value = {};  // ValueIfAttached, ValueIfPort: the value if none is given

  std::string group = {};
  std::string help = {};
  // The form of the value. Words in lower case are literal values: "N|cpu|gpu|auto"; FILE and DIR are paths.
  std::string metavar = {};
  std::string default_value = {};  // empty: not shown
  std::string variable = {};       // the variable that sets the default; empty: none
};

using Options = std::vector<Option>;

// Returns, for example, "-r, --redirects STREAMS".
std::string heading(const Option& option);
// Returns the option's help with its default and its variable.
std::string describe(const Option& option);
// Returns the literal values that the metavar names: {"cpu", "gpu", "auto"}.
std::vector<std::string> choices(const Option& option);

}  // namespace ddp::apps
