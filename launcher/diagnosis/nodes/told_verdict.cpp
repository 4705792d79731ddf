// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/diagnosis/nodes/told_verdict.hpp"

#include "launcher/text/json_text.hpp"
#include "launcher/text/ranges.hpp"
#include "rendezvous/link/printable.hpp"

namespace ddp::launcher {
namespace {

constexpr std::size_t kMostWords = 8192;

}  // namespace

std::string verdict_json(const Hang& hang, const std::string& judge) {
  return JsonObject()
      .text("judge", judge)
      .text("since", hang.since)
      .text("words", hang.culprit.words.substr(0, kMostWords))
      .text("place", hang.culprit.place)
      .text("verdict", name_of(hang.culprit.guilt))
      .text("ranks", comma_list(hang.culprit.ranks))
      .text("links", hang.links)
      .str();
}

std::optional<ToldVerdict> verdict_from_json(std::string_view json) {
  const auto members = json_members(json);
  if (!members) return std::nullopt;
  const auto text = [&members](const char* name) {
    const auto found = members->find(name);
    const auto* value = found == members->end() ? nullptr : std::get_if<std::string>(&found->second);
    return value != nullptr ? rendezvous::printable(*value) : "";
  };
  auto ranks = ranks_in(text("ranks"));
  ToldVerdict verdict = {text("judge"), text("since"), text("words"), text("place"), text("verdict"), {},
                         text("links")};
  if (!ranks || verdict.words.empty() || verdict.since.empty()) return std::nullopt;
  verdict.ranks = std::move(*ranks);
  return verdict;
}

void tell_verdict(const ToldVerdict& verdict, Log& log) {
  const Log::Rank rank = verdict.ranks.size() == 1 ? Log::Rank(verdict.ranks.front()) : Log::Rank();
  const std::string text = "no progress on all nodes: " + verdict.since + "\n  " + verdict.words +
                           (verdict.links.empty() ? "" : "\n  " + describe_hang_links(verdict.links)) +
                           "\n  what each rank does is in the log of node " + verdict.judge;
  log.warning("hang", text, rank,
              JsonObject()
                  .json("ranks", "[" + comma_list(verdict.ranks) + "]")
                  .text("verdict", verdict.guilt)
                  .text("place", verdict.place)
                  .text("links", verdict.links));
}

}  // namespace ddp::launcher
