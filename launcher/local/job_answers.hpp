// SPDX-License-Identifier: BSD-3-Clause
// What the nodes of a job answer to one question, as JSON on one line:
//
//     {"version":1,"error":null,"nodes":[{"host":"a","node_rank":0,"error":null,"answer":[...]},
//                                        {"host":"b","node_rank":1,"error":"it did not answer in time","answer":null}]}
//
// `answer` depends on the question: for stacks it is a list as launcher/diagnosis/stacks/stack_json.hpp shows it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::launcher {

inline constexpr int kShownVersion = 1;  // version of this JSON and of the views in job_view.hpp

// The error of a node that has answered nothing.
inline constexpr char kNodeSilent[] =
    "it did not answer in time (does its agent run, and is its ddprun of this release?)";

struct NodeAnswer {
  std::string host;
  int node_rank = -1;
  std::string text = {};   // JSON; empty: there is none
  std::string error = {};  // why; empty: there is an answer
};

struct JobAnswers {
  std::vector<NodeAnswer> nodes = {};
  std::string error = {};  // why these are not all nodes; empty: they are
};

// Return what one node answers: that it has done what was ordered, or why it has not; and that these ranks would not
// survive a signal, since they do not handle it.
std::string node_done(const std::string& order);
std::string node_error(const std::string& why);
std::string signal_not_sent(const std::vector<int>& ranks, int signal);

// Takes what nodes sent: text that is no JSON, or an object with an `error`, becomes that node's error.
std::string job_answers_json(const JobAnswers& answers);

// Returns what job_answers_json() wrote; nothing if the text is something else, such as a refusal.
std::optional<JobAnswers> job_answers(std::string_view json);

}  // namespace ddp::launcher
