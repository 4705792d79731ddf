// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddprun/commands/chaos_options.hpp"

#include <charconv>
#include <limits>
#include <system_error>

#include "apps/ddprun/options/usage_error.hpp"

namespace ddp::apps {
namespace {

constexpr char kUsage[] = " (ddprun chaos [JOB] [--every 30s] [--kind worker|agent|node] [--count N] [--seed N])";

[[noreturn]] void refuse(const std::string& why) { throw SyntaxError("chaos: " + why + kUsage); }

// Returns the whole text as a number that is not negative.
template <typename Number>
std::optional<Number> number_in(const std::string& text) {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

// Takes "500ms", "30s", "5m" and "1h"; a number alone is seconds.
std::chrono::milliseconds duration_in(const std::string& text) {
  const std::size_t digits = text.find_first_not_of("0123456789");
  const std::string unit = digits == std::string::npos ? "s" : text.substr(digits);
  const std::int64_t scale = unit == "ms" ? 1 : unit == "s" ? 1000 : unit == "m" ? 60'000 : unit == "h" ? 3'600'000 : 0;
  const auto number = number_in<std::int64_t>(text.substr(0, digits));
  constexpr std::int64_t kMost = std::numeric_limits<int>::max();  // what poll() can wait: 24 days
  if (scale == 0 || !number || *number == 0 || *number > kMost / scale) {
    refuse("--every " + text + ": give a time such as 500ms, 30s or 5m");
  }
  return std::chrono::milliseconds(*number * scale);
}

ChaosKind kind_in(const std::string& text) {
  if (text == "worker") return ChaosKind::Worker;
  if (text == "agent") return ChaosKind::Agent;
  if (text == "node") return ChaosKind::Node;
  refuse("--kind " + text + ": give worker, agent or node");
}

void set(ChaosOptions& options, const std::string& name, const std::string& value) {
  if (name == "--every") {
    options.every = duration_in(value);
  } else if (name == "--kind") {
    options.kind = kind_in(value);
  } else if (name == "--count") {
    options.count = number_in<std::int64_t>(value);
    if (options.count.value_or(0) == 0) refuse("--count " + value + ": give a number of kills, from 1");
  } else if (name == "--seed") {
    options.seed = number_in<std::uint64_t>(value);
    if (!options.seed) refuse("--seed " + value + ": give a number, from 0");
  } else {
    refuse("there is no option " + name);
  }
}

}  // namespace

ChaosOptions parse_chaos(const std::vector<std::string>& arguments) {
  ChaosOptions options;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (word.empty() || word[0] != '-') {
      if (word.empty() || !options.job.empty()) refuse("\"" + word + "\" is too much");
      options.job = word;
      continue;
    }
    const std::size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    if (equals != std::string::npos) {
      set(options, name, word.substr(equals + 1));
    } else if (i + 1 < arguments.size()) {
      set(options, name, arguments[++i]);
    } else {
      refuse(name + " needs a value");
    }
  }
  return options;
}

}  // namespace ddp::apps
