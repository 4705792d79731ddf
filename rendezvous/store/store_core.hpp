// SPDX-License-Identifier: BSD-3-Clause
// The key-value store behind the c10d protocol: a request in, replies out. A value: no socket, clock or thread inside.
//
// It does what PyTorch's libuv server does, to the byte, except where that one is at fault:
//   * a COMPARE_SET that leaves the key missing wakes nobody (theirs wakes waiters, whose GET then returns nothing)
//   * WAIT on a queue that has elements and a key that is missing ends when the key comes (theirs never does)
//   * a new request of an Old client drops its pending WAIT without a word: those clients time out silently and would
//     take a late answer for the answer to their next request (PyTorch 1.9 – 2.0 hang on it)
//   * no single answer is longer than kMaxReplyBytes, and none takes more than Replies::room; a client that asks for
//     one is disconnected, and so is one that appends to a value until it could not be read
//   * what a client makes the store keep is counted (see Costs), and one that would pass the limit is disconnected
// Kept on purpose, because clients may rely on it: keys outlive their writer; ADD stores decimal text and parses what
// it finds like stoll; a key that was set and deleted still counts for clients that waited then; a BARRIER's counter is
// never reset and never goes down; queues are apart from keys, but WAIT and CHECK see both.
//
// Cost: a request costs its own size plus the waiters it wakes; a disconnect costs what that connection waited for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "rendezvous/store/c10d_protocol.hpp"
#include "rendezvous/store/key_map.hpp"

namespace ddp::rendezvous {

using ConnectionId = std::uint64_t;

// The effects of a request. The driver sets `from` and `room`, and clears the rest once it has carried it out; several
// requests of one connection may add to the same Replies.
struct Replies {
  struct Send {
    ConnectionId to;
    std::string bytes;
  };
  ConnectionId from = 0;
  std::size_t room = std::numeric_limits<std::size_t>::max();  // limit of all answers' bytes together
  std::string answer;                                          // to the connection that asked
  std::vector<Send> others;                                    // to those that waited or watch, in order
  std::size_t pushed = 0;                                      // bytes in `others` for those that watch
  std::vector<ConnectionId> overrun;  // those that watch, and had no room left for the change: they must be closed
  std::string close;                  // why the connection that asked must be closed; empty: it may stay

  std::string& to(ConnectionId connection) {
    return connection == from ? answer : others.emplace_back(Send{connection, {}}).bytes;
  }
  bool has_room(std::size_t bytes) const { return answer.size() + pushed + bytes <= room; }
};

// Costs: about what the heap gives for each thing that the store keeps, rounding included, beside its own bytes. A
// value may take up to an eighth more, so that n appended pieces cost n.
inline constexpr std::size_t kEntryBytes = 88;    // an entry of a hash table: a key, a queue, a line, a watched key
inline constexpr std::size_t kValueBytes = 24;    // a key's value
inline constexpr std::size_t kElementBytes = 88;  // an element of a queue
inline constexpr std::size_t kWaiterBytes = 144;  // a connection that waits,
inline constexpr std::size_t kPlaceBytes = 32;    // and each key that was missing when it began to
inline constexpr std::size_t kWatchBytes = 160;   // a connection's watch on a key

struct StoreSize {
  std::size_t keys = 0;
  std::size_t bytes = 0;    // what all that is kept costs
  std::size_t waiting = 0;  // connections in a WAIT or BARRIER
};

class StoreCore {
 public:
  // max_bytes limits all that is kept; a request that would exceed it costs its sender the connection. seed must be
  // random where keys come from strangers.
  explicit StoreCore(std::size_t max_bytes = std::numeric_limits<std::size_t>::max(), std::uint64_t seed = 0)
      : max_bytes_(max_bytes), values_(seed), queues_(seed), lines_(seed), watchers_(seed) {}
  StoreCore(const StoreCore&) = delete;  // the waiters point into each other
  StoreCore& operator=(const StoreCore&) = delete;

  void apply(const RequestView& request, Replies& out);
  void disconnected(ConnectionId connection);
  void reset();  // empties the store; the driver closes the connections itself
  StoreSize size() const { return {values_.size(), bytes_, waiters_.size()}; }

 private:
  // A connection waits for several keys, and several connections wait for a key. Each such pair is a Place: it lies in
  // its Waiter's array, and in the Line of its key, so that either side can go without a search through the rest.
  struct Waiter;
  struct Place;
  struct Line {  // all that wait for one key, in order of arrival
    Place* first = nullptr;
    Place* last = nullptr;
  };
  using Lines = KeyMap<Line>;
  struct Place {
    Waiter* waiter = nullptr;
    Lines::Entry* line = nullptr;  // null: it has left the line
    Place* ahead = nullptr;
    Place* behind = nullptr;
  };
  struct Waiter {
    ConnectionId connection = 0;
    std::size_t missing = 0;    // places that are still in a line; 0: released
    std::vector<Place> places;  // one for each missing key, two if a request names it twice
  };
  using Watchers = KeyMap<std::unordered_set<ConnectionId>>;
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
  bool take(std::size_t bytes, Replies& out);
  void park(ConnectionId connection, std::span<const std::string_view> missing, Replies& out);
  void wake(std::string_view key, Wake how_many, Replies& out);
  void drop_wait(ConnectionId connection);
  void forget(const Waiter& waiter);
  static void leave_line(Place& place);
  void erase_if_empty(Lines::Entry& line);

  std::size_t max_bytes_;
  std::size_t bytes_ = 0;
  KeyMap<std::string> values_;
  KeyMap<std::list<std::string>> queues_;  // no empty queue
  Lines lines_;                            // no empty line
  std::unordered_map<ConnectionId, Waiter> waiters_;
  Watchers watchers_;  // nobody watches: no entry
  std::unordered_map<ConnectionId, std::vector<Watchers::Entry*>> watched_;
  std::vector<std::string_view> texts_;  // the keys or values of the request that is carried out
};

}  // namespace ddp::rendezvous
