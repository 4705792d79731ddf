// SPDX-License-Identifier: BSD-3-Clause
// The bytes of a journal's file. Nothing here touches a file.
//
//     "ddprun coordinator journal, version 1\n"
//     record: head | body                          the first one has the epoch, the others a content each
//
//     head, 32 bytes, little-endian:
//       length of the body, 4 | kind, 4: 1 epoch, 2 content | when it was written, 8: ns of CLOCK_BOOTTIME
//       XXH3 of the body, 8 | XXH3 of the 24 bytes before, 8
//
// The newest content counts. A process that is killed while it writes leaves the beginning of a record at the end of
// the file: such a torn record was never answered, so it is left out. Everything else that is not as above is corrupt,
// and refused, since a record that is skipped may be one that an agent was told: another version, a checksum that does
// not fit, an unknown kind, an epoch in the wrong place. A head that is whole says truly how long its body is, so a
// record that is whole is never taken for a torn one.
//
// Worked example, an empty content written 5 ns after the boot behind the epoch "a1" of that time:
//
//     64 64 70 72 75 6e 20 63 6f ...  31 0a                          the first line
//     02 00 00 00  01 00 00 00  05 00 00 00 00 00 00 00  <8>  <8>    61 31
//     00 00 00 00  02 00 00 00  05 00 00 00 00 00 00 00  <8>  <8>
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

namespace ddp::rendezvous {

inline constexpr std::string_view kJournalLine = "ddprun coordinator journal, version 1\n";

// Returns the first line and the record of the epoch.
std::string journal_begin(const std::string& epoch, std::chrono::nanoseconds now);
// Returns a record of this content.
std::string journal_record(std::string_view content, std::chrono::nanoseconds now);

struct JournalText {
  std::string epoch;                   // empty: there is not even a whole first record
  std::optional<std::string> content;  // the newest
  std::chrono::nanoseconds written{0};
  std::size_t whole = 0;  // bytes up to the end of the last whole record; a torn one may follow
};
struct CorruptJournal {
  std::string why;  // "byte 96: the checksum of record 2 does not fit"
};
std::variant<JournalText, CorruptJournal> read_journal(std::string_view bytes);

}  // namespace ddp::rendezvous
