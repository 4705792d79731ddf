// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/journal/journal_format.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstdint>

#include "rendezvous/journal/journal.hpp"

namespace ddp::rendezvous {

namespace {

constexpr std::size_t kHeadBytes = 32, kCheckedHeadBytes = 24;
constexpr std::size_t kMaxEpochBytes = 64;

enum RecordKind : std::uint64_t { kEpoch = 1, kContent = 2 };

void put(std::string& to, std::uint64_t number, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) to.push_back(static_cast<char>(number >> (8 * i) & 0xff));
}

std::uint64_t get(std::string_view from, std::size_t at, std::size_t bytes) {
  std::uint64_t number = 0;
  for (std::size_t i = bytes; i-- > 0;) number = number << 8 | static_cast<unsigned char>(from[at + i]);
  return number;
}

std::uint64_t checksum_of(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

std::string record_of(RecordKind kind, std::string_view body, std::chrono::nanoseconds now) {
  std::string record;
  record.reserve(kHeadBytes + body.size());
  put(record, body.size(), 4);
  put(record, kind, 4);
  put(record, static_cast<std::uint64_t>(now.count()), 8);
  put(record, checksum_of(body), 8);
  put(record, checksum_of(record), 8);
  record += body;
  return record;
}

struct Record {
  std::uint64_t kind = 0;
  std::chrono::nanoseconds written{0};
  std::string_view body;
};
struct Torn {};

// Reads the record at the beginning of these bytes. A string says what is wrong with it.
std::variant<Record, Torn, std::string> read_record(std::string_view bytes) {
  if (bytes.size() < kHeadBytes) return Torn{};
  if (get(bytes, kCheckedHeadBytes, 8) != checksum_of(bytes.substr(0, kCheckedHeadBytes))) {
    return "the checksum of the head of ";
  }
  const std::size_t length = get(bytes, 0, 4);
  const std::uint64_t kind = get(bytes, 4, 4);
  if (kind != kEpoch && kind != kContent) return "the kind of ";
  if (length > (kind == kEpoch ? kMaxEpochBytes : kMaxJournalContent)) return "the length of ";
  if (bytes.size() - kHeadBytes < length) return Torn{};
  const std::string_view body = bytes.substr(kHeadBytes, length);
  if (get(bytes, 16, 8) != checksum_of(body)) return "the checksum of ";
  return Record{kind, std::chrono::nanoseconds(static_cast<std::int64_t>(get(bytes, 8, 8))), body};
}

}  // namespace

std::string journal_begin(const std::string& epoch, std::chrono::nanoseconds now) {
  return std::string(kJournalLine) + record_of(kEpoch, epoch, now);
}

std::string journal_record(std::string_view content, std::chrono::nanoseconds now) {
  return record_of(kContent, content, now);
}

std::variant<JournalText, CorruptJournal> read_journal(std::string_view bytes) {
  JournalText text;
  if (bytes.substr(0, kJournalLine.size()) != kJournalLine) {
    if (kJournalLine.starts_with(bytes)) return text;  // torn
    return CorruptJournal{"its first line is not '" + std::string(kJournalLine.substr(0, kJournalLine.size() - 1)) +
                          "'"};
  }
  text.whole = kJournalLine.size();
  for (int number = 1;; ++number) {
    const auto record = read_record(bytes.substr(text.whole));
    if (std::holds_alternative<Torn>(record)) return text;
    const auto corrupt = [&](const std::string& what) {
      return CorruptJournal{"byte " + std::to_string(text.whole) + ": " + what + "record " + std::to_string(number) +
                            " does not fit"};
    };
    if (const auto* what = std::get_if<std::string>(&record)) return corrupt(*what);
    const Record& read = std::get<Record>(record);
    if ((read.kind == kEpoch) != (number == 1) || (number == 1 && read.body.empty())) return corrupt("the kind of ");
    if (number == 1) {
      text.epoch = read.body;
    } else {
      text.content = read.body;
      text.written = read.written;
    }
    text.whole += kHeadBytes + read.body.size();
  }
}

}  // namespace ddp::rendezvous
