// SPDX-License-Identifier: BSD-3-Clause
// The key-value store behind the c10d protocol: a request in, replies out. A value: no socket, clock or thread inside.
//
// It does what PyTorch's libuv server does, to the byte, except where that one is at fault:
//   * a COMPARE_SET that leaves the key missing wakes nobody (theirs wakes waiters, whose GET then returns nothing)
//   * WAIT on a queue that has elements and a key that is missing ends when the key comes (theirs never does)
//   * a new request of an Old client drops its pending WAIT without a word: those clients time out silently and would
//     take a late answer for the answer to their next request (PyTorch 1.9 – 2.0 hang on it)
//   * no single answer is longer than kMaxReplyBytes; who asks for one is disconnected
// Kept on purpose, because clients may rely on it: keys outlive their writer; ADD stores decimal text and parses what
// it finds like stoll; a key that was set and deleted still counts for who waited then; a BARRIER's counter is never
// reset and never goes down; queues are apart from keys, but WAIT and CHECK see both.
//
// Cost: a request costs its own size plus the waiters it wakes; a disconnect costs what that connection waited for.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "rendezvous/c10d_protocol.hpp"

namespace ddp::rendezvous {

using ConnectionId = std::uint64_t;

// What the driver has to do after a request, in this order. Passed in and reused.
struct Replies {
  struct Send {
    ConnectionId to;
    std::string bytes;
  };
  struct Close {
    ConnectionId connection;
    std::string reason;
  };
  std::vector<Send> send;
  std::vector<Close> close;

  std::string& to(ConnectionId connection) { return send.emplace_back(Send{connection, {}}).bytes; }
  void clear() { send.clear(), close.clear(); }
};

// A MULTI_GET may name an 8 MiB value 131,072 times. NCCL at 98,304 ranks asks for 105 KB, Gloo at 16,384 for 17 MB.
inline constexpr std::size_t kMaxReplyBytes = 256 * 1024 * 1024;

class StoreCore {
 public:
  StoreCore() = default;
  StoreCore(const StoreCore&) = delete;  // the waiters point into each other
  StoreCore& operator=(const StoreCore&) = delete;

  void apply(ConnectionId from, Request&& request, Replies& out);
  void disconnected(ConnectionId connection);
  void reset();  // empty, as new; the driver closes the connections itself

 private:
  // A connection waits for several keys, a key is waited for by several connections. Each such pair is a Place, known
  // to both sides, so that either can be taken away without a look at the rest.
  struct Place;
  using Line = std::list<Place*>;  // of one key, in order of arrival
  using Lines = std::unordered_map<std::string, Line>;
  struct Waiter {
    ConnectionId connection;
    std::list<Place> places;  // one for each key still missing; named twice: two. Empty: released
  };
  struct Place {
    Waiter* waiter;
    std::list<Place>::iterator in_waiter;
    Lines::value_type* line;
    Line::iterator in_line;
  };
  enum class Wake { All, One };

  void append(const Request& request, Replies& out);
  void compare_set(ConnectionId from, Request& request, Replies& out);
  void add(ConnectionId from, const Request& request, Replies& out);
  void wait(ConnectionId from, const Request& request, Replies& out);
  void multi_get(ConnectionId from, const Request& request, Replies& out);
  void queue_pop(ConnectionId from, const Request& request, Replies& out);
  void list_keys(ConnectionId from, Replies& out);
  void barrier(ConnectionId from, const Request& request, Replies& out);
  void watch(ConnectionId from, const std::string& key, Replies& out);
  void push_to_watchers(const std::string& key, Answer change, const std::string& before, const std::string& after,
                        Replies& out);

  bool exists(const std::string& key) const;
  const std::string& value_or_empty(const std::string& key) const;
  std::optional<std::int64_t> counted(const std::string& key, std::int64_t delta) const;
  void store(const std::string& key, std::string value, Replies& out);  // and wakes
  bool erase(const std::string& key, Replies& out);
  void stand_in_line(ConnectionId connection, const std::string& key);
  void wake(const std::string& key, Wake how_many, Replies& out);
  void drop_wait(ConnectionId connection);

  std::unordered_map<std::string, std::string> values_;
  std::unordered_map<std::string, std::deque<std::string>> queues_;  // never an empty one
  Lines lines_;                                                      // never an empty one
  std::unordered_map<ConnectionId, Waiter> waiters_;
  std::unordered_map<std::string, std::unordered_set<ConnectionId>> watchers_;
  std::unordered_map<ConnectionId, std::vector<std::string>> watched_;
};

}  // namespace ddp::rendezvous
