// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/diagnosis/tell_stacks.hpp"

#include <algorithm>
#include <sstream>

#include "launcher/diagnosis/stacks/stack_json.hpp"
#include "launcher/diagnosis/stacks/stack_report.hpp"
#include "launcher/diagnosis/stacks/take_stacks.hpp"
#include "launcher/text/ranges.hpp"
#include "rendezvous/link/printable.hpp"
#include "rendezvous/wire/json_text.hpp"

namespace ddp::launcher {
std::string indented_stacks(const std::vector<WorkerStacks>& stacks) {
  std::string text;
  std::istringstream lines(rendezvous::printable(describe_stacks(stacks)));
  for (std::string line; std::getline(lines, line);) text += "\n    " + line;
  return text;
}

void tell_stacks(const std::vector<WorkerStacks>& stacks, Log& log) {
  log.warning("stacks", "what the workers did when one of them timed out:" + indented_stacks(stacks), {},
              rendezvous::JsonObject().json("stacks", stacks_json(stacks)));
}

void tell_hang(const Hang& hang, Log& log) {
  const Culprit& culprit = hang.culprit;
  const bool lacks_py_spy = std::ranges::any_of(hang.stacks, [](const WorkerStacks& worker) {
    return std::ranges::find(worker.missing, kGetPySpy) != worker.missing.end();
  });
  std::string text = "no progress: " + hang.since;
  if (lacks_py_spy) text += std::string(" (") + kGetPySpy + ")";
  text += "\n  " + culprit.words;
  if (!hang.links.empty()) text += "\n  " + describe_hang_links(hang.links);
  text += "\n  what each of them does:" + indented_stacks(hang.stacks);
  log.warning("hang", text, culprit.ranks.size() == 1 ? Log::Rank(culprit.ranks.front()) : Log::Rank(),
              rendezvous::JsonObject()
                  .json("ranks", "[" + comma_list(culprit.ranks) + "]")
                  .text("verdict", name_of(culprit.guilt))
                  .text("place", culprit.place)
                  .text("links", hang.links)
                  .json("stacks", stacks_json(hang.stacks)));
}

}  // namespace ddp::launcher
