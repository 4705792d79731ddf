// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddprun/options/log_options.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>

#include "apps/ddprun/options/usage_error.hpp"
#include "rendezvous/base/text.hpp"

namespace ddp::apps {

namespace {

// Returns a local rank, or nothing if the text is none.
std::optional<int> parse_rank(std::string_view text) {
  const auto rank = rendezvous::parse_number<int>(text);
  return rank && *rank >= 0 ? rank : std::nullopt;
}

// Returns 0 to 3, torch's Std, or nothing if the text is none of them.
std::optional<int> parse_std(std::string_view text) {
  const auto number = rendezvous::parse_number<int>(text);
  return text.size() == 1 && number && *number <= 3 ? number : std::nullopt;
}

// Splits as Python's text.split(separator) does: there is one part more than there are separators.
std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts = {""};
  for (const char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

std::optional<std::set<int>> parse_ranks(const std::string& text) {
  if (text.empty()) return std::nullopt;
  std::set<int> ranks;
  for (const std::string& part : split(text, ',')) {
    const auto rank = parse_rank(rendezvous::trimmed(part));
    if (!rank) throw UsageError("--local-ranks-filter " + text + ": give local ranks with commas between: 0,1,2");
    ranks.insert(*rank);
  }
  return ranks;
}

// Throws for values that torchrun would find among the entry points of Python packages.
void refuse_plugins(const LogOptions& options) {
  if (options.logs_specs != "default") {
    throw UsageError("--logs-specs " + options.logs_specs +
                     ": this is a Python plug-in, which a native launcher cannot load; use --log-dir, --redirects, "
                     "--tee and --log-line-prefix-template instead");
  }
  const std::string& handler = options.event_log_handler;
  if (handler != "null" && handler != "console" &&
      handler != "dynamic_rendezvous") {  // torchrun's third, which drops its records
    throw UsageError("--event-log-handler " + handler +
                     ": this is a Python plug-in, which a native launcher cannot load; give console, or write the "
                     "records to a file with --event-log-file and forward them from there");
  }
}

}  // namespace

launcher::StreamChoice parse_streams(const std::string& option, const std::string& text) {
  if (const auto all = parse_std(text)) return {.of_all = *all};
  launcher::StreamChoice choice;
  for (const std::string& part : split(text, ',')) {
    const auto colon = part.find(':');
    const auto rank = parse_rank(std::string_view(part).substr(0, colon));
    const auto streams = colon == std::string::npos ? std::nullopt : parse_std(part.substr(colon + 1));
    if (!rank || !streams) {
      throw UsageError("--" + option + " " + text +
                       ": give 0 (neither), 1 (stdout), 2 (stderr) or 3 (both) for all workers, or LOCAL_RANK:0-3 "
                       "for each, with commas between: 0:3,1:2");
    }
    choice.by_rank[*rank] = *streams;
  }
  return choice;
}

std::vector<std::string> parse_words(const std::string& text) {
  std::vector<std::string> words = {""};
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != ',') {
      words.back() += text[i];
    } else if (text.compare(i, 2, ",,") == 0) {
      words.back() += ',';
      ++i;
    } else {
      words.emplace_back();
    }
  }
  words.erase(std::remove(words.begin(), words.end(), ""), words.end());
  return words;
}

launcher::LogConfig resolve_logs(const LogOptions& options, const char* default_prefix) {
  refuse_plugins(options);
  launcher::LogConfig config;
  config.folder = options.log_dir;
  config.event_file = options.event_log_file;
  config.report_file = options.report_file;
  config.events_on_stderr = options.event_log_handler == "console";
  config.redirects = parse_streams("redirects", options.redirects);
  config.tee = parse_streams("tee", options.tee);
  config.shown_ranks = parse_ranks(options.local_ranks_filter);
  config.stdout_filters = parse_words(options.duplicate_stdout_filters);
  config.stderr_filters = parse_words(options.duplicate_stderr_filters);
  if (!options.log_line_prefix_template.empty()) {
    config.line_prefix = options.log_line_prefix_template;
  } else if (default_prefix && *default_prefix) {
    config.line_prefix = default_prefix;
  }
  if (config.folder == launcher::kNoFolder) {  // as with torchrun, everything goes to the console unchanged
    config.redirects = config.tee = {};
    if (!config.stdout_filters.empty() || !config.stderr_filters.empty()) {
      throw UsageError(
          "--log-dir /dev/null leaves no place for the files of --duplicate-stdout-filters and "
          "--duplicate-stderr-filters; give a folder");
    }
  }
  return config;
}

}  // namespace ddp::apps
