// SPDX-License-Identifier: BSD-3-Clause
// Replays conversations recorded between PyTorch clients and PyTorch servers against our codec and core, with the bytes
// as they came and cut at random: one release for each generation of the protocol, A, C and Modern.
// scripts/test_torch_versions runs the other releases themselves. captures/from_jsonl.py describes the files.
// DDPRUN_TEST_SEED replays a random run.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <sstream>

#include "rendezvous/store/store_core.hpp"
#include "tests/rendezvous/store/hex.hpp"

namespace ddp::rendezvous {
namespace {

constexpr ConnectionId kSecondClient = 1000;  // its requests are written by hand, its answers were not recorded

// Every difference between a recorded answer and ours has one of these names.
const std::map<std::string, std::string> kDifferences = {
    {"compare_set_wakes", "up to 2.3, and in the server without libuv, COMPARE_SET wakes nobody; ours wakes who waits"},
    {"failed_compare_set", "libuv's server wakes waiters of a key that COMPARE_SET left missing; ours does not"},
    {"abandoned_wait", "1.13 and 2.0 clients time out silently; their server's late byte shifts all later answers"},
    {"split_validate", "libuv's server closes a connection whose VALIDATE comes in two pieces"},
    {"no_validate",
     "without VALIDATE libuv's server stays silent at first; ours speaks the old generations, or closes"},
    {"wait_for_queue_and_key", "libuv's server never ends a WAIT for a queue with elements and a missing key"},
    {"server_without_libuv", "no queues, no GET of a missing key, no second try; ours is like the server with libuv"},
    {"order_of_keys", "LIST_KEYS comes in the order of a hash table"},
};

struct Line {
  char kind;  // as in the files
  ConnectionId connection;
  std::string bytes;
};
struct Call {
  std::string words;
  std::vector<Line> lines;
  std::map<ConnectionId, std::string> difference;  // its name
  std::map<ConnectionId, std::string> instead;     // our answers in place of the recorded ones
};
struct Recording {
  std::string file;
  std::vector<Call> calls;
};

Recording read(const std::filesystem::path& path) {
  Recording recording{path.filename().string(), {}};
  std::ifstream lines(path);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line.substr(1));
    ConnectionId connection = 0;
    std::string rest;
    if (line[0] == '=') recording.calls.push_back({line, {}, {}, {}});
    if (line[0] == '=' || line[0] == '#') continue;
    words >> connection >> rest;
    Call& call = recording.calls.back();
    if (line[0] == '~') {
      call.difference[connection] = rest;
    } else if (line[0] == '+') {
      call.instead[connection] = from_hex(rest);
    } else {
      call.lines.push_back({line[0], connection, from_hex(rest)});
    }
  }
  return recording;
}

const std::vector<Recording>& recordings() {
  static const std::vector<Recording> all = [] {
    std::vector<Recording> found;
    for (const auto& entry : std::filesystem::directory_iterator(CAPTURES_DIR)) {
      if (entry.path().extension() == ".txt") found.push_back(read(entry.path()));
    }
    std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.file < b.file; });
    return found;
  }();
  return all;
}

// The server's side of all connections of one recording. Keeps what each was sent since the last take().
class Server {
 public:
  void receive(ConnectionId from, std::string_view input) {
    while (!closed(from)) {
      Decoded decoded = decoders_[from].decode(input);
      if (std::holds_alternative<Malformed>(decoded)) closed_.insert(from);
      if (!std::holds_alternative<RequestView>(decoded)) break;
      apply(from, std::get<RequestView>(decoded));
    }
  }
  void pause(ConnectionId from) {  // its client now waits for the answer
    if (!closed(from) && decoders_[from].undecided()) apply(from, decoders_[from].settle());
  }
  void leave(ConnectionId connection) { core_.disconnected(connection); }
  std::map<ConnectionId, std::string> take() { return std::exchange(sent_, {}); }
  const std::string& sent(ConnectionId to) { return sent_[to]; }
  bool closed(ConnectionId connection) const { return closed_.contains(connection); }
  const std::set<ConnectionId>& closed() const { return closed_; }

 private:
  void apply(ConnectionId from, const RequestView& request) {
    Replies replies;
    replies.from = from;
    core_.apply(request, replies);
    if (!replies.answer.empty()) sent_[from] += replies.answer;
    for (const Replies::Send& send : replies.others) sent_[send.to] += send.bytes;
    if (!replies.close.empty()) closed_.insert(from);
  }

  StoreCore core_;
  std::map<ConnectionId, Decoder> decoders_;
  std::map<ConnectionId, std::string> sent_;
  std::set<ConnectionId> closed_;
};

