// SPDX-License-Identifier: BSD-3-Clause
// Who speaks on a new connection, from its first bytes: everyone who may connect to a store's port, against everyone.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "rendezvous/c10d_protocol.hpp"
#include "tests/rendezvous/hex.hpp"

namespace ddp::rendezvous {
namespace {

// What a decoder that has seen these bytes takes their sender for.
std::string taken_for(std::string_view bytes) {
  Decoder decoder;
  while (true) {
    Decoded decoded = decoder.decode(bytes);
    if (const Malformed* malformed = std::get_if<Malformed>(&decoded)) return malformed->reason;
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

struct Speaker {
  std::string name;
  std::string first_bytes;  // in hex
  std::string taken_for;
  std::size_t decided_by;  // so many of them
};

const std::vector<Speaker> kSpeakers = {
    {"2.2 to 2.4: VALIDATE, ADD", "00 cef7853c 04 05", "modern", 5},
    {"2.5 and later: VALIDATE, PING", "00 cef7853c 0d 34120000", "modern", 5},
    {"A or C: ADD init/, as every process group begins", "03 0500000000000000 696e69742f", "old", 1},
    {"A or C: SET", "00 0200000000000000 2f6b", "old", 2},
    {"A or C: SET of a key of 206 bytes", "00 ce00000000000000 2f6b", "old", 3},
    {"A or C: SET of a key of 63438 bytes", "00 cef7000000000000 2f6b", "a key of 63438 bytes", 9},
    {"A or C: GET", "02 0200000000000000 2f6b", "old", 1},
    {"A: WATCH_KEY, on a connection of its own", "07 0200000000000000 2f6b", "A", 1},
    {"A: DELETE_KEY", "08 0200000000000000 2f6b", "old", 1},  // or C's APPEND: undecided() until kUndecidedGrace
    {"C: APPEND", "08 0200000000000000 2f6b 01", "C", 12},
    {"C: DELETE_KEY, its connection's first request", "07 0200000000000000 2f6b", "A", 1},  // cannot be told from A's
    {"C: MULTI_GET", "09 0100000000000000", "C", 1},
    {"C: MULTI_SET", "0a 0100000000000000", "C", 1},
    {"C: CANCEL_WAIT", "0b", "C", 1},
    // In no release: the magic before each request, for some weeks of 2023. Not spoken.
    {"D", "cef7853c 03 0500000000000000", "unknown operation 206", 1},
    {"a ddprun agent's link", "dd 64647072756e 01", "unknown operation 221", 1},  // not on this port yet
    {"TLS", "16 0301 0200 01", "unknown operation 22", 1},
    {"HTTP", "474554202f20485454502f312e31", "unknown operation 71", 1},
    {"SSH", "5353482d322e30", "unknown operation 83", 1},
    {"garbage of ones", "ffffffffffffffffff", "unknown operation 255", 1},
    {"garbage of zeros", "000000000000000000 0000000000000000", "old", 2},  // SET of nothing to nothing
    {"half a magic, then text", "00 cef785 474554202f", "a key of 3395806775566792654 bytes", 9},
};

TEST_CASE("c10d: every sender is taken for what it is by its first bytes, and not before", "[rendezvous][unit]") {
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
      // Nothing is decided that is wrong for either: "old" may still become A or C.
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
