// SPDX-License-Identifier: BSD-3-Clause
// libFuzzer for Decoder and StoreCore together. An input is a script (store_script.hpp): what four
// connections send, in which pieces and in which order, and when they leave. After each step this
// must hold:
//   * Every answer to any connection equals store_model.hpp's, byte for byte: one for each request that has one, in
//     order, and at most one byte for a WAIT.
//   * However a stream is cut, its requests are the same as those of the stream in one piece. A Modern stream equals
//     its requests encoded again, plus a request that is not complete yet.
//   * The store counts as kept what the model's maps hold, and refuses a request when the model does.
//   * The lists of waiters and of watched keys agree; when all connections have left, both are empty.
//   * No request makes the store allocate more than the script could have sent (scripts/stress/fuzz: -malloc_limit_mb).
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rendezvous/base/check.hpp"
#include "rendezvous/store/c10d_protocol.hpp"
#include "rendezvous/store/store_core.hpp"
#include "tests/fuzz/script.hpp"
#include "tests/fuzz/store_model.hpp"
#include "tests/fuzz/store_script.hpp"
#include "tests/rendezvous/store/requests.hpp"

namespace ddp::rendezvous::fuzz {
namespace {

// Gives access to StoreCore's private members without a friend declaration in store_core.hpp: an
// explicit instantiation may name private members.
template <typename Tag, auto Member>
struct Reveal {
  friend constexpr auto reveal(Tag) { return Member; }
};
#define REVEAL(Tag, member)            \
  struct Tag {                         \
    friend constexpr auto reveal(Tag); \
  };                                   \
  template struct Reveal<Tag, &StoreCore::member>
REVEAL(MaxBytes, max_bytes_);
REVEAL(Queues, queues_);
REVEAL(Lines, lines_);
REVEAL(Waiters, waiters_);
REVEAL(Watchers, watchers_);
REVEAL(Watched, watched_);
#undef REVEAL

using ddp::fuzz::Script;

struct Connection {
  ConnectionId id = 0;
  Decoder decoder;
  std::string stream;       // all bytes it sent
  std::string requests;     // the requests decoded from it, each as append_record() writes it
  std::size_t settled = 0;  // position in the stream at which it settled; a connection settles at most once
  bool has_settled = false;
  std::string malformed;  // if it was malformed: why
  bool gone = false;      // the server closed it; what it still sends is not read
};

void append_record(std::string& out, const Request& request) {
  if (request.generation != Generation::Modern) out += static_cast<char>(request.generation);
  append_request(out, request);
}

class Run {
 public:
  Run() {
    for (std::size_t i = 0; i < kConnections; ++i) connections_[i].id = i;
  }

  void step(Script& script) {
    const unsigned head = script.byte();
    Connection& connection = connections_[head % kConnections];
    const unsigned n = head >> 5;
    std::string bytes;
    switch (static_cast<Step>(head >> 2 & 7)) {
      case Step::Bytes: {
        const std::size_t size = script.byte();
        return feed(connection, script.bytes(size));
      }
      case Step::FewBytes:
        return feed(connection, script.bytes(n + 1));
      case Step::Number:
        append_i64(bytes, script.byte());
        return feed(connection, bytes);
      case Step::Key:
        append_bytes(bytes, std::string_view("/a/b/c/d").substr(n / 4 * 2, 2 + n % 4 * 2));
        return feed(connection, bytes);
      case Step::Hello:
        append_validate(bytes);
        return feed(connection, bytes);
      case Step::Disconnect:
        return leave(connection);
      case Step::Settle:
        return settle(connection);
      case Step::Reset:
        if (n == 7) reset();
        if (n == 6) limit(std::size_t{8} * script.byte());
        return;
    }
  }

  void finish() {
    check_lines();
    for (Connection& connection : connections_) leave(connection);
    check_nobody();
  }

 private:
  void feed(Connection& connection, std::string_view input) {
    if (connection.gone) return;
    connection.stream += input;
    while (!connection.gone) {
      Decoded decoded = connection.decoder.decode(input);
      if (std::holds_alternative<NeedMore>(decoded)) {
        DDP_CHECK(input.empty());
        return;
      }
      if (const Malformed* malformed = std::get_if<Malformed>(&decoded)) {
        connection.malformed = malformed->why;
        DDP_CHECK(!connection.malformed.empty());
        return close(connection);  // its bytes stay in the stream: decoded as a whole, it must end the same way
      }
      apply(connection, std::get<RequestView>(decoded));
    }
    connection.stream.resize(connection.stream.size() - input.size());  // drops what the server did not read
  }

  void settle(Connection& connection) {
    if (connection.gone || !connection.decoder.undecided()) return;
    DDP_CHECK(!connection.has_settled);
    connection.has_settled = true;
    connection.settled = connection.stream.size();
    apply(connection, connection.decoder.settle());
  }

