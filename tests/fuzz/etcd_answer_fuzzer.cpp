// SPDX-License-Identifier: BSD-3-Clause
// libFuzzer for what etcd answers: an input is the kind of a request, how the bytes are cut, and what a server sends.
// This holds:
//   * However they are cut, the same bytes are read as the same answer, and no more of them is kept than an answer may
//   have.
//   * What was asked for is what is there: no other key twice, no lease of another number, a token that fits a header.
//   * Words for the user have no control characters.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "rendezvous/base/check.hpp"
#include "rendezvous/etcd/http_answer.hpp"
#include "rendezvous/etcd/lease_core.hpp"
#include "rendezvous/etcd/messages.hpp"

namespace ddp::rendezvous::fuzz {
namespace {

constexpr std::size_t kHead = 2;

EtcdRequest request_of(unsigned char kind) {
  switch (kind % 6) {
    case 0:
      return ReadKey{"h"};
    case 1:
      return Transaction{
          {{"h", KeyComparison::Of::Created, 0}}, {PutKey{"h", "x"}, ReadKey{"r"}}, {ReadKey{"h"}, ReadKey{"r"}}};
    case 2:
      return GrantLease{5};
    case 3:
      return RenewLease{77};
    case 4:
      return Authenticate{"a", "b"};
    default:
      return AskVersion{};
  }
}

void check_words(const std::string& words) {
  for (const char c : words) {
    const auto byte = static_cast<unsigned char>(c);
    DDP_CHECK(byte == '\t' || (byte >= ' ' && byte != 0x7f), static_cast<int>(byte), words);
  }
}

struct Read {
  HttpAnswer::State state = HttpAnswer::State::Reading;
  unsigned status = 0;
  std::string body, lines;
};

Read read(std::string_view bytes, std::size_t cut, HttpAnswer::Shape shape) {
  HttpAnswer answer(shape);
  Read all;
  for (std::size_t at = 0; at < bytes.size(); at += cut) {
    answer.feed(bytes.substr(at, cut));
    for (std::string line; answer.take_line(line);) all.lines += line + "\n";
  }
  answer.end();
  all.state = answer.state();
  all.status = answer.status();
  if (all.state == HttpAnswer::State::Done) all.body = answer.body();
  check_words(answer.why_bad());
  DDP_CHECK(all.body.size() <= kMostAnswerBytes);
  return all;
}

void check_answer(const EtcdRequest& request, const EtcdOutcome& outcome) {
  if (const auto* refusal = std::get_if<EtcdRefusal>(&outcome)) return check_words(refusal->why);
  const auto& answer = std::get<EtcdAnswer>(outcome);
  DDP_CHECK(answer.keys.size() <= 2, answer.keys.size());
  DDP_CHECK(answer.seconds >= 0, answer.seconds);
  if (std::holds_alternative<RenewLease>(request)) DDP_CHECK(answer.lease == 77, answer.lease);
  if (std::holds_alternative<GrantLease>(request)) DDP_CHECK(answer.lease != 0 && answer.seconds > 0);
  if (!std::holds_alternative<Authenticate>(request)) return;
  for (const char c : answer.text) DDP_CHECK(c > ' ' && c < 0x7f, static_cast<int>(c));
}

// The core takes whatever was read, and says something that makes sense.
void check_core(const EtcdOutcome& outcome) {
  LeaseCore core({.job = "j", .self = "a"});
  std::vector<LeaseAction> actions;
  core.step(LeaseTime(), LeaseStart{}, actions);
  for (std::uint64_t ask = 1; ask <= 4; ++ask) core.step(LeaseTime(), LeaseAnswered{ask, outcome}, actions);
  for (const LeaseAction& action : actions) {
    if (const auto* held = std::get_if<LeaseHeld>(&action)) DDP_CHECK(held->lease != 0);
  }
}

void check(const unsigned char* data, std::size_t size) {
  if (size < kHead) return;
  const EtcdRequest request = request_of(data[0]);
  const std::size_t cut = 1 + data[1];
  const std::string_view bytes(reinterpret_cast<const char*>(data) + kHead, size - kHead);
  for (const HttpAnswer::Shape shape : {HttpAnswer::Shape::Whole, HttpAnswer::Shape::Lines}) {
    const Read whole = read(bytes, bytes.size() + 1, shape), parts = read(bytes, cut, shape);
    DDP_CHECK(whole.state == parts.state && whole.status == parts.status, bytes);
    if (shape == HttpAnswer::Shape::Whole) DDP_CHECK(whole.body == parts.body, bytes);
    if (whole.state == HttpAnswer::State::Done) check_answer(request, read_answer(request, whole.status, whole.body));
  }
  for (const unsigned status : {200U, 404U, 503U}) {
    const EtcdOutcome outcome = read_answer(request, status, bytes);
    check_answer(request, outcome);
    check_core(outcome);
  }
  const auto news = read_news(bytes);
  if (const auto* refusal = std::get_if<EtcdRefusal>(&news)) check_words(refusal->why);
}

}  // namespace
}  // namespace ddp::rendezvous::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ddp::rendezvous::fuzz::check(data, size);
  return 0;
}
