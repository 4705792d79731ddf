// SPDX-License-Identifier: BSD-3-Clause
// The key-value store through which the ranks of a job find each other, with torch.distributed's names and meanings:
// TcpStore (PyTorch's protocol), FileStore (PyTorch's file format), HashStore (this process's memory), PrefixStore (any
// of them with prefixed keys).
//
// Any thread may call. Every call ends: calls that wait take a timeout, the others have timeout(). A timeout that
// passes throws Error{Timeout} and leaves the store usable. Values are arbitrary bytes.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/error.hpp"

namespace ddp::rendezvous {

// First-in, first-out queues, which some stores have besides their keys. Queues have names of their own: a key and a
// queue may be called the same.
class Queues {
 public:
  virtual void queue_push(std::string_view queue, std::string_view value) = 0;
  // Returns the oldest element; waits until there is one.
  virtual std::string queue_pop(std::string_view queue, std::chrono::milliseconds timeout) = 0;
  virtual std::optional<std::string> queue_try_pop(std::string_view queue) = 0;
  virtual std::int64_t queue_len(std::string_view queue) = 0;

 protected:
  ~Queues() = default;
};

class Store {
 public:
  using Milliseconds = std::chrono::milliseconds;
  using Clock = std::chrono::steady_clock;
  using Deadline = Clock::time_point;

  explicit Store(Milliseconds timeout) : timeout_(timeout) {}
  virtual ~Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // Returns what messages call this store: "store node0:29500", "file store /tmp/s".
  virtual std::string name() const = 0;
  // Opens the same store once more, with a connection and a timeout of its own. Throws what the constructor throws, and
  // Error{InvalidArgument} for a store that is only in this process.
  virtual std::unique_ptr<Store> clone(Milliseconds timeout) const = 0;
  // Returns null if this kind of store has no queues (a file). queues_of() throws then.
  virtual Queues* queues() { return nullptr; }

  virtual Milliseconds timeout() const { return timeout_; }
  virtual void set_timeout(Milliseconds timeout) { timeout_ = timeout; }

  virtual void set(std::string_view key, std::string_view value) = 0;
  std::string get(std::string_view key) { return get(key, timeout()); }
  virtual std::string get(std::string_view key, Milliseconds timeout) = 0;  // waits until the key exists
  // Adds to a decimal number and returns the sum. A missing key counts as 0; the sum wraps around.
  virtual std::int64_t add(std::string_view key, std::int64_t delta) = 0;
  // Returns whether all keys exist now. A queue that is not empty counts as a key of its name.
  virtual bool check(const std::vector<std::string>& keys) = 0;
  virtual void wait(const std::vector<std::string>& keys, Milliseconds timeout) = 0;  // until check() returns true
  // Sets `desired` if the value is `expected`; a missing key counts as one with an empty value. Returns the value after
  // that, but `expected` itself if the key is missing and `expected` is not empty: odd, but every PyTorch answers so.
  virtual std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired) = 0;
  virtual void append(std::string_view key, std::string_view value) = 0;  // creates a missing key
  virtual bool delete_key(std::string_view key) = 0;                      // returns whether it existed; queues stay
  virtual std::int64_t num_keys() = 0;                                    // all keys, with any prefix
  virtual std::vector<std::string> list_keys() = 0;                       // in no particular order
  virtual std::vector<std::string> multi_get(const std::vector<std::string>& keys, Milliseconds timeout) = 0;
  virtual void multi_set(const std::vector<std::string>& keys, const std::vector<std::string>& values) = 0;

  // Makes the call that waits now, and every later one, fail at once with Error{System}; any thread may call it. Only a
  // TcpStore does this, whose server may be gone for good; calls of the others go on to their deadlines.
  virtual void interrupt() {}

  // Returns once world_size calls with this key were made, by any clients. Use a key once: a barrier that has opened
  // stays open, and a call that ran out of time still counts.
  virtual void barrier(std::string_view key, std::int64_t world_size, Milliseconds timeout);

 private:
  std::atomic<Milliseconds> timeout_;
};

// Returns the store's queues. Throws Error{InvalidArgument} if it has none.
Queues& queues_of(Store& store);

// ---- What the stores have in common ----

// Returns `key "k"`, or `keys "a", "b" and 7 more`.
std::string describe_keys(const std::vector<std::string>& keys);
// Returns "STORE: key "k" not set within 30 s (is the worker that sets it running?)"
Error not_set(const std::string& store, const std::vector<std::string>& keys, Store::Milliseconds timeout);
// Returns "STORE: queue "q" still empty after 30 s (is the worker that pushes to it running?)"
Error still_empty(const std::string& store, std::string_view queue, Store::Milliseconds timeout);
// Throws Error{InvalidArgument} unless there is a value for every key.
void require_pairs(const std::string& store, const std::vector<std::string>& keys,
                   const std::vector<std::string>& values);

// Returns the number in a counter's text plus delta; null and empty text are 0. Parses like stoll: blanks before the
// number and anything behind it are ignored. Throws Error{InvalidArgument} if there is no number.
std::int64_t sum(const std::string& store, std::string_view key, const std::string* text, std::int64_t delta);

struct Comparison {
  bool equal = false;  // if so, set `desired`
  std::string answer;
};
// Decides a compare_set(); `current` is null if the key is missing.
Comparison compare(const std::string* current, std::string_view expected, std::string_view desired);

}  // namespace ddp::rendezvous
