// SPDX-License-Identifier: BSD-3-Clause
// A view of another store with prefixed keys: "k" here is "PREFIX/k" there, as in torch's PrefixStore. The other store
// must outlive it; timeout() is the other store's.
#pragma once

#include <memory>
#include <string>

#include "rendezvous/store/store.hpp"

namespace ddp::rendezvous {

class PrefixStore : public Store, public Queues {
 public:
  PrefixStore(std::string prefix, Store& base);

  std::string name() const override { return base_.name(); }
  std::unique_ptr<Store> clone(Milliseconds timeout) const override;
  Queues* queues() override { return base_.queues() != nullptr ? this : nullptr; }
  Milliseconds timeout() const override { return base_.timeout(); }
  void set_timeout(Milliseconds timeout) override { base_.set_timeout(timeout); }

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
  std::vector<std::string> list_keys() override;  // those with this prefix, without it
  std::vector<std::string> multi_get(const std::vector<std::string>& keys, Milliseconds timeout) override;
  void multi_set(const std::vector<std::string>& keys, const std::vector<std::string>& values) override;
  void queue_push(std::string_view queue, std::string_view value) override;
  std::string queue_pop(std::string_view queue, Milliseconds timeout) override;
  std::optional<std::string> queue_try_pop(std::string_view queue) override;
  std::int64_t queue_len(std::string_view queue) override;

 private:
  std::string prefixed(std::string_view key) const { return prefix_ + std::string(key); }
  std::vector<std::string> prefixed(const std::vector<std::string>& keys) const;

  PrefixStore(const PrefixStore& other, std::unique_ptr<Store> base);

  const std::string prefix_;            // with its "/"
  const std::unique_ptr<Store> owned_;  // a clone's base
  Store& base_;
};

}  // namespace ddp::rendezvous
