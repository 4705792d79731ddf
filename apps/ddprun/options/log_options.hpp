// SPDX-License-Identifier: BSD-3-Clause
// What the options of the group "Output" mean: which streams of which workers go where.
#pragma once

#include <string>
#include <vector>

#include "launcher/config/log_config.hpp"

namespace ddp::apps {

// As they were given.
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
};

// "3" or "0:1,12:3"; `option` is its name, for what is thrown.
launcher::StreamChoice parse_streams(const std::string& option, const std::string& text);

// "apple,a,,b" is "apple" and "a,b". Empty words, which every line contains, are left out.
std::vector<std::string> parse_words(const std::string& text);

// default_prefix: TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE, null if it is not set. Throws UsageError.
launcher::LogConfig resolve_logs(const LogOptions& options, const char* default_prefix);

}  // namespace ddp::apps