// Returns the keys of a LIST_KEYS answer in order, without the bytes before and behind it.
std::multiset<std::string> keys_of(std::string_view answer) {
  std::multiset<std::string> keys;
  for (answer.remove_prefix(std::min<std::size_t>(8, answer.size())); answer.size() >= 8;) {
    const std::size_t size = read_integer(answer.substr(0, 8));
    keys.emplace(answer.substr(8, size));
    answer.remove_prefix(std::min(8 + size, answer.size()));
  }
  return keys;
}

bool as_recorded(const Call& call, ConnectionId connection, const std::string& theirs, const std::string& ours) {
  const auto difference = call.difference.find(connection);
  if (difference == call.difference.end()) return ours == theirs;
  REQUIRE(kDifferences.contains(difference->second));
  if (difference->second == "order_of_keys") return ours.size() == theirs.size() && keys_of(ours) == keys_of(theirs);
  const auto instead = call.instead.find(connection);
  return ours == (instead == call.instead.end() ? "" : instead->second);
}

using Pieces = std::function<std::vector<std::string_view>(std::string_view)>;

std::string mismatch(const Call& call, ConnectionId connection, const std::string& theirs, const std::string& ours) {
  return call.words + ", connection " + std::to_string(connection) + ": recorded " + to_hex(theirs) + ", ours " +
         to_hex(ours);
}

const std::string kAsRecorded = "every answer is as recorded";

// Returns kAsRecorded, or describes the first answer that differs.
std::string replay(const Recording& recording, const Pieces& pieces) {
  Server server;
  std::set<ConnectionId> closed;
  for (const Call& call : recording.calls) {
    std::map<ConnectionId, std::string> theirs;
    for (const Line& line : call.lines) {
      const ConnectionId connection = line.connection;
      if (line.kind == '<') {
        theirs[connection] += line.bytes;
      } else if (line.kind == '>') {
        // The client had read all of this before it went on.
        if (!call.difference.contains(connection) && !server.sent(connection).starts_with(theirs[connection])) {
          return mismatch(call, connection, theirs[connection], server.sent(connection));
        }
        for (const std::string_view piece : pieces(line.bytes)) server.receive(connection, piece);
        server.pause(connection);
      } else if (line.kind == '-') {
        server.leave(connection);
      } else if (line.kind == 'x') {
        closed.insert(connection);
      }
    }
    if (server.closed() != closed) return call.words + ": a connection is closed, or not, unlike recorded";
    auto ours = server.take();
    ours.erase(kSecondClient);
    for (const auto& [connection, bytes] : ours) theirs.try_emplace(connection);
    for (const auto& [connection, bytes] : theirs) {
      if (!as_recorded(call, connection, bytes, ours[connection])) {
        return mismatch(call, connection, bytes, ours[connection]);
      }
    }
  }
  return kAsRecorded;
}

TEST_CASE("store: answers every recorded client, PyTorch 1.13 to 2.15, as its own server did", "[rendezvous][unit]") {
  std::set<std::string> met;
  for (const Recording& recording : recordings()) {
    INFO(recording.file);
    CHECK(replay(recording, [](std::string_view bytes) { return std::vector{bytes}; }) == kAsRecorded);
    for (const Call& call : recording.calls) {
      for (const auto& [connection, name] : call.difference) met.insert(name);
    }
  }
  CHECK(recordings().size() == 17);
  CHECK(met.size() == kDifferences.size());
}

TEST_CASE("store: answers every recorded client the same wherever its bytes are cut", "[rendezvous][unit]") {
  const char* given = std::getenv("DDPRUN_TEST_SEED");
  const std::uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
  INFO("DDPRUN_TEST_SEED=" << seed);
  std::mt19937_64 random(seed);
  for (const double cuts_a_byte : {1.0, 0.5, 0.1, 0.02}) {
    std::bernoulli_distribution cut(cuts_a_byte);
    const Pieces pieces = [&](std::string_view bytes) {
      std::vector<std::string_view> all;
      for (std::size_t size = 1; !bytes.empty(); ++size) {
        if (size < bytes.size() && !cut(random)) continue;
        all.push_back(bytes.substr(0, size));
        bytes.remove_prefix(size);
        size = 0;
      }
      return all;
    };
    for (const Recording& recording : recordings()) {
      INFO(recording.file << ", " << cuts_a_byte << " cuts a byte");
      for (int round = 0; round < (cuts_a_byte == 1.0 ? 1 : 10); ++round)
        CHECK(replay(recording, pieces) == kAsRecorded);
    }
  }
}

}  // namespace
}  // namespace ddp::rendezvous
