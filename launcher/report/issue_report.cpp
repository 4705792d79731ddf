// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/report/issue_report.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "launcher/report/node_facts.hpp"
#include "launcher/text/time_text.hpp"
#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/base/shallow_json.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/link/printable.hpp"

namespace ddp::launcher {
namespace {

using nlohmann::json;
using rendezvous::parse_shallow;

constexpr std::size_t kMostRounds = 100, kMostRecorders = 64, kMostRecorderBytes = 1 << 20;
constexpr int kMostPartDepth = 16;            // JSON of a report's part; the whole report is a few levels deeper
constexpr std::size_t kOperationsInText = 8;  // the last ones of each group; the JSON has all
constexpr char kRecorderPrefix[] = "flight_recorder_rank", kRecorderSuffix[] = ".json";

std::string text_block(const std::string& title, const std::vector<std::string>& lines) {
  std::string text = "## " + title + "\n\n```text\n";
  for (const std::string& line : lines) {
    std::string shown = rendezvous::printable_line(line);
    for (std::size_t at = 0; (at = shown.find("```", at)) != std::string::npos;) shown.replace(at, 3, "'''");
    text += shown + "\n";
  }
  return text + "```\n\n";
}

std::string word_of(const json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

std::vector<std::string> facts_lines(const json& facts) {
  std::vector<std::string> lines, environment;
  for (const auto& [name, value] : facts.items()) {
    if (name == "environment") {
      for (const json& variable : value) environment.push_back("  " + word_of(variable));
    } else if (value.is_array()) {
      std::string words;
      for (const json& word : value) words += (words.empty() ? "" : " ") + word_of(word);
      lines.push_back(name + ": " + words);
    } else {
      lines.push_back(name + ": " + word_of(value));
    }
  }
  lines.emplace_back("environment, without secrets:");
  lines.insert(lines.end(), environment.begin(), environment.end());
  return lines;
}

std::string operation_line(const json& operation) {
  const auto part = [&operation](const char* name) {
    return operation.contains(name) && !operation.at(name).is_null() ? word_of(operation.at(name)) : std::string("-");
  };
  return "  #" + part("sequence") + " " + part("operation") + " of " + part("count") + " " + part("dtype") + ": " +
         part("state");
}

std::vector<std::string> recorder_lines(const IssueReport::Node& node) {
  std::vector<std::string> lines;
  for (const auto& recorder : node.recorders) {
    const json parsed = parse_shallow(recorder.json, kMostPartDepth);
    const std::string name = "rank " + std::to_string(recorder.rank);
    if (!parsed.is_object() || !parsed.contains("groups") || !parsed.at("groups").is_array()) {
      lines.push_back(name + ": its file is no flight recorder's");
      continue;
    }
    for (const json& group : parsed.at("groups")) {
      if (!group.is_object() || !group.contains("operations") || !group.at("operations").is_array()) continue;
      const json& operations = group.at("operations");
      lines.push_back(name + ", group " + word_of(group.value("name", json("?"))) + ", the last of " +
                      std::to_string(operations.size()) + ":");
      const std::size_t first = operations.size() - std::min(operations.size(), kOperationsInText);
      for (std::size_t i = first; i < operations.size(); ++i) lines.push_back(operation_line(operations[i]));
    }
  }
  return lines;
}

json json_or_null(const std::string& text) {
  json value = parse_shallow(text, kMostPartDepth);
  return value.is_discarded() ? json() : value;
}

json node_object(const IssueReport::Node& node) {
  json recorders = json::array();
  for (const auto& recorder : node.recorders) {
    recorders.push_back({{"rank", recorder.rank}, {"content", json_or_null(recorder.json)}});
  }
  json object = {{"facts", json_or_null(node.facts)}, {"rounds", node.rounds}, {"flight_recorders", recorders}};
  return object;
}

std::string one_line(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

// Reads a regular file of limited size; empty if it is something else.
std::string small_file(const std::string& path) {
  const rendezvous::Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat facts = {};
  if (!file || fstat(file.get(), &facts) != 0 || !S_ISREG(facts.st_mode)) return "";
  if (facts.st_size <= 0 || static_cast<std::size_t>(facts.st_size) > kMostRecorderBytes) return "";
  std::string text(static_cast<std::size_t>(facts.st_size), '\0');
  const ssize_t size = pread(file.get(), text.data(), text.size(), 0);
  text.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  return text;
}

void add_recorders(const std::string& folder, std::vector<IssueReport::Node::Recorder>& found) {
  DIR* const open = opendir(folder.c_str());
  while (const dirent* entry = open != nullptr ? readdir(open) : nullptr) {
    const std::string name = entry->d_name;
    if (!name.starts_with(kRecorderPrefix) || !name.ends_with(kRecorderSuffix)) continue;
    const std::size_t begin = sizeof kRecorderPrefix - 1;
    const auto rank =
        rendezvous::parse_number<int>(name.substr(begin, name.size() - begin - (sizeof kRecorderSuffix - 1)));
    if (rank && found.size() < kMostRecorders) found.push_back({*rank, small_file(folder + "/" + name)});
  }
  if (open != nullptr) closedir(open);
}

}  // namespace

std::string to_text(const IssueReport& report) {
  std::string text = "# Job " + rendezvous::printable_line(report.job) +
                     " of ddprun: " + rendezvous::printable_line(report.program) + "\n\n";
  text += text_block("What is known", report.summary);
  if (!report.stacks.empty()) text += text_block("What each rank does", report.stacks);
  for (const IssueReport::Node& node : report.nodes) {
    const std::string name = "node " + rendezvous::printable_line(node.host);
    if (!node.error.empty()) {
      text += text_block("About " + name, {node.error});
      continue;
    }
    if (!node.rounds.empty()) text += text_block("Rounds of " + name, node.rounds);
    const auto recorders = recorder_lines(node);
    if (!recorders.empty()) text += text_block("Last collectives on " + name, recorders);
    const json facts = json_or_null(node.facts);
    if (facts.is_object()) text += text_block("About " + name, facts_lines(facts));
  }
  return text;
}

std::string to_json(const IssueReport& report) {
  json object = {{"version", 1},
                 {"job", report.job},
                 {"program", report.program},
                 {"summary", report.summary},
                 {"details", json_or_null(report.details)},
                 {"stacks", json_or_null(report.stacks_json)},
                 {"nodes", json::array()}};
  for (const IssueReport::Node& node : report.nodes) {
    json shown = node_object(node);
    shown["host"] = node.host;
    shown["error"] = node.error.empty() ? json() : json(node.error);
    object["nodes"].push_back(shown);
  }
  return one_line(object);
}

std::string node_report_json(const IssueReport::Node& node) { return one_line(node_object(node)); }

IssueReport::Node node_report(const std::string& host, const std::string& text) {
  IssueReport::Node node{.host = host, .facts = {}, .error = {}, .rounds = {}, .recorders = {}};
  try {
    const json object = parse_shallow(text);
    node.facts = one_line(object.at("facts"));
    node.rounds = object.at("rounds").get<std::vector<std::string>>();
    for (const json& recorder : object.at("flight_recorders")) {
      node.recorders.push_back({recorder.at("rank"), one_line(recorder.at("content"))});
    }
  } catch (const json::exception&) {
    node.error = "its answer is no report";
  }
  return node;
}

void add_recorder(IssueReport::Node& node, IssueReport::Node::Recorder recorder) {
  const bool is_known = std::any_of(node.recorders.begin(), node.recorders.end(),
                                    [&](const auto& known) { return known.rank == recorder.rank; });
  const bool is_small = recorder.json.size() <= kMostRecorderBytes && node.recorders.size() < kMostRecorders;
  if (!is_known && is_small) node.recorders.push_back(std::move(recorder));
}

std::vector<IssueReport::Node::Recorder> recorders_in(const std::string& folder, int attempt, int workers) {
  std::vector<IssueReport::Node::Recorder> found;
  if (folder.empty()) return found;
  add_recorders(folder, found);
  const std::string of_attempt = folder + "/attempt_" + std::to_string(attempt) + "/";
  for (int local_rank = 0; local_rank < workers; ++local_rank) {
    add_recorders(of_attempt + std::to_string(local_rank), found);
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
  return found;
}
void RoundHistory::add(const std::string& line) {
  if (lines_.size() == kMostRounds) lines_.erase(lines_.begin());
  const auto now = std::chrono::time_point_cast<std::chrono::milliseconds>(std::chrono::system_clock::now());
  lines_.push_back(local_time(now, "%F %T") + " " + line);
}

void RoundHistory::begin(int round, int restarts, const std::string& place) {
  add("round " + std::to_string(round) + " began, after " + std::to_string(restarts) +
      (restarts == 1 ? " restart: " : " restarts: ") + place);
}

void RoundHistory::end(const std::string& why) { add("it was stopped: " + why); }

}  // namespace ddp::launcher