  void apply(Connection& connection, const RequestView& view) {
    const Request request = copy_of(view);
    append_record(connection.requests, request);
    const Op op = request.op;
    StoreModel::Outcome expected = model_.apply(connection.id, request);
    replies_ = {};
    replies_.from = connection.id;
    core_.apply(view, replies_);
    StoreModel::Outcome ours;
    if (!replies_.answer.empty()) ours.to(connection.id) = replies_.answer;
    for (const Replies::Send& send : replies_.others) {
      const Connection& receiver = connections_[send.to % kConnections];
      DDP_CHECK(receiver.id == send.to && !receiver.gone, send.to);  // a connection that has left gets no answer
      ours.to(send.to) += send.bytes;
    }
    if (op == Op::ListKeys) {
      ours.to(connection.id) = sorted(ours.to(connection.id));
      expected.to(connection.id) = sorted(expected.to(connection.id));
    }
    DDP_CHECK(ours.sent == expected.sent, static_cast<int>(op), connection.id);
    DDP_CHECK(replies_.close.empty() != expected.closes);
    DDP_CHECK(core_.size().bytes == model_.bytes(), static_cast<int>(op), core_.size().bytes, model_.bytes());
    if (expected.closes) close(connection);
  }

  void limit(std::size_t more) {
    core_.*reveal(MaxBytes{}) = core_.size().bytes + more;
    model_.set_limit(core_.size().bytes + more);
  }

  // Returns a LIST_KEYS answer in sorted order, which does not depend on a hash table.
  static std::string sorted(std::string_view answer) {
    std::vector<std::string> keys(read_integer(answer.substr(0, 8)));
    std::string again(answer.substr(0, 8));
    answer.remove_prefix(8);
    for (std::string& key : keys) {
      key = answer.substr(8, read_integer(answer.substr(0, 8)));
      answer.remove_prefix(8 + key.size());
    }
    DDP_CHECK(answer.empty());
    std::sort(keys.begin(), keys.end());
    for (const std::string& key : keys) append_bytes(again, key);
    return again;
  }

  void close(Connection& connection) {
    connection.gone = true;
    core_.disconnected(connection.id);
    model_.disconnected(connection.id);
  }

  void leave(Connection& connection) {
    if (!connection.gone) close(connection);
    check_split(connection);
    check_encoding(connection);
    const ConnectionId next = connection.id + kConnections;
    connection = {};
    connection.id = next;
  }

  void reset() {
    core_.reset();
    model_.reset();
    for (Connection& connection : connections_) leave(connection);  // afterwards, as the driver does
    check_nobody();
  }

  static void check_split(const Connection& connection) {
    Decoder decoder;
    std::string requests;
    std::string malformed;
    const auto decode = [&](std::string_view input) {
      Decoded decoded = decoder.decode(input);
      for (; std::holds_alternative<RequestView>(decoded); decoded = decoder.decode(input)) {
        append_record(requests, copy_of(std::get<RequestView>(decoded)));
      }
      if (const Malformed* reason = std::get_if<Malformed>(&decoded)) malformed = reason->why;
    };
    const std::string_view stream = connection.stream;
    decode(stream.substr(0, connection.has_settled ? connection.settled : stream.size()));
    if (connection.has_settled) {
      append_record(requests, copy_of(decoder.settle()));
      decode(stream.substr(connection.settled));
    }
    DDP_CHECK(requests == connection.requests);
    DDP_CHECK(malformed == connection.malformed, malformed, connection.malformed);
    DDP_CHECK(decoder.generation() == connection.decoder.generation());
    DDP_CHECK(decoder.undecided() == connection.decoder.undecided());
  }

  static void check_encoding(const Connection& connection) {
    if (connection.decoder.generation() != Generation::Modern) return;
    std::string again;
    append_validate(again);
    again += connection.requests;
    DDP_CHECK(connection.stream.compare(0, again.size(), again) == 0);
  }

  void check_lines() const {
    std::size_t places = 0;
    for (const auto& [connection, waiter] : core_.*reveal(Waiters{})) {
      DDP_CHECK(waiter.connection == connection && waiter.missing > 0);
      places += waiter.missing;
    }
    (core_.*reveal(Lines{})).for_each([&places](const auto& line) {
      DDP_CHECK(line.value.first != nullptr);
      for (const auto* place = line.value.first; place != nullptr; place = place->behind) {
        DDP_CHECK(place->line == &line && (place->behind == nullptr) == (place == line.value.last));
        --places;
      }
    });
    DDP_CHECK(places == 0);
    DDP_CHECK((core_.*reveal(Waiters{})).size() == model_.waiting());
    (core_.*reveal(Queues{})).for_each([](const auto& queue) { DDP_CHECK(!queue.value.empty()); });
    std::size_t watched = 0;
    for (const auto& [connection, keys] : core_.*reveal(Watched{})) watched += keys.size();
    (core_.*reveal(Watchers{})).for_each([&watched](const auto& watchers) { watched -= watchers.value.size(); });
    DDP_CHECK(watched == 0);
  }

  void check_nobody() const {
    DDP_CHECK((core_.*reveal(Waiters{})).empty() && (core_.*reveal(Lines{})).empty());
    DDP_CHECK((core_.*reveal(Watchers{})).empty() && (core_.*reveal(Watched{})).empty());
  }

  StoreCore core_;
  StoreModel model_;
  std::array<Connection, kConnections> connections_;
  Replies replies_;
};

}  // namespace
}  // namespace ddp::rendezvous::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ddp::rendezvous::fuzz;
  Script script(data, size);
  Run run;
  while (!script.ended()) run.step(script);
  run.finish();
  return 0;
}
