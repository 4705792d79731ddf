// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddprun/options/nodes/environment_page.hpp"

#include "apps/ddprun/options/nodes/platform_options.hpp"
#include "apps/ddprun/options/usage_error.hpp"
#include "rendezvous/base/text.hpp"

namespace ddp::apps {
namespace {

template <typename T>
std::optional<std::string> text_of(const std::optional<T>& value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return value ? std::optional(std::to_string(*value)) : std::nullopt;
  } else {
    return value;
  }
}

std::optional<std::string> text_of(const std::string& value) {
  return value.empty() ? std::nullopt : std::optional(value);
}

std::string padded(const std::string& text, std::size_t width) {
  return text + std::string(width > text.size() ? width - text.size() : 1, ' ');
}

class Page {
 public:
  explicit Page(const std::string& platform) : platform_(platform) { row("OPTION", "VALUE", "FROM"); }

  void add(const char* option, const std::optional<std::string>& given, const std::optional<std::string>& now,
           const std::string& unsaid) {
    row(option, now.value_or(unsaid), given ? "the command line or PET_*" : now ? platform_ : "default");
  }

  std::string text() const { return text_; }

 private:
  void row(const std::string& option, const std::string& value, const std::string& from) {
    text_ += padded(option, 18) + padded(value, 24) + from + "\n";
  }

  std::string platform_;
  std::string text_;
};

std::string command_line(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += word + " ";
  return line;
}

}  // namespace

std::string environment_page(const NodeOptions& given, const std::optional<std::string>& workers,
                             const launcher::Surroundings& here) {
  const std::string all =
      "Platforms, in the order in which they are looked for: " + rendezvous::list_of(launcher::platform_names()) +
      ".\n";
  NodeOptions now = given;
  FromPlatform taken;
  try {
    taken = fill_from_platform(now, here);
  } catch (const UsageError& error) {
    return std::string("ddprun would refuse to start: ") + error.what() + "\n" + all;
  }
  if (!taken.start_on_all.empty()) {
    return "From " + taken.platform + ": ddprun would start itself on all nodes of the job:\n  " +
           command_line(taken.start_on_all) + "ddprun ...\n" + all;
  }
  Page page(taken.platform);
  const std::optional<std::string> counted = text_of(taken.workers);
  page.add("--nnodes", given.nnodes, now.nnodes, "1");
  page.add("--node-rank", text_of(given.node_rank), text_of(now.node_rank),
           now.rdzv_backend == "static" ? "0" : "as nodes join");
  page.add("--master-addr", given.master_addr, now.master_addr, "127.0.0.1");
  page.add("--master-port", text_of(given.master_port), text_of(now.master_port),
           now.nnodes.value_or("1") == "1" ? "any free one" : "29500");
  page.add("--rdzv-endpoint", text_of(given.rdzv_endpoint), text_of(now.rdzv_endpoint), "-");
  page.add("--rdzv-id", text_of(given.rdzv_id), text_of(now.rdzv_id), "-");
  page.add("--nproc-per-node", workers, workers ? workers : counted, "1");
  const std::string who =
      taken.platform.empty() ? "No platform says anything that counts here" : "From " + taken.platform;
  return who + (is_within_worker(here) ? ", since this is within a worker of another job.\n" : ".\n") + page.text() +
         all;
}

}  // namespace ddp::apps
