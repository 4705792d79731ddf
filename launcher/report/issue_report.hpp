// SPDX-License-Identifier: BSD-3-Clause
// One document with all that is known of a job, for somebody who was not there: as text to paste into an issue, and as
// JSON. `ddprun report` makes it of a running job, and an agent of a job that has failed.
#pragma once

#include <string>
#include <vector>

namespace ddp::launcher {

struct IssueReport {
  std::string job, program;
  std::vector<std::string> summary = {};  // what has happened, or what the job does now
  std::string details = "null";           // the summary as JSON
  struct Node {
    std::string host;
    std::string facts = {};  // node_facts() as JSON; empty: it did not answer
    std::string error = {};
    std::vector<std::string> rounds = {};  // those that this node was part of
    struct Recorder {                      // libddp's file of one rank
      int rank = 0;
      std::string json;
    };
    std::vector<Recorder> recorders = {};
  };
  std::vector<Node> nodes = {};
  std::vector<std::string> stacks = {};  // as describe_stacks() tells them
  std::string stacks_json = "null";      // as stacks_json() shows them
};

// Returns Markdown, in which what was measured is in blocks of text.
std::string to_text(const IssueReport& report);
std::string to_json(const IssueReport& report);

// Returns what an agent says of its node, and reads it again. A text that is something else becomes an error.
std::string node_report_json(const IssueReport::Node& node);
IssueReport::Node node_report(const std::string& host, const std::string& json);

// Returns the files that workers of libddp have left in an attempt's part of a folder of logs: at most 64, of 1 MiB
// each.
std::vector<IssueReport::Node::Recorder> recorders_in(const std::string& folder, int attempt, int workers);

// Adds one, if the report has none of this rank, and fewer than it may have.
void add_recorder(IssueReport::Node& node, IssueReport::Node::Recorder recorder);

// The rounds that a node has been part of, at most the last hundred, in words.
class RoundHistory {
 public:
  // `place` is what this node has in the round: "ranks 0-3 of 8".
  void begin(int round, int restarts, const std::string& place);
  void end(const std::string& why);
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  void add(const std::string& line);
  std::vector<std::string> lines_;
};

}  // namespace ddp::launcher
