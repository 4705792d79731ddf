// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/hosts/wire/greeting.hpp"

#include <utility>

namespace ddp::launcher {
namespace {

constexpr std::size_t kMostChatter = 8 << 10;
constexpr std::size_t kMostInLine = 4 << 10;

}  // namespace

std::variant<Greeting::NothingYet, Greeting::WantsProgram, Greeting::Ready, Greeting::Cannot> Greeting::next() {
  const std::string_view mark = kGreeting;
  while (true) {
    const auto begin = bytes_.find(mark);
    if (begin == std::string::npos) {
      // Its beginning may be there already.
      const std::size_t whole = bytes_.size() < mark.size() ? 0 : bytes_.size() - mark.size() + 1;
      keep_chatter(std::string_view(bytes_).substr(0, whole));
      bytes_.erase(0, whole);
      return NothingYet{};
    }
    keep_chatter(std::string_view(bytes_).substr(0, begin));
    bytes_.erase(0, begin);
    const auto end = bytes_.find('\n');
    if (end == std::string::npos && bytes_.size() <= kMostInLine) return NothingYet{};
    if (end == std::string::npos) return Cannot{"it greets with a line that has no end"};
    const std::string word = bytes_.substr(mark.size(), end - mark.size());
    bytes_.erase(0, end + 1);
    if (word == "send") return WantsProgram{};
    if (word == "ready") return Ready{};
    if (word.starts_with("cannot ")) return Cannot{"it cannot " + word.substr(7)};
    return Cannot{"it greets with \"" + word + "\""};
  }
}

std::string Greeting::take_rest() { return std::exchange(bytes_, {}); }

void Greeting::keep_chatter(std::string_view text) {
  chatter_ += text;
  if (chatter_.size() > kMostChatter) chatter_.erase(0, chatter_.size() - kMostChatter);
}

}  // namespace ddp::launcher
