// SPDX-License-Identifier: BSD-3-Clause
// Conversations recorded between PyTorch clients and PyTorch servers, replayed against ours: codec and core together.
#include <catch2/catch.hpp>
#include <fstream>
#include <map>
#include <sstream>

#include "rendezvous/store_core.hpp"
#include "tests/rendezvous/hex.hpp"

namespace ddp::rendezvous {
namespace {

// The server's side of all connections of one capture; keeps what each was sent since the last take().
class Replay {
 public:
  void receive(ConnectionId from, const std::string& bytes) {
    Decoder& decoder = decoders_[from];
    std::string_view input = bytes;
    while (true) {
      Decoded decoded = decoder.decode(input);
      if (std::holds_alternative<Malformed>(decoded)) closed_[from] = true;
      if (!std::holds_alternative<RequestView>(decoded)) break;
      apply(from, std::get<RequestView>(decoded));
    }
    if (decoder.undecided()) apply(from, decoder.settle());  // its client now waits for the answer
  }
  std::map<ConnectionId, std::string> take() { return std::exchange(sent_, {}); }
  bool closed(ConnectionId connection) { return closed_[connection]; }

 private:
  void apply(ConnectionId from, const RequestView& request) {
    Replies replies;
    replies.from = from;
    core_.apply(request, replies);
    if (!replies.answer.empty()) sent_[from] += replies.answer;
    for (const Replies::Send& send : replies.others) sent_[send.to] += send.bytes;
    if (!replies.close.empty()) closed_[from] = true;
  }

  StoreCore core_;
  std::map<ConnectionId, Decoder> decoders_;
  std::map<ConnectionId, std::string> sent_;
  std::map<ConnectionId, bool> closed_;
};

constexpr ConnectionId kSecondClient = 1000;  // written by hand, its answers were not recorded

void replay(const std::string& file) {
  std::ifstream lines(std::string(CAPTURES_DIR) + "/" + file);
  REQUIRE(lines);
  Replay server;
  std::string call;
  std::map<ConnectionId, std::string> recorded;
  int compared = 0;
  const auto compare = [&] {
    auto ours = server.take();
    ours.erase(kSecondClient);
    INFO(file << ": " << call);
    for (const auto& [connection, bytes] : recorded) CHECK(to_hex(ours[connection]) == bytes);
    CHECK(ours.size() == recorded.size());
    recorded.clear();
    ++compared;
  };
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    char kind = 0;
    ConnectionId connection = 0;
    std::string hex;
    if (line[0] == '=') {
      compare();
      call = line;
    } else if (words >> kind >> connection >> hex, kind == '>') {
      server.receive(connection, from_hex(hex));
    } else if (kind == '<') {
      recorded[connection] = hex;
    } else if (kind == 'x') {
      CHECK(server.closed(connection));
    }
  }
  compare();
  CHECK(compared > 30);
}

TEST_CASE("store: answers a client of PyTorch 1.13 as its own server did", "[rendezvous][unit]") {
  replay("torch-1.13.1.txt");
}
TEST_CASE("store: answers a client of PyTorch 2.1 as its own server did", "[rendezvous][unit]") {
  replay("torch-2.1.2.txt");
}
TEST_CASE("store: answers a client of PyTorch 2.15 as its own server did", "[rendezvous][unit]") {
  replay("torch-2.15.0.txt");
}

}  // namespace
}  // namespace ddp::rendezvous
