// SPDX-License-Identifier: BSD-3-Clause
// libFuzzer for the reader of a journal's file. This holds:
//   * Whatever the bytes are, they are refused with a reason, or read; and what lies before the end of the last whole
//     record reads the same without what is behind it.
//   * A journal that is cut anywhere is read, and has the newest record that is whole: a torn one is left out.
//   * A journal with one changed byte is refused.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "rendezvous/base/check.hpp"
#include "rendezvous/journal/journal_format.hpp"

namespace ddp::rendezvous::fuzz {
namespace {

void check_any(const std::string& bytes) {
  const auto read = read_journal(bytes);
  if (const auto* corrupt = std::get_if<CorruptJournal>(&read)) return DDP_CHECK(!corrupt->why.empty());
  const auto& text = std::get<JournalText>(read);
  DDP_CHECK(text.whole <= bytes.size(), text.whole, bytes.size());
  DDP_CHECK(!text.content || !text.epoch.empty());
  const auto again = read_journal(std::string_view(bytes).substr(0, text.whole));
  const auto* same = std::get_if<JournalText>(&again);
  DDP_CHECK(same != nullptr && same->content == text.content && same->epoch == text.epoch);
}

// The first bytes choose; the rest is cut into contents.
void check_written(std::string_view input) {
  if (input.size() < 4) return;
  const auto byte = [&](std::size_t i) { return static_cast<std::size_t>(static_cast<unsigned char>(input[i])); };
  const std::size_t choice = byte(0) << 8 | byte(1), each = byte(2) % 64 + 1;
  const char change = input[3];
  std::string bytes = journal_begin("epoch", std::chrono::nanoseconds(1));
  std::vector<std::size_t> ends = {bytes.size()};
  std::vector<std::string> contents;
  for (std::size_t at = 4; at < input.size(); at += each) {
    contents.emplace_back(input.substr(at, each));
    bytes += journal_record(contents.back(), std::chrono::nanoseconds(at));
    ends.push_back(bytes.size());
  }
  const std::size_t cut = choice % (bytes.size() + 1);
  const auto read = read_journal(std::string_view(bytes).substr(0, cut));
  const auto* text = std::get_if<JournalText>(&read);
  DDP_CHECK(text != nullptr, cut);
  std::size_t whole = 0;
  while (whole < ends.size() && ends[whole] <= cut) ++whole;
  DDP_CHECK(text->epoch.empty() == (whole == 0), cut);
  DDP_CHECK(text->content.has_value() == (whole > 1), cut);
  if (whole > 1) DDP_CHECK(*text->content == contents[whole - 2], cut);
  if (change == 0) return;
  bytes[choice % bytes.size()] = static_cast<char>(bytes[choice % bytes.size()] ^ change);
  DDP_CHECK(std::holds_alternative<CorruptJournal>(read_journal(bytes)), choice % bytes.size());
}

}  // namespace
}  // namespace ddp::rendezvous::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  ddp::rendezvous::fuzz::check_any(input);
  ddp::rendezvous::fuzz::check_written(input);
  return 0;
}
