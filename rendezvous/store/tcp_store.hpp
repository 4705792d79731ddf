// SPDX-License-Identifier: BSD-3-Clause
// A client of a c10d store (PyTorch's TCPStore protocol, modern generation). The server may be ddprun's, torchrun's, a
// PyTorch program's (2.2 and later), or the one that rank 0 of libddp starts.
//
// It uses plain sockets, no threads and no Asio, since it lives in every worker. Calls are served one after the other,
// so a call that waits delays the calls of other threads, at most to their deadlines: give each thread that waits a
// store of its own. A deadline that passes leaves the connection usable. Any other failure throws Error{System} with
// host, port, key and cause, and every later call fails. A server closes the connection at a request that it does not
// know: queues came with PyTorch 2.8, list_keys with 2.10, barrier with 2.12. The error says so.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "rendezvous/store/store.hpp"

namespace ddp::rendezvous {

class TcpStore : public Store, public Queues {
 public:
  // Connects, and retries with growing pauses while the server is not up yet. `timeout` holds for connecting and for
  // every later call that gives none.
  TcpStore(std::string host, std::uint16_t port, Milliseconds timeout);
  ~TcpStore() override;

  std::string name() const override;
  std::unique_ptr<Store> clone(Milliseconds timeout) const override;
  Queues* queues() override { return this; }

  // Adds this process to the workers that a PyTorch server started with a world_size waits for.
  void count_in();

  // Limits: values of 8 MiB, keys of 8191 bytes, 131072 keys in a call (c10d_protocol.hpp); beyond them calls throw
  // Error{InvalidArgument}. set, append, multi_set and queue_push have no answer: they return once the request is sent,
  // and later calls on this store see their effect.
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
  void queue_push(std::string_view queue, std::string_view value) override;
  std::string queue_pop(std::string_view queue, Milliseconds timeout) override;
  std::optional<std::string> queue_try_pop(std::string_view queue) override;
  std::int64_t queue_len(std::string_view queue) override;
  // Uses the protocol's own operation, as torch's TCPStore does; a PrefixStore over this store does not.
  void barrier(std::string_view key, std::int64_t world_size, Milliseconds timeout) override;
  void interrupt() override;

  // Return where the server is, as the constructor was given it.
  const std::string& host() const;
  std::uint16_t port() const;
  // Returns this side's numeric address on the connection to the store, which the store's host can reach.
  std::string local_address() const;

 private:
  class Connection;
  void require_queues(std::string_view queue);

  std::unique_ptr<Connection> connection_;
  std::atomic<bool> has_queues_{false};  // the server is known to have them
};

}  // namespace ddp::rendezvous
