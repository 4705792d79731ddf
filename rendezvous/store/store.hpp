// SPDX-License-Identifier: BSD-3-Clause
// The key-value store by which the ranks of a job find each other, in torch.distributed's words and with its meaning:
// TcpStore (PyTorch's protocol), FileStore (PyTorch's file format), HashStore (this process), PrefixStore (any of them,
// its keys prefixed).
//
// Any thread may call. Every call ends: those that wait take a deadline, the others have timeout(). A deadline that
// passes throws Error{Timeout} and leaves the store usable. Values are arbitrary bytes.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/error.hpp"

namespace ddp::rendezvous {

class Store {
 public:
  using Milliseconds = std::chrono::milliseconds;
  using Clock = std::chrono::steady_clock;
  using Deadline = Clock::time_point;

  explicit Store(Milliseconds timeout) : timeout_(timeout) {}
  virtual ~Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  virtual Milliseconds timeout() const { return timeout_; }
  virtual void set_timeout(Milliseconds timeout) { timeout_ = timeout; }

  virtual void set(std::string_view key, std::string_view value) = 0;
  std::string get(std::string_view key) { return get(key, timeout()); }
  virtual std::string get(std::string_view key, Milliseconds timeout) = 0;  // waits until the key exists
  // A missing key counts as 0; the value becomes the sum in decimal, which is returned. It wraps around.
  virtual std::int64_t add(std::string_view key, std::int64_t delta) = 0;
  // Do all exist now? A queue that is not empty counts as its key.
  virtual bool check(const std::vector<std::string>& keys) = 0;
  virtual void wait(const std::vector<std::string>& keys, Milliseconds timeout) = 0;  // until check() would be true
  // Sets desired if the value is expected; a missing key counts as one with an empty value. Returns what the value is
  // now, but expected itself if the key is missing and expected is not empty: odd, and what every PyTorch answers.
  virtual std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired) = 0;
  virtual void append(std::string_view key, std::string_view value) = 0;  // creates a missing key
  virtual bool delete_key(std::string_view key) = 0;                      // was it there? Queues stay.
  virtual std::int64_t num_keys() = 0;                                    // all of the store's, whatever the prefix
  virtual std::vector<std::string> list_keys() = 0;                       // in no order
  virtual std::vector<std::string> multi_get(const std::vector<std::string>& keys, Milliseconds timeout) = 0;
  virtual void multi_set(const std::vector<std::string>& keys, const std::vector<std::string>& values) = 0;

  // Queues have names of their own: a key and a queue may be called the same.
  virtual void queue_push(std::string_view key, std::string_view value) = 0;
  virtual std::string queue_pop(std::string_view key, Milliseconds timeout) = 0;  // the oldest; waits for one
  virtual std::optional<std::string> queue_try_pop(std::string_view key) = 0;
  virtual std::int64_t queue_len(std::string_view key) = 0;

  // From any thread: the call that waits now, and every later one, fails at once with Error{System}. For a TcpStore,
  // whose server may be gone for good; the others go on to their deadlines.
  virtual void interrupt() {}

  // Returns once world_size calls with this key were made, by anyone. For one use: a key whose barrier has opened stays
  // open, and one that ran out of time has counted all the same.
  virtual void barrier(std::string_view key, std::int64_t world_size, Milliseconds timeout);

 private:
  std::atomic<Milliseconds> timeout_;
};

// ---- What the stores have in common ----

// "30 s" or "1234 ms".
std::string describe(Store::Milliseconds time);
// `key "k"`, or `keys "a", "b" and 7 more`.
std::string quoted(const std::vector<std::string>& keys);
// "STORE: key "k" not set within 30 s (is the worker that sets it running?)"
Error not_set(const std::string& store, const std::vector<std::string>& keys, Store::Milliseconds timeout);
// "STORE: queue "q" still empty after 30 s (is the worker that pushes to it running?)"
Error still_empty(const std::string& store, std::string_view queue, Store::Milliseconds timeout);
// Throws Error{InvalidArgument} unless there is a value for every key.
void require_pairs(const std::string& store, const std::vector<std::string>& keys,
                   const std::vector<std::string>& values);

// The number in a counter's text plus delta; null and empty text are 0. Read like stoll: blanks before the number and
// anything behind it do not matter. Throws Error{InvalidArgument} if there is none.
std::int64_t sum(const std::string& store, std::string_view key, const std::string* text, std::int64_t delta);

struct Comparison {
  bool equal = false;  // then desired is to be set
  std::string answer;
};
Comparison compare(const std::string* current, std::string_view expected, std::string_view desired);

}  // namespace ddp::rendezvous
