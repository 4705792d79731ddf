// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/diagnosis/nodes/told_verdict.hpp"

#include "launcher/text/ranges.hpp"
#include "rendezvous/link/printable.hpp"
#include "rendezvous/wire/declared_json.hpp"

namespace ddp::launcher {
namespace {

constexpr std::size_t kMostWords = 8192;

}  // namespace

template <typename Json>
void members(Json& json, ToldVerdict& told) {
  json("judge", told.judge)("since", told.since)("words", told.words)("place", told.place);
  json("verdict", told.guilt)("ranks", told.ranks)("links", told.links);
}

std::string verdict_json(const Hang& hang, const std::string& judge) {
  const Culprit& culprit = hang.culprit;
  return rendezvous::json_of(ToldVerdict{judge, hang.since, culprit.words.substr(0, kMostWords), culprit.place,
                                         name_of(culprit.guilt), culprit.ranks, hang.links});
}

std::optional<ToldVerdict> verdict_from_json(std::string_view json) {
  auto told = rendezvous::read_json<ToldVerdict>(json);
  if (!told || told->words.empty() || told->since.empty()) return std::nullopt;
  for (const int rank : told->ranks) {
    if (rank < 0) return std::nullopt;
  }
  for (std::string* text : {&told->judge, &told->since, &told->words, &told->place, &told->guilt, &told->links}) {
    *text = rendezvous::printable(*text);
  }
  return told;
}

void tell_verdict(const ToldVerdict& verdict, Log& log) {
  const Log::Rank rank = verdict.ranks.size() == 1 ? Log::Rank(verdict.ranks.front()) : Log::Rank();
  const std::string text = "no progress on all nodes: " + verdict.since + "\n  " + verdict.words +
                           (verdict.links.empty() ? "" : "\n  " + describe_hang_links(verdict.links)) +
                           "\n  what each rank does is in the log of node " + verdict.judge;
  log.warning("hang", text, rank,
              rendezvous::JsonObject()
                  .json("ranks", "[" + comma_list(verdict.ranks) + "]")
                  .text("verdict", verdict.guilt)
                  .text("place", verdict.place)
                  .text("links", verdict.links));
}

}  // namespace ddp::launcher
