// SPDX-License-Identifier: BSD-3-Clause
// libFuzzer for what a node answers when somebody looks at the job: an input is the text of its answer. This holds:
//   * It is refused at the link, or it passes the link as it is and every reader takes it or says that it is none.
//   * What an agent then tells a command is read by the command, whatever the other nodes have answered.
//   * A report for an issue is printable, and JSON.
//   * Words about whose a connection is name one connection, or are refused.
#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>

#include "launcher/diagnosis/stacks/stack_json.hpp"
#include "launcher/diagnosis/stacks/stack_report.hpp"
#include "launcher/local/job_answers.hpp"
#include "launcher/local/job_view.hpp"
#include "launcher/local/page/metrics.hpp"
#include "launcher/report/issue_report.hpp"
#include "rendezvous/base/check.hpp"
#include "rendezvous/base/shallow_json.hpp"
#include "rendezvous/link/codec.hpp"
#include "rendezvous/link/printable.hpp"
#include "rendezvous/net/connection_owner.hpp"

namespace ddp::launcher::fuzz {
namespace {

using rendezvous::parse_shallow;

void check_state(const std::string& text) {
  rendezvous::JobFacts facts;
  facts.nodes = {{"A", "a", "", "running", 0, 0, 1}, {"B", "b", "10.0.0.2", "running", 1, 1, 1}};
  AgentView own;
  own.host = "a";
  const JobView state = assemble(facts, {{"B", text}}, "A", own, "");
  DDP_CHECK(state.nodes.size() == 2);
  const std::string json = to_json(state);
  DDP_CHECK(job_view(json).has_value(), json);
  for (const auto format : {MetricsFormat::OpenMetrics, MetricsFormat::Prometheus}) metrics_text(state, format);
}

void check_answers(const std::string& text) {
  const std::string json = job_answers_json({.nodes = {{"a", 0, text}, {"b", 1, "{}"}}});
  const auto read = job_answers(json);
  DDP_CHECK(read && read->nodes.size() == 2, json);
  DDP_CHECK(read->nodes[0].error.empty() || read->nodes[0].text.empty());
}

void check_report(const std::string& text) {
  IssueReport report{.job = "j", .program = "p"};
  report.nodes.push_back(node_report("b", text));
  if (const auto stacks = stacks_from_json(text)) {
    report.stacks_json = stacks_json(*stacks);
    report.stacks = {describe_stacks(*stacks)};
  }
  const std::string shown = to_text(report), json = to_json(report);
  DDP_CHECK(rendezvous::printable(shown) == shown, shown);
  DDP_CHECK(parse_shallow(json).is_object(), json);
  const std::string again = node_report_json(report.nodes[0]);
  DDP_CHECK(parse_shallow(again).is_object(), again);
}

void check_owner(const std::string& text) {
  const auto read = rendezvous::read_owner_answer(text);
  if (!read) return;
  const auto again = rendezvous::read_owner_answer(read->connection);
  DDP_CHECK(again && again->connection == read->connection && again->address == read->address, text);
  DDP_CHECK(read->connection.starts_with(read->address + " "), text);
}

void check(const std::string& input) {
  rendezvous::FrameDecoder decoder;
  decoder.feed(encode(rendezvous::LookAnswer{1, "B", input}));
  const auto next = decoder.next();
  if (std::holds_alternative<rendezvous::Malformed>(next)) return;
  const std::string& text = std::get<rendezvous::LookAnswer>(next).text;
  check_state(text);
  check_answers(text);
  check_report(text);
  check_owner(text);
}

}  // namespace
}  // namespace ddp::launcher::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ddp::launcher::fuzz::check(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
