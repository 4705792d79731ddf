// SPDX-License-Identifier: BSD-3-Clause
#include <catch2/catch.hpp>
#include <chrono>
#include <map>

#include "rendezvous/wire/message.hpp"

using namespace ddp::rendezvous;
using Catch::Matchers::Contains;

namespace {

constexpr FrameLimit kLimits[] = {{FrameKind::Beat, 0}, {FrameKind::Stdout, 16}, {FrameKind::Hello, 4096}};

enum class Colour { Red, Green };
struct Sample {
  static constexpr FrameKind kKind = FrameKind::Hello;
  std::string name, folder;
  std::vector<std::string> arguments;
  int count = 1, port = 1;
  Colour colour = Colour::Red;
  std::chrono::milliseconds wait{0};
  std::optional<bool> is_known;
  std::map<std::string, int> seen;
  bool operator==(const Sample&) const = default;
};

template <typename Json>
void members(Json& json, Sample& sample) {
  json.must("name", sample.name).bytes("folder", sample.folder).bytes("arguments", sample.arguments);
  json.rest("count", sample.count, 1).within("port", sample.port, 1, 65535);
  json.word("colour", sample.colour, {"red", "green"}).must("wait_ms", sample.wait);
  json.rest("is_known", sample.is_known).rest("seen", sample.seen);
}

// Returns each frame of the bytes as its kind and payload, in brackets, and at the end why there is no more.
std::string read_all(std::string_view bytes, std::size_t piece) {
  FrameReader reader(kLimits);
  std::string all;
  for (; !bytes.empty(); bytes.remove_prefix(std::min(piece, bytes.size()))) {
    reader.add(bytes.substr(0, piece));
    while (true) {
      const auto next = reader.next();
      if (std::holds_alternative<NeedMore>(next)) break;
      if (const auto* wrong = std::get_if<Malformed>(&next)) return all + wrong->why;
      const Frame& frame = std::get<Frame>(next);
      all.append({'[', static_cast<char>(frame.kind)}).append(frame.payload) += "]";
    }
  }
  return all;
}

std::variant<Malformed, Sample> read(const std::string& json) { return read_message<Sample>({FrameKind::Hello, json}); }
std::string why_not(const std::string& json) {
  const auto result = read(json);
  const auto* wrong = std::get_if<Malformed>(&result);
  return wrong ? wrong->why : "it was read";
}

}  // namespace

TEST_CASE("wire: frames come out as they went in, however they are cut", "[rendezvous][unit]") {
  const std::string bytes = to_frame(FrameKind::Stdout, "hi\n") + to_frame(FrameKind::Beat, "");
  CHECK(bytes == std::string("\0\0\0\x05o\x01hi\n\0\0\0\x02"
                             "b\x01",
                             15));
  for (std::size_t piece = 1; piece <= bytes.size(); ++piece) CHECK(read_all(bytes, piece) == "[ohi\n][b]");
}

TEST_CASE("wire: a million small frames that come together are taken apart in passing", "[rendezvous][unit]") {
  constexpr int kFrames = 1'000'000;
  std::string bytes;
  for (int i = 0; i < kFrames; ++i) bytes += to_frame(FrameKind::Beat, "");
  FrameReader reader(kLimits);
  reader.add(bytes);
  int seen = 0;
  while (std::holds_alternative<Frame>(reader.next())) ++seen;  // minutes, if each one moves those after it
  CHECK(seen == kFrames);
}

TEST_CASE("wire: bytes that are no frame are refused in words before they are all there, for good",
          "[rendezvous][unit]") {
  const std::string good = to_frame(FrameKind::Stdout, "hi");
  const auto refused = [&](const std::string& head) {
    const std::string whole = read_all(good + head, 1000);
    for (std::size_t piece = 1; piece < 9; ++piece) CHECK(read_all(good + head + good, piece) == whole);
    return whole;
  };
  CHECK(refused({0, 0, 0, 1, 'o', 1}) == "[ohi]a frame of 1 bytes");
  CHECK(refused({0, 0, 0, 2, 'z', 1}) == "[ohi]a frame of the unknown kind 122");
  CHECK(refused({0, 0, 0, 2, 'A', 1}) ==
        "[ohi]a frame of the unknown kind 65");  // a kind that another connection takes
  CHECK_THAT(refused({0, 0, 0, 2, 'o', 7}), Contains("a frame of version 7, and this ddprun reads version 1"));
  CHECK(refused({0, 0, 0, 19, 'o', 1}) == "[ohi]a frame of 19 bytes, where at most 18 are allowed");
  CHECK_THAT(refused({'\xff', '\xff', '\xff', '\xff', 'b', 1}), Contains("a frame of 4294967295 bytes"));
  CHECK_THAT(refused("GET / HTTP/1.1\r\n"), Contains("a frame of version 32"));
}

TEST_CASE("wire: a message is what was sent, and has no member that says nothing", "[rendezvous][unit]") {
  Sample sample{.name = "a \"b\"\n", .folder = "/\xff\xc3", .arguments = {"", "\xc2\xa0\x01"}, .count = 2, .port = 7};
  sample.colour = Colour::Green;
  sample.wait = std::chrono::seconds(3);
  sample.is_known = false;
  sample.seen = {{"x", 1}, {"y", 2}};
  FrameReader reader(kLimits);
  reader.add(to_frame(sample));
  CHECK(std::get<Sample>(read_message<Sample>(std::get<Frame>(reader.next()))) == sample);
  CHECK(json_of(Sample{}) ==
        R"({"name": "", "folder": "", "arguments": [], "port": 1, "colour": "red", "wait_ms": 0})");
  const auto replaced = read(json_of(Sample{.name = "\xff"}));
  CHECK(std::get<Sample>(replaced).name == "\xef\xbf\xbd");
}

TEST_CASE("wire: a message that lacks something or has what cannot be is refused in words", "[rendezvous][unit]") {
  const auto with = [](const std::string& old, const std::string& now) {
    std::string json = json_of(Sample{});
    return why_not(json.replace(json.find(old), old.size(), now));
  };
  CHECK(with("\"port\"", "\"more\": [{}], \"port\"") == "it was read");
  CHECK(with("\"port\"", "\"count\": 7.5, \"port\"") == "count: no integer of this size");
  CHECK(with("\"port\"", "\"count\": 4294967296, \"port\"") == "count: no integer of this size");
  CHECK(with("\"wait_ms\": 0", "\"wait_ms\": 1e300") == "wait_ms: no integer of this size");
  CHECK(with("\"port\": 1", "\"port\": 65536") == "port is 65536, and not from 1 to 65535");
  CHECK(with("\"red\"", "\"blue\"") == "colour is a word that is not known");
  CHECK(with("\"name\"", "\"game\"") == "name is missing");
  CHECK_THAT(with("\"name\": \"\"", "\"name\": 5"), Contains("name: ") && Contains("type must be string"));
  CHECK(with("[]", "[\"\\u0000\"]") == "a word with a NUL in it");
  CHECK(with("[]", "[\"\\u0100\"]") == "a character that is no byte");
  CHECK(why_not("{") == "no JSON, or nested too deeply");
  CHECK(why_not("[]") == "no object");
  CHECK(why_not(R"({"name":)" + std::string(1000, '[') + std::string(1000, ']') + "}") ==
        "no JSON, or nested too deeply");
  CHECK(std::get<Malformed>(read_message<Sample>({FrameKind::Stdout, json_of(Sample{})})).why ==
        "a message that does not belong here");
}
