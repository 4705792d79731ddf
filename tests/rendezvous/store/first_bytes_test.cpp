// SPDX-License-Identifier: BSD-3-Clause
// How a new connection's first bytes tell its peer: every kind of peer that may connect to a store's port, compared
// with every other.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <string_view>
#include <variant>

#include "rendezvous/store/c10d_protocol.hpp"
#include "tests/rendezvous/store/hex.hpp"
#include "tests/rendezvous/store/speakers.hpp"

namespace ddp::rendezvous {
namespace {

// Returns what a decoder that has seen these bytes takes their sender for.
std::string taken_for(std::string_view bytes) {
  Decoder decoder;
  while (true) {
    Decoded decoded = decoder.decode(bytes);
    if (const Malformed* malformed = std::get_if<Malformed>(&decoded)) return malformed->why;
    if (std::holds_alternative<NeedMore>(decoded)) break;
  }
  switch (decoder.generation()) {
    case Generation::Unknown:
      return "open";
    case Generation::Old:
      return "old";
    case Generation::A:
      return "A";
    case Generation::C:
      return "C";
    case Generation::Modern:
      return "modern";
  }
  return "";
}

TEST_CASE("c10d: every sender is recognised by its first bytes, and not before", "[rendezvous][unit]") {
  for (const Speaker& speaker : kSpeakers) {
    INFO(speaker.name);
    std::string bytes = from_hex(speaker.first_bytes);
    bytes.resize(std::max(bytes.size(), speaker.decided_by));
    CHECK(taken_for(bytes) == speaker.taken_for);
    CHECK(taken_for(bytes.substr(0, speaker.decided_by)) == speaker.taken_for);
    CHECK(taken_for(bytes.substr(0, speaker.decided_by - 1)) != speaker.taken_for);
  }
}

TEST_CASE("c10d: no two senders are mixed up while their bytes are the same", "[rendezvous][unit]") {
  for (const Speaker& one : kSpeakers) {
    for (const Speaker& other : kSpeakers) {
      INFO(one.name << " | " << other.name);
      const std::string bytes = from_hex(one.first_bytes);
      const std::string others = from_hex(other.first_bytes);
      const auto differs = std::mismatch(bytes.begin(), bytes.end(), others.begin(), others.end()).first;
      const std::string verdict = taken_for({bytes.begin(), differs});
      // No decision yet is wrong for either: "old" may still become A or C.
      const auto agrees = [&](const std::string& in_the_end) {
        return verdict == "open" || verdict == in_the_end || (verdict == "old" && in_the_end != "modern");
      };
      CHECK(agrees(one.taken_for));
      CHECK(agrees(other.taken_for));
    }
  }
}

TEST_CASE("c10d: each of the 65536 pairs of first bytes has one meaning", "[rendezvous][unit]") {
  for (unsigned first = 0; first < 256; ++first) {
    for (unsigned second = 0; second < 256; ++second) {
      std::string expected = "unknown operation " + std::to_string(first);
      if (first == 0) expected = second == 0xce ? "open" : "old";
      if (first >= 1 && first <= 6) expected = "old";
      if (first == 6) {  // a request without arguments: the second byte is the next operation
        if (second == 7 || (second >= 9 && second <= 11)) expected = "C";
        if (second > 11) expected = "unknown operation " + std::to_string(second);
      }
      if (first == 7) expected = "A";
      if (first == 8) expected = "old";
      if (first >= 9 && first <= 11) expected = "C";
      if (first == 11 && second > 11) expected = "unknown operation " + std::to_string(second);
      const std::string bytes = {static_cast<char>(first), static_cast<char>(second)};
      if (const std::string verdict = taken_for(bytes); verdict != expected) {
        FAIL(to_hex(bytes) << " is taken for " << verdict << ", expected " << expected);
      }
    }
  }
}

}  // namespace
}  // namespace ddp::rendezvous
