// SPDX-License-Identifier: BSD-3-Clause
// The arguments of a command word: at most one JOB, and options, in any order. `--name=value` and `--name value` are
// the same.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace ddp::apps {

// What a command takes.
struct CommandSyntax {
  std::string name;                  // "stacks"
  std::string usage;                 // "ddprun stacks [JOB] [--json]", shown with what is wrong
  std::string about;                 // a sentence, for --help
  std::set<std::string> flags = {};  // options without a value, "--json"
  std::set<std::string> values = {};
};

// Thrown for --help. what() is the text to print.
class HelpAsked : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class CommandArguments {
 public:
  // Throws SyntaxError, which says what is wrong and shows the usage, and HelpAsked.
  CommandArguments(const CommandSyntax& syntax, const std::vector<std::string>& arguments);

  const std::string& job() const { return job_; }  // empty: none was given
  bool has(const std::string& flag) const { return given_.contains(flag); }
  // Returns the newest value of an option; nothing if it was not given.
  std::optional<std::string> value(const std::string& option) const;
  // Returns the value as a whole number from `least`. Throws SyntaxError with `what` if it is none: "give a rank".
  std::optional<std::int64_t> number(const std::string& option, std::int64_t least, const std::string& what) const;
  // Takes "500ms", "30s", "5m" and "1h"; a number alone is seconds. At most 24 days.
  std::optional<std::chrono::milliseconds> duration(const std::string& option) const;

  [[noreturn]] void refuse(const std::string& why) const;

 private:
  CommandSyntax syntax_;
  std::string job_;
  std::map<std::string, std::string> given_;
};

}  // namespace ddp::apps
