// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/local/job_answers.hpp"

#include <nlohmann/json.hpp>

#include "launcher/text/ranges.hpp"
#include "rendezvous/base/shallow_json.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/link/accept.hpp"
#include "rendezvous/wire/json_text.hpp"

namespace ddp::launcher {
namespace {

nlohmann::json node_json(const NodeAnswer& node) {
  nlohmann::json object = {{"host", node.host}, {"node_rank", node.node_rank}, {"error", nullptr}, {"answer", nullptr}};
  const nlohmann::json answer = rendezvous::parse_shallow(node.text, rendezvous::kMaxLookDepth);
  if (!node.error.empty() || node.text.empty()) {
    object["error"] = node.error.empty() ? kNodeSilent : node.error;
  } else if (answer.is_discarded()) {
    object["error"] = "its answer is no JSON";
  } else if (answer.is_object() && answer.contains("error")) {
    object["error"] = answer.at("error").is_string() ? answer.at("error") : nlohmann::json("an error without words");
  } else {
    object["answer"] = answer;
  }
  return object;
}

std::string text_or_nothing(const nlohmann::json& value) { return value.is_null() ? "" : value.get<std::string>(); }

}  // namespace

std::string node_done(const std::string& order) { return rendezvous::JsonObject().text("done", order).str(); }

std::string node_error(const std::string& why) { return rendezvous::JsonObject().text("error", why).str(); }

std::string signal_not_sent(const std::vector<int>& ranks, int signal) {
  const bool is_one = ranks.size() == 1;
  return node_error(describe_ranks(ranks) + (is_one ? " does" : " do") + " not handle " +
                    rendezvous::signal_name(signal) + ", which would end " + (is_one ? "it" : "them") +
                    ": it was not sent");
}

std::string job_answers_json(const JobAnswers& answers) {
  nlohmann::json object = {{"version", kShownVersion}, {"error", nullptr}, {"nodes", nlohmann::json::array()}};
  if (!answers.error.empty()) object["error"] = answers.error;
  for (const NodeAnswer& node : answers.nodes) object["nodes"].push_back(node_json(node));
  return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::optional<JobAnswers> job_answers(std::string_view text) {
  try {
    const nlohmann::json object = rendezvous::parse_shallow(text);
    JobAnswers answers;
    answers.error = text_or_nothing(object.at("error"));
    for (const nlohmann::json& node : object.at("nodes")) {
      NodeAnswer& read = answers.nodes.emplace_back();
      read.host = node.at("host");
      read.node_rank = node.at("node_rank");
      read.error = text_or_nothing(node.at("error"));
      if (read.error.empty()) read.text = node.at("answer").dump();
    }
    return answers;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

}  // namespace ddp::launcher
