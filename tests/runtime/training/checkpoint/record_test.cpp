// SPDX-License-Identifier: BSD-3-Clause
#include <catch2/catch.hpp>
#include <random>
#include <string>
#include <vector>

#include "rendezvous/base/error.hpp"
#include "runtime/training/checkpoint/record.hpp"
#include "runtime/training/tensor_file/checksum.hpp"

using namespace ddp::runtime;
using Catch::Matchers::Contains;
using ddp::rendezvous::Error;

namespace {

// Returns the record of one rank's file with the rows first .. first + 1 of a matrix of 4 rows.
CheckpointRecord rank_with(const std::string& file, std::int64_t first) {
  CheckpointRecord record{500, {{"lr", "0.1"}}, {{file, 152, 128, 0xfeed}}};
  record.tensors["w"] = {"F32", {4, 3}, {{0, 128, {{first, 0}, {2, 3}}, {17}}}};
  return record;
}

std::string why_not(const std::string& text) {
  try {
    parse_record("R", text);
  } catch (const Error& e) {
    CHECK(e.code() == ddp::rendezvous::ErrorCode::Corrupt);
    return e.what();
  }
  return "";
}

// Returns the body preceded by its correct checksum.
std::string signed_text(const std::string& body) {
  return "{\"checksum\":\"" + checksum_to_string(checksum(body.data(), body.size())) + "\",\n" + body;
}

}  // namespace

TEST_CASE("checkpoint record: what is written is read again", "[training][unit]") {
  const CheckpointRecord whole = join({rank_with("a", 0), rank_with("b", 2)});
  const CheckpointRecord read = parse_record("R", to_string(whole));
  CHECK(read.step == 500);
  CHECK(read.metadata.at("lr") == "0.1");
  REQUIRE(read.files.size() == 2);
  CHECK(read.files[1].name == "b");
  CHECK(read.files[1].bytes == 152);
  CHECK(read.files[1].header_checksum == 0xfeed);
  const CheckpointRecord::Tensor& w = read.tensors.at("w");
  REQUIRE(w.parts.size() == 2);
  CHECK(w.shape == Shape{4, 3});
  CHECK(w.parts[1].file == 1);
  CHECK(w.parts[1].begin == 128);
  CHECK(w.parts[1].box == Box{{2, 0}, {2, 3}});
  CHECK(w.parts[1].checksums == std::vector<std::uint64_t>{17});
}

TEST_CASE("checkpoint record: any changed byte is noticed", "[training][unit]") {
  const std::string text = to_string(join({rank_with("a", 0), rank_with("b", 2)}));
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    INFO("byte " << i);
    REQUIRE_FALSE(why_not(changed).empty());
  }
  for (std::size_t length = 0; length < text.size(); ++length) REQUIRE_FALSE(why_not(text.substr(0, length)).empty());
}

