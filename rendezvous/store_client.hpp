// SPDX-License-Identifier: BSD-3-Clause
// A blocking client of the c10d store (PyTorch's TCPStore protocol, modern generation): what libddp's ranks use to
// find each other. Talks to ddprun's server, to torchrun's, or to one started by rank 0.
//
// Plain sockets, no threads, no Asio: it lives in every worker. One thread at a time per client (calls are serialised
// by a mutex, so a long get() delays other threads: give each thread that waits a client of its own).
// Every call has a deadline. A deadline that passes throws Error{Timeout} and leaves the connection usable; any other
// failure throws Error{System} naming host, port, key and cause, and the client is dead from then on.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::rendezvous {

class StoreClient {
 public:
  using Milliseconds = std::chrono::milliseconds;

  // Connects (retrying while the server is not there yet), introduces itself with VALIDATE and PING.
  // timeout: for connecting, and for every later call that gives none.
  StoreClient(std::string host, std::uint16_t port, Milliseconds timeout);
  ~StoreClient();
  StoreClient(const StoreClient&) = delete;
  StoreClient& operator=(const StoreClient&) = delete;

  // Values are arbitrary bytes, up to 8 MiB; keys up to 8191 (c10d_protocol.hpp). A longer one: Error{InvalidArgument}.
  // set() has no answer: it returns once sent, and what this client asks afterwards sees it.
  void set(std::string_view key, std::string_view value);
  std::string get(std::string_view key) { return get(key, timeout_); }  // waits until the key exists
  std::string get(std::string_view key, Milliseconds timeout);
  std::int64_t add(std::string_view key, std::int64_t delta);  // a missing key counts as 0; returns the new value
  std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired);
  bool check(const std::vector<std::string>& keys);  // do all exist now?
  void wait(const std::vector<std::string>& keys, Milliseconds timeout);
  bool delete_key(std::string_view key);

  // This side's numeric address on the connection to the store: one that the store's host can reach.
  std::string local_address() const;

 private:
  class Connection;
  Milliseconds timeout_;
  std::unique_ptr<Connection> connection_;
};

}  // namespace ddp::rendezvous
