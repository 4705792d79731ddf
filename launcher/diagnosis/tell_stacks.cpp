// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/diagnosis/tell_stacks.hpp"

#include <sstream>

#include "launcher/stacks/stack_json.hpp"
#include "launcher/stacks/stack_report.hpp"
#include "launcher/text/json_text.hpp"
#include "rendezvous/link/printable.hpp"

namespace ddp::launcher {
namespace {

const char* name_of(Guilt guilt) {
  switch (guilt) {
    case Guilt::Ended:
      return "ended";
    case Guilt::Stopped:
      return "stopped";
    case Guilt::Awaited:
      return "awaited";
    case Guilt::Deadlock:
      return "deadlock";
    case Guilt::Outside:
      return "outside";
    case Guilt::Fewest:
      return "elsewhere";
    case Guilt::Everyone:
      return "everyone";
  }
  return "unknown";
}

}  // namespace

std::string indented_stacks(const std::vector<WorkerStacks>& stacks) {
  std::string text;
  std::istringstream lines(rendezvous::printable(describe_stacks(stacks)));
  for (std::string line; std::getline(lines, line);) text += "\n    " + line;
  return text;
}

void tell_stacks(const std::vector<WorkerStacks>& stacks, Log& log) {
  log.warning("stacks", "what the workers did when one of them timed out:" + indented_stacks(stacks), {},
              JsonObject().json("stacks", stacks_json(stacks)));
}

void tell_hang(const Hang& hang, bool has_other_nodes, Log& log) {
  const Culprit& culprit = hang.culprit;
  std::string ranks;
  for (const int rank : culprit.ranks) ranks += (ranks.empty() ? "" : ",") + std::to_string(rank);
  std::string text = "no progress: " + hang.since + "\n  " + culprit.words;
  if (has_other_nodes) {
    text += "\n  this is of the ranks of this node; where all of them wait for others, look at the other nodes' lines";
  }
  text += "\n  what each of them does:" + indented_stacks(hang.stacks);
  log.warning("hang", text, culprit.ranks.size() == 1 ? Log::Rank(culprit.ranks.front()) : Log::Rank(),
              JsonObject()
                  .json("ranks", "[" + ranks + "]")
                  .text("verdict", name_of(culprit.guilt))
                  .text("place", culprit.place)
                  .json("stacks", stacks_json(hang.stacks)));
}

}  // namespace ddp::launcher
