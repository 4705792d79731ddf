// SPDX-License-Identifier: BSD-3-Clause
// A store in this process's memory: what a session of one rank gives its program, and tests use.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <unordered_map>

#include "rendezvous/store/store.hpp"

namespace ddp::rendezvous {

class HashStore : public Store, public Queues {
 public:
  explicit HashStore(Milliseconds timeout) : Store(timeout) {}

  std::string name() const override { return "hash store"; }
  std::unique_ptr<Store> clone(Milliseconds timeout) const override;
  Queues* queues() override { return this; }

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

 private:
  using Lock = std::unique_lock<std::mutex>;
  const std::string* find(std::string_view key) const;  // null: there is none
  bool exist(const std::vector<std::string>& keys) const;
  std::string pop(const std::string& queue);  // the queue must exist

  std::mutex mutex_;
  std::condition_variable changed_;
  std::unordered_map<std::string, std::string> values_;
  std::unordered_map<std::string, std::deque<std::string>> queues_;  // no empty queue
};

}  // namespace ddp::rendezvous
