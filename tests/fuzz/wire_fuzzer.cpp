// SPDX-License-Identifier: BSD-3-Clause
// libFuzzer for the frames between ddprun's processes and for the messages in them. The first byte of an input says how
// the rest is cut, and the rest is what one process sends another. This holds:
//   * However the bytes are cut, the frames of each connection, and a host's first words, are the same and bounded.
//   * A message is refused in words, or read; what was read is written and read again as the same.
//   * Pids of a warm parent are positive and differ; words of it are printable.
#include <algorithm>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "launcher/hosts/wire/greeting.hpp"
#include "launcher/hosts/wire/messages.hpp"
#include "launcher/preload/parent_messages.hpp"
#include "rendezvous/agent_client.hpp"
#include "rendezvous/base/check.hpp"
#include "rendezvous/base/error.hpp"
#include "rendezvous/link/codec.hpp"
#include "rendezvous/link/printable.hpp"
#include "tests/fuzz/script.hpp"

namespace ddp::fuzz {
namespace {

using launcher::Greeting;
using rendezvous::Frame;
using rendezvous::FrameKind;
using rendezvous::Malformed;
using rendezvous::NeedMore;

// What each connection may carry, and all kinds at once.
constexpr rendezvous::FrameLimit kAllFrames[] = {
    {FrameKind::Beat, 0},        {FrameKind::AgentState, 512}, {FrameKind::Directive, 512}, {FrameKind::Hello, 64},
    {FrameKind::JobHeader, 999}, {FrameKind::Stdout, 1},       {FrameKind::LookEnd, 512}};

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

void check_host_message(std::string_view payload) {
  check_payload(payload, launcher::job_header_from);
  check_payload(payload, launcher::hello_from);
}

void check_request(std::string_view bytes) {
  const auto read = rendezvous::decode_request(std::string(bytes));
  if (std::holds_alternative<Malformed>(read)) return;
  const std::string written = encode(std::get<rendezvous::AgentRequest>(read));
  const auto again = rendezvous::decode_request(written);
  DDP_CHECK(encode(std::get<rendezvous::AgentRequest>(again)) == written, written);
}

void check_parent(const Frame& frame) {
  const launcher::ParentMessage message = launcher::parent_message(frame);
  const auto is_printable = [](const std::string& text) { return rendezvous::printable_line(text) == text; };
  if (const auto* ready = std::get_if<launcher::ParentReady>(&message)) {
    DDP_CHECK(ready->took.count() >= 0 && is_printable(ready->modules));
  } else if (const auto* gives_up = std::get_if<launcher::ParentGivesUp>(&message)) {
    DDP_CHECK(is_printable(gives_up->why) && gives_up->why.size() < 5000, gives_up->why.size());
  } else {
    const auto& pids = std::get<launcher::ParentForked>(message).pids;
    const std::set<pid_t> different(pids.begin(), pids.end());
    DDP_CHECK(different.size() == pids.size() && (pids.empty() || *different.begin() > 0));
  }
}

// Returns each frame of the bytes as it would be sent again, and why there is no more.
std::string frames_of(std::string_view bytes, std::size_t piece, std::span<const rendezvous::FrameLimit> limits) {
  rendezvous::FrameReader reader(limits);
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
      check_host_message(frame.payload);
      check_parent(frame);
    }
  }
  return all;
}

// Returns each message of an agent link as it would be sent again, and why there is no more.
std::string link_messages_of(std::string_view bytes, std::size_t piece) {
  rendezvous::FrameDecoder decoder;
  std::string all;
  while (!bytes.empty()) {
    decoder.feed(bytes.substr(0, piece));
    bytes.remove_prefix(std::min(piece, bytes.size()));
    for (auto next = decoder.next(); !std::holds_alternative<NeedMore>(next); next = decoder.next()) {
      if (const auto* wrong = std::get_if<Malformed>(&next)) return all + wrong->why;
      const std::string written = std::visit(
          [](const auto& message) -> std::string {
            if constexpr (requires { encode(message); }) return encode(message);
            return "";
          },
          next);
      rendezvous::FrameDecoder again;
      again.feed(written);
      const auto read = again.next();
      DDP_CHECK(read.index() == next.index(), written);
      all += written;
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
  using namespace ddp::fuzz;
  Script script(data, size);
  const std::size_t piece = 1 + script.byte();
  const std::string_view bytes = script.bytes(size);
  DDP_CHECK(frames_of(bytes, piece, kAllFrames) == frames_of(bytes, size, kAllFrames));
  DDP_CHECK(frames_of(bytes, piece, ddp::launcher::kHostFrames) == frames_of(bytes, size, ddp::launcher::kHostFrames));
  DDP_CHECK(link_messages_of(bytes, piece) == link_messages_of(bytes, size));
  DDP_CHECK(words_of(bytes, piece) == words_of(bytes, size));
  check_host_message(bytes);
  check_request(bytes);
  for (const FrameKind kind : {FrameKind::ParentReady, FrameKind::ParentForked, FrameKind::ParentGivesUp}) {
    check_parent({kind, bytes});
  }
  return 0;
}