TEST_CASE("checkpoint record: impossible content is corrupt even with a correct checksum", "[training][unit]") {
  const std::string good = to_string(join({rank_with("a", 0), rank_with("b", 2)}));
  const std::string body = good.substr(good.find('\n') + 1);
  REQUIRE(why_not(signed_text(body)).empty());
  const auto [from, to, why] = GENERATE(table<std::string, std::string, std::string>({
      {"ddp checkpoint 1", "ddp checkpoint 2", "has another version"},
      {"4194304", "4194305", "blocks of another size"},
      {"\"step\":500,", "", "step is missing"},
      {"\"file\":1", "\"file\":2", "a part [2, 3] at [2, 0] that cannot be"},
      {"\"file\":1", "\"file\":-1", "not a natural number"},
      {"\"begin\":128,\"offset\":[2", "\"begin\":129,\"offset\":[2", "cannot be where it is said to be"},
      {"\"begin\":128,\"offset\":[2", "\"begin\":4611686018427387903,\"offset\":[2",
       "cannot be where it is said to be"},
      {"\"offset\":[2,0]", "\"offset\":[3,0]", "that cannot be"},
      {"\"offset\":[2,0],\"shape\":[2,3]", "\"offset\":[2,0],\"shape\":[]", "a part [] at [2, 0] that cannot be"},
      {"\"offset\":[2,0],\"shape\":[2,3]", "\"offset\":[],\"shape\":[2,3]", "a part [2, 3] at [] that cannot be"},
      {"\"offset\":[2,0]", "\"offset\":[1,0]", "tensor w is not whole: [1:2, 0:3] of [4, 3] is given twice"},
      {"\"file\":1,\"begin\":128", "\"file\":0,\"begin\":128",
       "a part begins at byte 128 of a, but what is before it ends at 152"},
      {"\"name\":\"b\",\"bytes\":152", "\"name\":\"b\",\"bytes\":153", "b has 153 bytes, but its parts end at 152"},
      {"\"name\":\"b\",\"bytes\":152,\"header_bytes\":128", "\"name\":\"b\",\"bytes\":152,\"header_bytes\":120",
       "a part begins at byte 128 of b, but what is before it ends at 120"},
      {"\"header_bytes\":128", "\"header_bytes\":153", "b cannot have a header of 153 bytes"},
      {"\"name\":\"b\"", "\"name\":\"a\"", "it names the file a twice"},
      {"\"name\":\"b\"", "\"name\":\"..\"", "not a file name"},
      {"\"name\":\"b\"", "\"name\":\"b\\u0000\"", "not a file name"},
      {"\"F32\"", "\"Q4\"", "cannot be [4, 3] of Q4"},
      {"\"shape\":[4,3]", "\"shape\":[-4,3]", "tensors.w.shape is not a natural number"},
      {"\"shape\":[4,3]", "\"shape\":[8,3]", "tensor w is not whole: 12 of the 24 elements of [8, 3] are missing"},
      {"\"shape\":[4,3]", "\"shape\":[4611686018427387903,3]", "w cannot be [4611686018427387903, 3] of F32"},
      {"\"0000000000000011\"]", "]", "cannot be where"},
      {"\"0000000000000011\"", "\"11\"", "\"11\" is not a checksum"},
      {"\"name\":\"b\"", "\"name\":\"../b\"", "not a file name"},
      {"\"files\":", "\"filed\":", "files is missing"},
      {"{\"w\"", "[{\"w\"", "tensors is not an object"},
      {"{\"w\"", "{\"w", "it is no JSON: byte"},
  }));
  std::string changed = body;
  const std::size_t at = changed.rfind(from);
  REQUIRE(at != std::string::npos);
  changed.replace(at, from.size(), to);
  CHECK_THAT(why_not(signed_text(changed)), Contains(why));
}

TEST_CASE("checkpoint record: of one rank's tensors only a part may be there", "[training][unit]") {
  const std::string part = to_string(rank_with("a", 0));
  CHECK(parse_rank_record("R", part).tensors.at("w").parts.size() == 1);
  CHECK_THAT(why_not(part), Contains("tensor w is not whole: 6 of the 12 elements of [4, 3] are missing"));
}

TEST_CASE("checkpoint record: an error names the tensor about which ranks disagree, or of which a part is missing",
          "[training][unit]") {
  CHECK_THROWS_WITH(join({rank_with("a", 0)}), Contains("tensor w is not whole: 6 of the 12 elements"));
  CHECK_THROWS_WITH(join({rank_with("a", 0), rank_with("b", 1)}), Contains("[1:2, 0:3] of [4, 3] is given twice"));
  CheckpointRecord other = rank_with("b", 2);
  other.tensors["w"].dtype = "I32";
  CHECK_THROWS_WITH(join({rank_with("a", 0), other}), Contains("[4, 3] of F32 to one rank and [4, 3] of I32"));
}

TEST_CASE("checkpoint record: Hugging Face's index is of whole tensors in several files", "[training][unit]") {
  CHECK_FALSE(has_index(join({rank_with("a", 0), rank_with("b", 2)})));
  CheckpointRecord a{1, {}, {{"a", 16, 8, 0}}};
  a.tensors["v"] = {"F32", {2}, {{0, 8, whole_box({2}), {1}}}};
  CheckpointRecord b{1, {}, {{"b", 12, 8, 0}}};
  b.tensors["u"] = {"F32", {}, {{0, 8, whole_box({}), {1}}}};
  CHECK_FALSE(has_index(a));
  const CheckpointRecord both = join({a, b});
  REQUIRE(has_index(both));
  CHECK_THAT(index_json(both), Contains("\"total_size\": 12") && Contains("\"u\": \"b\"") && Contains("\"v\": \"a\""));
}

TEST_CASE("checksum: XXH3 of 64 bits, as its specification gives it", "[training][unit]") {
  CHECK(checksum_to_string(checksum("", 0)) == "2d06800538d394c2");
  CHECK(parse_checksum("2d06800538d394c2") == checksum("", 0));
  CHECK_FALSE(parse_checksum("2d06800538d394c").has_value());
  CHECK_FALSE(parse_checksum("2d06800538d394cg").has_value());
}
