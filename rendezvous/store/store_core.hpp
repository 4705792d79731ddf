// SPDX-License-Identifier: BSD-3-Clause
// The key-value store behind the c10d protocol: a request in, replies out. A value: no socket, clock or thread inside.
//
// It does what PyTorch's libuv server does, to the byte, except where that one is at fault:
//   * a COMPARE_SET that leaves the key missing wakes nobody (theirs wakes waiters, whose GET then returns nothing)
//   * WAIT on a queue that has elements and a key that is missing ends when the key comes (theirs never does)
//   * a new request of an Old client drops its pending WAIT without a word: those clients time out silently and would
//     take a late answer for the answer to their next request (PyTorch 1.9 – 2.0 hang on it)
//   * no single answer is longer than kMaxReplyBytes; a client that asks for one is disconnected
// Kept on purpose, because clients may rely on it: keys outlive their writer; ADD stores decimal text and parses what
// it finds like stoll; a key that was set and deleted still counts for clients that waited then; a BARRIER's counter is
// never reset and never goes down; queues are apart from keys, but WAIT and CHECK see both.
//
// Cost: a request costs its own size plus the waiters it wakes; a disconnect costs what that connection waited for.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "rendezvous/store/c10d_protocol.hpp"
#include "rendezvous/store/key_map.hpp"

namespace ddp::rendezvous {

using ConnectionId = std::uint64_t;

// The effects of a request. The driver sets `from` and clears the rest once it has carried it out; several requests of
// one connection may add to the same Replies.
struct Replies {
  struct Send {
    ConnectionId to;
    std::string bytes;
  };
  ConnectionId from = 0;
  std::string answer;        // to the connection that asked
  std::vector<Send> others;  // to those that waited or watch, in order
  std::string close;         // why the connection that asked must be closed; empty: it may stay

  std::string& to(ConnectionId connection) {
    return connection == from ? answer : others.emplace_back(Send{connection, {}}).bytes;
  }
};

// A MULTI_GET may name an 8 MiB value 131,072 times. NCCL at 98,304 ranks asks for 105 KB, Gloo at 16,384 for 17 MB.
inline constexpr std::size_t kMaxReplyBytes = 256 * 1024 * 1024;

struct StoreSize {
  std::size_t keys = 0;
  std::size_t bytes = 0;    // keys and values, queues included, and about what it costs to keep them
  std::size_t waiting = 0;  // connections in a WAIT or BARRIER
};

class StoreCore {
 public:
  // max_bytes limits keys and values together; a request that would exceed it costs its sender the connection. seed
  // must be random where keys come from strangers.
  explicit StoreCore(std::size_t max_bytes = std::numeric_limits<std::size_t>::max(), std::uint64_t seed = 0)
      : max_bytes_(max_bytes), values_(seed), queues_(seed), lines_(seed), watchers_(seed) {}
  StoreCore(const StoreCore&) = delete;  // the waiters point into each other
  StoreCore& operator=(const StoreCore&) = delete;

  void apply(const RequestView& request, Replies& out);
  void disconnected(ConnectionId connection);
  void reset();  // empties the store; the driver closes the connections itself
  StoreSize size() const { return {values_.size(), bytes_, waiters_.size()}; }

 private:
  // A connection waits for several keys, and several connections wait for a key. Each such pair is a PlaceInLine that
  // both sides point to, so that either side can go without a search through the rest.
  struct PlaceInLine;
  using Line = std::list<PlaceInLine*>;  // all that wait for one key, in order of arrival
  using Lines = KeyMap<Line>;
  struct Waiter {
    ConnectionId connection;
    std::list<PlaceInLine> places;  // one for each missing key, two if a request names it twice; empty: released
  };
  struct PlaceInLine {
    Waiter* waiter;
    std::list<PlaceInLine>::iterator in_waiter;
    Lines::Entry* line;
    Line::iterator in_line;
  };
  enum class Wake { All, One };

  void compare_set(Fields fields, Replies& out);
  void add(Fields fields, Replies& out);
  void check(Fields fields, Replies& out);
  void wait(Fields fields, Replies& out);
  void multi_get(Fields fields, Replies& out);
  void multi_set(Fields fields, Replies& out);
  void queue_push(std::string_view key, std::string_view value, Replies& out);
  void queue_pop(std::string_view key, Replies& out);
  void list_keys(Replies& out);
  void barrier(Fields fields, Replies& out);
  void watch(std::string_view key, Replies& out);
  void push_to_watchers(std::string_view key, Answer change, std::string_view before, std::string_view after,
                        Replies& out);

  bool exists(std::string_view key) const { return values_.contains(key) || queues_.contains(key); }
  std::string_view value_or_empty(std::string_view key) const;
  std::optional<std::int64_t> counted(std::string_view key, std::int64_t delta) const;
  enum class How { Replace, Append, Count };  // Count: wakes no waiter and no watcher
  void store(std::string_view key, std::string_view value, How how, Replies& out);  // and wakes the waiters
  bool erase(std::string_view key, Replies& out);
  bool has_room(std::size_t bytes, Replies& out);
  void stand_in_line(ConnectionId connection, std::string_view key);
  void wake(std::string_view key, Wake how_many, Replies& out);
  void drop_wait(ConnectionId connection);

  std::size_t max_bytes_;
  std::size_t bytes_ = 0;
  KeyMap<std::string> values_;
  KeyMap<std::deque<std::string>> queues_;  // no empty queue
  Lines lines_;                             // no empty line
  std::unordered_map<ConnectionId, Waiter> waiters_;
  KeyMap<std::unordered_set<ConnectionId>> watchers_;
  std::unordered_map<ConnectionId, std::vector<std::string>> watched_;
};

}  // namespace ddp::rendezvous
