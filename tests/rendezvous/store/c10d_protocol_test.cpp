// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/store/c10d_protocol.hpp"

#include <catch2/catch.hpp>
#include <random>
#include <tuple>

#include "tests/rendezvous/store/allocation_meter.hpp"
#include "tests/rendezvous/store/hex.hpp"
#include "tests/rendezvous/store/requests.hpp"

namespace ddp::rendezvous {
namespace {

constexpr char kValidate[] = "00 cef7853c";
constexpr char kK[] = "0200000000000000 2f6b";  // "/k"
constexpr char kV[] = "0100000000000000 76";    // "v"
constexpr char kOne[] = "0100000000000000";
constexpr char kTwo[] = "0200000000000000";
constexpr char kInit[] = "0500000000000000 696e69742f";  // "init/"

std::string hex_of(std::initializer_list<const char*> parts) {
  std::string all;
  for (const char* part : parts) all += from_hex(part);
  return all;
}

struct Heard {
  std::vector<Request> requests;
  std::string malformed;
  Generation generation = Generation::Unknown;
};

void hear(Decoder& decoder, std::string_view input, Heard& heard) {
  while (true) {
    Decoded decoded = decoder.decode(input);
    if (auto* request = std::get_if<RequestView>(&decoded)) heard.requests.push_back(copy_of(*request));
    if (auto* malformed = std::get_if<Malformed>(&decoded)) heard.malformed = malformed->why;
    if (!std::holds_alternative<RequestView>(decoded)) break;
  }
  heard.generation = decoder.generation();
  if (heard.malformed.empty()) CHECK(input.empty());
}

Heard hear(const std::string& bytes) {
  Decoder decoder;
  Heard heard;
  hear(decoder, bytes, heard);
  return heard;
}

Request modern(Op op, std::vector<std::string> keys = {}, std::vector<std::string> values = {},
               std::int64_t number = 0) {
  return {op, std::move(keys), std::move(values), number, Generation::Modern};
}

// The documented bytes of each request of today's clients.
const std::vector<std::pair<Request, std::string>>& golden() {
  static const std::vector<std::pair<Request, std::string>> all = {
      {modern(Op::Ping, {}, {}, 0x1234), from_hex("0d 34120000")},
      {modern(Op::Add, {"init/"}, {}, 1), hex_of({"04", kInit, kOne})},
      {modern(Op::Add, {"/k"}, {}, -1), hex_of({"04", kK, "ffffffffffffffff"})},
      {modern(Op::Set, {"/k"}, {"v"}), hex_of({"01", kK, kV})},
      {modern(Op::CompareSet, {"/k"}, {"", "v"}), hex_of({"02", kK, "0000000000000000", kV})},
      {modern(Op::Get, {"/k"}), hex_of({"03", kK})},
      {modern(Op::Check, {"/k"}), hex_of({"05", kOne, kK})},
      {modern(Op::Wait, {"/k"}), hex_of({"06", kOne, kK})},
      {modern(Op::Wait), from_hex("06 0000000000000000")},
      {modern(Op::GetNumKeys), from_hex("07")},
      {modern(Op::DeleteKey, {"/k"}), hex_of({"08", kK})},
      {modern(Op::Append, {"/k"}, {"v"}), hex_of({"09", kK, kV})},
      {modern(Op::MultiGet, {"/k", "/k"}), hex_of({"0a", kTwo, kK, kK})},
      {modern(Op::MultiSet, {"/k", "init/"}, {"v", ""}), hex_of({"0b", kTwo, kK, kV, kInit, "0000000000000000"})},
      {modern(Op::CancelWait), from_hex("0c")},
      {modern(Op::QueuePush, {"/k"}, {"v"}), hex_of({"0e", kK, kV})},
      {modern(Op::QueuePop, {"/k"}), hex_of({"0f", kK})},
      {modern(Op::QueueLen, {"/k"}), hex_of({"10", kK})},
      {modern(Op::ListKeys), from_hex("11")},
      {modern(Op::Barrier, {"/k"}, {}, 2), hex_of({"12", kK, kTwo})},
  };
  return all;
}

std::string modern_stream() {
  std::string bytes = from_hex(kValidate);
  for (const auto& [request, golden_bytes] : golden()) bytes += golden_bytes;
  return bytes;
}
// Requests of a worker of 2.0 until it deletes a key, and of a script on 2.1.
std::string stream_a() { return hex_of({"03", kInit, kOne, "00", kK, kV, "05", kOne, kK, "02", kK, "06"}); }
std::string stream_c() {
  return hex_of({"00", kK, kV, "01", kK,   kV, kV,   "04", kOne, kK, "07", kK,
                 "08", kK, kV, "09", kOne, kK, "0a", kOne, kK,   kV, "0b"});
}

TEST_CASE("c10d: today's clients are understood, byte for byte", "[rendezvous][unit]") {
  for (const auto& [request, bytes] : golden()) {
    CAPTURE(to_hex(bytes));
    const Heard heard = hear(from_hex(kValidate) + bytes);
    REQUIRE(heard.requests.size() == 1);
    CHECK(heard.requests[0] == request);
    CHECK(heard.generation == Generation::Modern);
  }
}

TEST_CASE("c10d: requests are written as today's clients write them", "[rendezvous][unit]") {
  std::string out;
  append_validate(out);
  CHECK(to_hex(out) == "00cef7853c");
  for (const auto& [request, bytes] : golden()) {
    std::string written;
    append_request(written, request);
    CHECK(to_hex(written) == to_hex(bytes));
  }
}

TEST_CASE("c10d: replies are a byte, a number, or bytes behind their length", "[rendezvous][unit]") {
  std::string out;
  append_answer(out, Answer::StopWaiting);
  append_answer(out, Answer::WaitCanceled);
  append_i64(out, -8);
  append_u32(out, 0x1234);
  append_bytes(out, "v");
  CHECK(to_hex(out) ==
        "0001"
        "f8ffffffffffffff"
        "34120000"
        "010000000000000076");
  CHECK(read_integer(from_hex("3412")) == 0x1234);
  CHECK(static_cast<std::int64_t>(read_integer(from_hex("f8ffffffffffffff"))) == -8);
}

TEST_CASE("c10d: PyTorch 1.9 to 2.1 is understood by its first byte", "[rendezvous][unit]") {
  const Heard a = hear(stream_a());
  REQUIRE(a.requests.size() == 5);
  CHECK(a.requests[0] == Request{Op::Add, {"init/"}, {}, 1, Generation::Old});
  CHECK(a.requests[1] == Request{Op::Set, {"/k"}, {"v"}, 0, Generation::Old});
  CHECK(a.requests[4].op == Op::GetNumKeys);
  CHECK(a.generation == Generation::Old);

  const Heard c = hear(stream_c());
  REQUIRE(c.requests.size() == 8);
  const std::vector<Op> expected = {Op::Set,    Op::CompareSet, Op::Check,    Op::DeleteKey,
                                    Op::Append, Op::MultiGet,   Op::MultiSet, Op::CancelWait};
  for (std::size_t i = 0; i < expected.size(); ++i) CHECK(c.requests[i].op == expected[i]);
  CHECK(c.generation == Generation::C);
}

TEST_CASE("c10d: an old SET is not taken for VALIDATE when its key length shares bytes of the magic",
          "[rendezvous][unit]") {
  // Key lengths ce, f7ce, 85f7ce: one, two and three bytes of the magic. All but the first are too long for a key.
  const Heard first = hear(hex_of({"00", "ce00000000000000"}) + std::string(0xce, 'k') + from_hex(kV));
  REQUIRE(first.requests.size() == 1);
  CHECK(first.requests[0] == Request{Op::Set, {std::string(0xce, 'k')}, {"v"}, 0, Generation::Old});
  CHECK(hear(from_hex("00 cef7000000000000")).malformed == "a key of 63438 bytes");
  CHECK(hear(from_hex("00 cef7850000000000")).malformed == "a key of 8779726 bytes");
  CHECK(hear(from_hex("00 cef7853d00000000")).generation == Generation::Old);
}

TEST_CASE("c10d: 07 is WATCH_KEY as the first request of a connection, and 2.1's DELETE_KEY later",
          "[rendezvous][unit]") {
  const Heard watch = hear(hex_of({"07", kK, "07", kK}));
  REQUIRE(watch.requests.size() == 2);
  CHECK(watch.requests[1] == Request{Op::WatchKey, {"/k"}, {}, 0, Generation::A});
  const Heard remove = hear(hex_of({"06", "07", kK}));
  REQUIRE(remove.requests.size() == 2);
  CHECK(remove.requests[1] == Request{Op::DeleteKey, {"/k"}, {}, 0, Generation::C});
}

TEST_CASE("c10d: 08 waits for a value, and is 1.9's DELETE_KEY if none comes", "[rendezvous][unit]") {
  Decoder decoder;
  Heard heard;
  hear(decoder, hex_of({"08", kK}), heard);
  CHECK(heard.requests.empty());
  REQUIRE(decoder.undecided());

  SECTION("none comes") {
    CHECK(copy_of(decoder.settle()) == Request{Op::DeleteKey, {"/k"}, {}, 0, Generation::A});
    CHECK_FALSE(decoder.undecided());
    hear(decoder, hex_of({"08", kK, "06"}), heard);  // from now on the generation is known
    REQUIRE(heard.requests.size() == 2);
    CHECK(heard.requests[0].op == Op::DeleteKey);
    CHECK(heard.requests[1].op == Op::GetNumKeys);
  }
  SECTION("it comes") {
    hear(decoder, std::string_view("\x01", 1), heard);
    CHECK_FALSE(decoder.undecided());
    hear(decoder, hex_of({"00000000000000", "76"}), heard);
    REQUIRE(heard.requests.size() == 1);
    CHECK(heard.requests[0] == Request{Op::Append, {"/k"}, {"v"}, 0, Generation::C});
  }
}

TEST_CASE("c10d: the same requests come out wherever the input is cut", "[rendezvous][unit]") {
  for (const std::string& bytes : {modern_stream(), stream_a(), stream_c(), hex_of({"07", kK})}) {
    const Heard whole = hear(bytes);
    for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
      Decoder decoder;
      Heard heard;
      hear(decoder, std::string_view(bytes).substr(0, cut), heard);
      hear(decoder, std::string_view(bytes).substr(cut), heard);
      CAPTURE(to_hex(bytes), cut);
      CHECK(heard.requests == whole.requests);
    }
    Decoder decoder;
    Heard heard;
    for (const char byte : bytes) hear(decoder, {&byte, 1}, heard);
    CHECK(heard.requests == whole.requests);
    CHECK(heard.generation == whole.generation);
  }
}

TEST_CASE("c10d: limits hold to the byte", "[rendezvous][unit]") {
  const auto number = [](std::uint64_t value) {
    std::string out;
    append_i64(out, static_cast<std::int64_t>(value));
    return out;
  };
  const std::string hello = from_hex(kValidate);
  CHECK(hear(hello + "\x03" + number(8192) + std::string(8192, 'k')).requests.size() == 1);
  CHECK(hear(hello + "\x03" + number(8193)).malformed == "a key of 8193 bytes");
  CHECK(hear(hello + "\x03" + number(1ULL << 62)).malformed == "a key of 4611686018427387904 bytes");
  const std::string set = hello + "\x01" + from_hex(kK);
  CHECK(hear(set + number(8388608) + std::string(8388608, 'v')).requests.size() == 1);
  CHECK(hear(set + number(8388609)).malformed == "a value of 8388609 bytes");
  std::string keys;
  for (int i = 0; i < 131072; ++i) keys += from_hex(kK);
  CHECK(hear(hello + "\x06" + number(131072) + keys).requests.size() == 1);
  CHECK(hear(hello + "\x06" + number(131073)).malformed == "a request with 131073 keys");
  CHECK(hear(hello + "\x0b" + number(~0ULL)).malformed == "a request with 18446744073709551615 keys");
}

TEST_CASE("c10d: a request of 131072 keys costs no more byte by byte", "[rendezvous][unit]") {
  std::string bytes = from_hex(kValidate) + "\x06";
  append_i64(bytes, 131072);
  for (int i = 0; i < 131072; ++i) append_bytes(bytes, "/key");
  Decoder decoder;
  std::size_t requests = 0;
  for (const char& byte : bytes) {  // scanning from the beginning at every read would take hours
    std::string_view input(&byte, 1);
    if (std::holds_alternative<RequestView>(decoder.decode(input))) ++requests;
  }
  CHECK(requests == 1);
}

TEST_CASE("c10d: a peer that is no store client is recognised at once", "[rendezvous][unit]") {
  CHECK(hear("GET / HTTP/1.1\r\n").malformed == "unknown operation 71");
  CHECK(hear(from_hex("16 0301")).malformed == "unknown operation 22");
  CHECK(hear(from_hex("ce f7853c")).malformed == "unknown operation 206");
  CHECK(hear(from_hex("0c")).malformed == "unknown operation 12");
  CHECK(hear(hex_of({kValidate, "13"})).malformed == "unknown operation 19");
  CHECK(hear(hex_of({kValidate, kValidate})).malformed == "VALIDATE came twice");
}

TEST_CASE("c10d: malformed is final", "[rendezvous][unit]") {
  Decoder decoder;
  Heard heard;
  hear(decoder, "X", heard);
  hear(decoder, from_hex("06"), heard);
  CHECK(heard.malformed == "unknown operation 88");
  CHECK(heard.requests.empty());
}

TEST_CASE("c10d: a claimed length allocates nothing before its bytes come", "[rendezvous][unit]") {
  for (const char* claim :
       {"01 0200000000000000 2f6b 0000800000000000", "06 0000020000000000", "0b 0000020000000000"}) {
    const std::string bytes = hex_of({kValidate, claim});
    Decoder decoder;
    std::string_view input = bytes;
    reset_largest_allocation();
    const Decoded decoded = decoder.decode(input);
    const std::size_t largest = largest_allocation();
    CHECK(std::holds_alternative<NeedMore>(decoded));
    CHECK(largest < 1024);
  }
}

TEST_CASE("c10d: random bytes break nothing and allocate nothing", "[rendezvous][unit]") {
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  const std::string valid = modern_stream();
  for (int round = 0; round < 3000; ++round) {
    std::string bytes;
    if (round % 2 == 0) {  // noise behind a valid beginning
      const std::string beginnings[] = {"", from_hex(kValidate), std::string(1, static_cast<char>(random() % 12))};
      bytes = beginnings[random() % 3];
      for (auto i = random() % 300; i > 0; --i) bytes.push_back(static_cast<char>(random() % (i % 3 ? 20 : 256)));
    } else {  // a real conversation with a few changed bytes
      bytes = valid;
      for (auto i = random() % 4 + 1; i > 0; --i) bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    Decoder decoder;
    std::size_t requests = 0;
    reset_largest_allocation();
    for (std::string_view rest = bytes; !rest.empty();) {
      std::string_view piece = rest.substr(0, random() % 40 + 1);
      rest.remove_prefix(piece.size());
      while (std::holds_alternative<RequestView>(decoder.decode(piece))) ++requests;
      if (decoder.undecided() && random() % 2 == 0) decoder.settle();
    }
    const std::size_t largest = largest_allocation();
    if (largest > 64 * 1024) FAIL("allocated " << largest << " bytes for " << to_hex(bytes));
    if (requests > bytes.size()) FAIL("more requests than bytes");
  }
}

}  // namespace
}  // namespace ddp::rendezvous
