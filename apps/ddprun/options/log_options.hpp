// SPDX-License-Identifier: BSD-3-Clause
// Resolves the options of the group "Output": which streams of which workers go where.
#pragma once

#include <string>
#include <vector>

#include "launcher/config/log_config.hpp"

namespace ddp::apps {

// The values as they were given.
struct LogOptions {
  std::string log_dir;
  std::string redirects = "0";
  std::string tee = "0";
  std::string local_ranks_filter;
  std::string duplicate_stdout_filters;
  std::string duplicate_stderr_filters;
  std::string log_line_prefix_template;
  std::string logs_specs = "default";
  std::string event_log_handler = "null";
  std::string event_log_file;
  std::string report_file;
};

// Parses "3" or "0:1,12:3". Throws UsageError, whose message names `option`.
launcher::StreamChoice parse_streams(const std::string& option, const std::string& text);

// Splits "apple,a,,b" into "apple" and "a,b". Drops empty words, since every line contains them.
std::vector<std::string> parse_words(const std::string& text);

// Returns the resolved options. `default_prefix` is the value of TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE, null if it is
// not set. Throws UsageError.
launcher::LogConfig resolve_logs(const LogOptions& options, const char* default_prefix);

}  // namespace ddp::apps
