// SPDX-License-Identifier: BSD-3-Clause
// libFuzzer for the note in etcd that says which node coordinates: an input is the note. This holds:
//   * It is refused with a reason that is a printable line, or it is whole: its words can be shown, its addresses are
//     numeric and few.
//   * What was read is written and read again as the same.
#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>

#include "launcher/coordination/leader_note.hpp"
#include "rendezvous/base/check.hpp"
#include "rendezvous/net/addresses/numeric_address.hpp"
#include "tests/fuzz/shown.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ddp::launcher;
  const auto read = read_leader_note(std::string(reinterpret_cast<const char*>(data), size));
  if (const auto* why = std::get_if<std::string>(&read)) {
    DDP_CHECK(!why->empty());
    ddp::fuzz::check_line(*why);
    return 0;
  }
  const auto& note = std::get<LeaderNote>(read);
  ddp::fuzz::check_line(note.node);
  ddp::fuzz::check_line(note.host);
  DDP_CHECK(note.port != 0 && !note.addresses.empty() && note.addresses.size() <= kMostNoteAddresses);
  for (const std::string& address : note.addresses)
    DDP_CHECK(!ddp::rendezvous::numeric_address(address).empty(), address);
  const auto again = read_leader_note(text_of(note));
  const auto* same = std::get_if<LeaderNote>(&again);
  DDP_CHECK(same != nullptr && *same == note, text_of(note));
  return 0;
}
