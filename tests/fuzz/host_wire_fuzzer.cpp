// SPDX-License-Identifier: BSD-3-Clause
// libFuzzer for what passes between the head of a job with --hosts and the ddprun on a host. The first byte of an input
// says how the rest is cut, and the rest is what one of them sends. This holds:
//   * However the bytes are cut, the host's first words and the frames after them are the same, and each is bounded.
//   * A job header and a hello are refused in words, or read; what was read is written and read again as the same.
#include <string>
#include <string_view>
#include <variant>

#include "launcher/hosts/wire/frame.hpp"
#include "launcher/hosts/wire/greeting.hpp"
#include "launcher/hosts/wire/job_header.hpp"
#include "rendezvous/base/check.hpp"
#include "rendezvous/base/error.hpp"
#include "tests/fuzz/script.hpp"

namespace ddp::fuzz {
namespace {

using namespace launcher;

// Whatever `read` makes of the text, it makes of what is written of that.
template <typename Read>
void check_payload(std::string_view text, Read read) {
  try {
    const std::string written = to_text(read(text));
    DDP_CHECK(to_text(read(written)) == written, written);
  } catch (const rendezvous::Error& error) {
    DDP_CHECK(!std::string_view(error.what()).empty());
  }
}

void check_frame(const Frame& frame) {
  DDP_CHECK(frame.payload.size() <= kMostInHeader);
  check_payload(frame.payload, job_header_from);
  check_payload(frame.payload, hello_from);
}

std::string frames_of(std::string_view bytes, std::size_t piece) {
  FrameReader reader;
  std::string all;
  while (!bytes.empty()) {
    reader.add(bytes.substr(0, piece));
    bytes.remove_prefix(std::min(piece, bytes.size()));
    while (true) {
      const auto next = reader.next();
      if (std::holds_alternative<NeedMore>(next)) break;
      if (const auto* wrong = std::get_if<Malformed>(&next)) return all + wrong->why;
      const auto& frame = std::get<Frame>(next);
      all += to_frame(frame.kind, frame.payload);
      check_frame(frame);
    }
  }
  return all;
}

std::string words_of(std::string_view bytes, std::size_t piece) {
  Greeting greeting;
  std::string all;
  while (!bytes.empty()) {
    greeting.add(bytes.substr(0, piece));
    bytes.remove_prefix(std::min(piece, bytes.size()));
    while (true) {
      const auto next = greeting.next();
      if (std::holds_alternative<Greeting::NothingYet>(next)) break;
      if (const auto* cannot = std::get_if<Greeting::Cannot>(&next)) return all + cannot->why;
      if (std::holds_alternative<Greeting::Ready>(next)) return all + "ready " + greeting.take_rest().append(bytes);
      all += "send ";
    }
  }
  return all;
}

}  // namespace
}  // namespace ddp::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ddp::fuzz::Script script(data, size);
  const std::size_t piece = 1 + script.byte();
  const std::string_view bytes = script.bytes(size);
  DDP_CHECK(ddp::fuzz::frames_of(bytes, piece) == ddp::fuzz::frames_of(bytes, size));
  DDP_CHECK(ddp::fuzz::words_of(bytes, piece) == ddp::fuzz::words_of(bytes, size));
  ddp::fuzz::check_frame({ddp::launcher::FrameKind::Header, std::string(bytes)});
  return 0;
}
