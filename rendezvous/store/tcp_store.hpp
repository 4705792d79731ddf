// SPDX-License-Identifier: BSD-3-Clause
// A client of a c10d store (PyTorch's TCPStore protocol, modern generation): ddprun's server, torchrun's, a PyTorch
// program's (2.2 and later), or one started by rank 0 of libddp.
//
// Plain sockets, no threads, no Asio: it lives in every worker. Calls are served one after the other, so one that waits
// delays those of other threads, at most to their deadlines: give each thread that waits a store of its own.
// A deadline that passes leaves the connection usable; any other failure throws Error{System} naming host, port, key
// and cause, and the store is dead from then on.
// A server closes the connection at what it does not know: queues came with PyTorch 2.8, list_keys with 2.10, barrier
// with 2.12. The error says so.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "rendezvous/store/store.hpp"

namespace ddp::rendezvous {

class TcpStore : public Store {
 public:
  // Connects, retrying with growing pauses while the server is not there yet.
  // timeout: for connecting, and for every later call that gives none.
  TcpStore(std::string host, std::uint16_t port, Milliseconds timeout);
  ~TcpStore() override;

  // Adds this process to the workers that a PyTorch server started with a world_size waits for.
  void count_in();

  // Values up to 8 MiB, keys up to 8191 bytes, 131072 keys a call (c10d_protocol.hpp). More: Error{InvalidArgument}.
  // set, append, multi_set and queue_push have no answer: they return once sent, and what this store asks afterwards
  // sees it.
  void set(std::string_view key, std::string_view value) override;
  using Store::get;
  std::string get(std::string_view key, Milliseconds timeout) override;
  std::int64_t add(std::string_view key, std::int64_t delta) override;
  bool check(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, Milliseconds timeout) override;
  std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired) override;
  void append(std::string_view key, std::string_view value) override;
  bool delete_key(std::string_view key) override;
  std::int64_t num_keys() override;
  std::vector<std::string> list_keys() override;
  std::vector<std::string> multi_get(const std::vector<std::string>& keys, Milliseconds timeout) override;
  void multi_set(const std::vector<std::string>& keys, const std::vector<std::string>& values) override;
  void queue_push(std::string_view key, std::string_view value) override;
  std::string queue_pop(std::string_view key, Milliseconds timeout) override;
  std::optional<std::string> queue_try_pop(std::string_view key) override;
  std::int64_t queue_len(std::string_view key) override;
  // The protocol's own operation, as torch's TCPStore; that of a PrefixStore over this one goes without.
  void barrier(std::string_view key, std::int64_t world_size, Milliseconds timeout) override;
  void interrupt() override;

  // This side's numeric address on the connection to the store: one that the store's host can reach.
  std::string local_address() const;

 private:
  class Connection;
  void require_queues(std::string_view key);

  std::unique_ptr<Connection> connection_;
  std::atomic<bool> has_queues_{false};  // known to
};

}  // namespace ddp::rendezvous
