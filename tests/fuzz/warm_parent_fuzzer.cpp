// SPDX-License-Identifier: BSD-3-Clause
// libFuzzer for what the warm parent says to the agent. The first byte of an input says how it is cut. This must hold:
//   * However the bytes are cut, the lines are the same.
//   * Pids are positive and differ, times are not negative, words are printable and bounded.
#include <set>
#include <string>
#include <variant>

#include "launcher/preload/parent_lines.hpp"
#include "rendezvous/base/check.hpp"
#include "rendezvous/link/printable.hpp"
#include "tests/fuzz/script.hpp"

namespace ddp::fuzz {
namespace {

using namespace launcher;

struct Described {
  std::string operator()(const ParentReady& ready) const {
    DDP_CHECK(ready.took.count() >= 0 && rendezvous::printable_line(ready.modules) == ready.modules);
    return "ready " + std::to_string(ready.took.count()) + " " + ready.modules;
  }
  std::string operator()(const ParentForked& forked) const {
    std::string text = "forked";
    std::set<pid_t> seen;
    for (const pid_t pid : forked.pids) {
      DDP_CHECK(pid > 0 && seen.insert(pid).second, pid);
      text += " " + std::to_string(pid);
    }
    return text;
  }
  std::string operator()(const ParentGivesUp& gives_up) const { return "gives up " + words(gives_up.why); }
  std::string operator()(const ParentTalksNonsense& nonsense) const { return "nonsense " + words(nonsense.what); }
  static std::string words(const std::string& text) {
    DDP_CHECK(rendezvous::printable_line(text) == text && text.size() < 5000, text.size());
    return text;
  }
};

std::string lines_of(std::string_view bytes, std::size_t piece) {
  ParentLines lines;
  std::string all;
  while (!bytes.empty()) {
    lines.feed(bytes.substr(0, piece));
    bytes.remove_prefix(std::min(piece, bytes.size()));
    for (ParentLine line; lines.next(line);) {
      all += std::visit(Described(), line) + "\n";
      if (std::holds_alternative<ParentTalksNonsense>(line)) return all;
    }
  }
  return all;
}

}  // namespace
}  // namespace ddp::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ddp::fuzz::Script script(data, size);
  const std::size_t piece = 1 + script.byte();
  const std::string_view bytes = script.bytes(size);
  DDP_CHECK(ddp::fuzz::lines_of(bytes, piece) == ddp::fuzz::lines_of(bytes, size));
  return 0;
}
