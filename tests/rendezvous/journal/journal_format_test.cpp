// SPDX-License-Identifier: BSD-3-Clause
#include <catch2/catch.hpp>
#include <string>
#include <variant>

#include "rendezvous/journal/journal_format.hpp"

using namespace ddp::rendezvous;
using std::chrono::nanoseconds;

namespace {

JournalText read(const std::string& bytes) {
  const auto result = read_journal(bytes);
  if (const auto* corrupt = std::get_if<CorruptJournal>(&result)) FAIL(corrupt->why);
  return std::get<JournalText>(result);
}

std::string why_corrupt(const std::string& bytes) {
  const auto result = read_journal(bytes);
  const auto* corrupt = std::get_if<CorruptJournal>(&result);
  return corrupt ? corrupt->why : "it is not";
}

}  // namespace

TEST_CASE("journal: the newest record counts", "[rendezvous][unit]") {
  std::string bytes = journal_begin("a1", nanoseconds(5));
  CHECK_FALSE(read(bytes).content);
  bytes += journal_record("first", nanoseconds(6)) + journal_record("second", nanoseconds(7));
  CHECK(read(bytes).epoch == "a1");
  CHECK(read(bytes).content == "second");
  CHECK(read(bytes).written == nanoseconds(7));
  CHECK(read(bytes).whole == bytes.size());
}

TEST_CASE("journal: the bytes are those of the worked example", "[rendezvous][unit]") {
  const std::string bytes = journal_begin("a1", nanoseconds(5));
  const std::string head = bytes.substr(kJournalLine.size(), 16);
  CHECK(head == std::string("\x02\0\0\0\x01\0\0\0\x05\0\0\0\0\0\0\0", 16));
  CHECK(bytes.substr(bytes.size() - 2) == "a1");
  CHECK(bytes.size() == kJournalLine.size() + 32 + 2);
}

TEST_CASE("journal: a torn record at the end is left out, wherever it is torn", "[rendezvous][unit]") {
  const std::string whole = journal_begin("a1", nanoseconds(5)) + journal_record("kept", nanoseconds(6));
  const std::string bytes = whole + journal_record("torn", nanoseconds(7));
  for (std::size_t size = whole.size(); size < bytes.size(); ++size) {
    CHECK(read(bytes.substr(0, size)).content == "kept");
    CHECK(read(bytes.substr(0, size)).whole == whole.size());
  }
  for (std::size_t size = 0; size < kJournalLine.size() + 34; ++size) CHECK(read(bytes.substr(0, size)).epoch.empty());
}

TEST_CASE("journal: one changed byte anywhere is refused, with its place", "[rendezvous][unit]") {
  const std::string bytes = journal_begin("a1", nanoseconds(5)) + journal_record("kept", nanoseconds(6));
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::string changed = bytes;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    CHECK(why_corrupt(changed) != "it is not");
  }
  std::string changed = bytes;
  changed.back() = 'x';
  CHECK(why_corrupt(changed) == "byte 72: the checksum of record 2 does not fit");
  CHECK(why_corrupt("ddprun coordinator journal, version 2\n") ==
        "its first line is not 'ddprun coordinator journal, version 1'");
  CHECK(why_corrupt(std::string(kJournalLine) + journal_record("", nanoseconds(1))) ==
        "byte 38: the kind of record 1 does not fit");
}
