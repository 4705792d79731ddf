// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/diagnosis/nodes/hang_judge.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "launcher/diagnosis/nodes/told_verdict.hpp"
#include "launcher/diagnosis/stacks/stack_json.hpp"
#include "launcher/diagnosis/tell_stacks.hpp"
#include "launcher/local/job_answers.hpp"
#include "launcher/text/ranges.hpp"
#include "rendezvous/wire/declared_json.hpp"

namespace ddp::launcher {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<int> ranks_of(const HangJudge::Answer& node) {
  std::vector<int> ranks;
  for (int i = 0; i < node.slots; ++i) ranks.push_back(node.base_rank + i);
  return ranks;
}

// Returns "; rank 2 is on node b", for those of the ranks that a verdict names.
std::string where(const std::vector<int>& ranks, const std::vector<HangJudge::Answer>& nodes) {
  std::string text;
  for (const HangJudge::Answer& node : nodes) {
    std::vector<int> here;
    std::copy_if(ranks.begin(), ranks.end(), std::back_inserter(here),
                 [&node](int rank) { return rank >= node.base_rank && rank < node.base_rank + node.slots; });
    const std::string are = here.size() == 1 ? " is on node " : " are on node ";
    if (!here.empty()) text += "; " + describe_ranks(here) + are + node.host;
  }
  return text;
}

// Returns how long all nodes that stand still have done so.
std::chrono::milliseconds still_for(const HangJudgeCore::Words& words) {
  std::chrono::milliseconds since = std::chrono::milliseconds::max();
  for (const auto& [node_rank, said] : words) {
    if (said && said->is_still) since = std::min(since, said->since);
  }
  return since;
}

// Adds what the links of the nodes take, and names those that stand out.
void tell_links(Hang& hang, const std::vector<HangJudge::Answer>& nodes, const HangJudgeCore::Words& words) {
  std::vector<NodeLink> links;
  for (const HangJudge::Answer& node : nodes) {
    const auto said = words.find(node.node_rank);
    const bool has_said = said != words.end() && said->second;
    links.push_back({node.host, has_said ? said->second->link : std::nullopt});
  }
  for (const std::size_t slow : slow_links(links)) hang.culprit.words += "; " + describe_slow_link(links, slow);
  hang.links = describe_links(links);
}

}  // namespace

struct StillnessQuestion {
  int node_rank = 0;  // the asking node
};

template <typename Json>
void members(Json& json, StillnessQuestion& question) {
  json.must("node_rank", question.node_rank);
}

HangJudge::HangJudge(rendezvous::asio::io_context& io, std::chrono::milliseconds timeout, std::string host,
                     Sources sources, Log& log, std::function<void(const Hang&)> found)
    : host_(std::move(host)),
      sources_(std::move(sources)),
      log_(log),
      found_(std::move(found)),
      core_(timeout),
      timer_(io) {}

void HangJudge::begin(int node_rank) {
  node_rank_ = node_rank;
  core_.begin(node_rank);
  ++asked_;
  timer_.cancel();
}

void HangJudge::stands_still() {
  core_.stands_still(Clock::now());
  wait();
}

void HangJudge::goes_on() {
  const bool was_told = core_.goes_on();
  timer_.cancel();
  if (was_told) log_.warning("hang_over", "the workers of this node make progress again");
}

void HangJudge::wait() {
  const auto at = core_.ask_at();
  if (!at) {
    timer_.cancel();
    return;
  }
  timer_.expires_at(*at);
  timer_.async_wait([this](const auto& error) {
    if (!error) ask();
  });
}

void HangJudge::ask() {
  const auto at = core_.ask_at();
  if (!at) return;
  if (*at > Clock::now()) return wait();  // another node has asked meanwhile
  sources_.ask(kStillnessQuestion, rendezvous::json_of(StillnessQuestion{node_rank_}),
               [this, question = ++asked_](const std::vector<Answer>& answers) {
                 if (question == asked_) hear(answers);
               });
}

void HangJudge::hear(const std::vector<Answer>& answers) {
  words_.clear();
  for (const Answer& answer : answers) words_[answer.node_rank] = stillness_from_json(answer.text);
  warn_of_unwatched(words_, answers);
  if (core_.hear(Clock::now(), words_) == HangJudgeCore::Next::Nothing) return wait();
  sources_.ask("stacks", "", [this, question = ++asked_](const std::vector<Answer>& stacks) {
    if (question == asked_ && core_.judges()) judge(stacks);
  });
}

void HangJudge::warn_of_unwatched(const std::map<int, std::optional<NodeStillness>>& words,
                                  const std::vector<Answer>& answers) {
  for (const Answer& answer : answers) {
    const auto& said = words.at(answer.node_rank);
    if (!said || said->is_watched || std::exchange(has_warned_, true)) continue;
    log_.warning("hang_unwatched", "node " + answer.host +
                                       " has no --hang-timeout, so that its workers count as making progress: give all "
                                       "nodes the same");
  }
}

void HangJudge::judge(const std::vector<Answer>& stacks) {
  Hang hang;
  std::vector<SilentNode> silent;
  std::map<int, std::string> ended;
  for (const Answer& node : stacks) {
    if (core_.silent().contains(node.node_rank)) silent.push_back({node.host, ranks_of(node)});
    auto taken = stacks_from_json(node.text).value_or(std::vector<WorkerStacks>());
    std::move(taken.begin(), taken.end(), std::back_inserter(hang.stacks));
  }
  for (const auto& [node_rank, said] : words_) {
    for (const int rank : said ? said->ended : std::vector<int>()) ended[rank] = "exited with code 0";
  }
  if (hang.stacks.empty() && silent.empty()) {
    core_.lack_stacks(Clock::now());
    return wait();
  }
  hang.culprit = silent.empty() ? find_culprit(hang.stacks, ended) : accuse_silent(silent, hang.stacks);
  const bool names_ranks = silent.empty() && hang.culprit.guilt != Guilt::Everyone;
  if (names_ranks) hang.culprit.words += where(hang.culprit.ranks, stacks);
  hang.since = describe_since(still_for(words_));
  tell_links(hang, stacks, words_);
  core_.note_verdict();
  tell_hang(hang, log_);
  own_verdict_ = verdict_json(hang, host_);
  sources_.ask(kVerdictOrder, own_verdict_, [](const std::vector<Answer>&) {});
  found_(hang);
}

std::string HangJudge::answer_stillness(const std::string& text) {
  if (const auto asker = rendezvous::read_json<StillnessQuestion>(text)) {
    core_.note_judge(Clock::now(), asker->node_rank);
  }
  return to_json(sources_.stillness());
}

std::string HangJudge::take_verdict(const std::string& text) {
  const auto verdict = verdict_from_json(text);
  if (!verdict) return node_error("a verdict that is none");
  const bool is_own = text == own_verdict_;
  if (!is_own && core_.note_verdict()) tell_verdict(*verdict, log_);
  wait();
  return node_done(kVerdictOrder);
}

}  // namespace ddp::launcher
