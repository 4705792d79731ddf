// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/store/prefix_store.hpp"

#include <utility>

namespace ddp::rendezvous {

PrefixStore::PrefixStore(std::string prefix, Store& base)
    : Store(base.timeout()), prefix_(std::move(prefix) + "/"), base_(base) {}

PrefixStore::PrefixStore(const PrefixStore& other, std::unique_ptr<Store> base)
    : Store(base->timeout()), prefix_(other.prefix_), owned_(std::move(base)), base_(*owned_) {}

std::unique_ptr<Store> PrefixStore::clone(Milliseconds timeout) const {
  return std::unique_ptr<Store>(new PrefixStore(*this, base_.clone(timeout)));
}

void PrefixStore::set(std::string_view key, std::string_view value) { base_.set(prefixed(key), value); }

std::string PrefixStore::get(std::string_view key, Milliseconds timeout) { return base_.get(prefixed(key), timeout); }

std::int64_t PrefixStore::add(std::string_view key, std::int64_t delta) { return base_.add(prefixed(key), delta); }

bool PrefixStore::check(const std::vector<std::string>& keys) { return base_.check(prefixed(keys)); }

void PrefixStore::wait(const std::vector<std::string>& keys, Milliseconds timeout) {
  base_.wait(prefixed(keys), timeout);
}

std::string PrefixStore::compare_set(std::string_view key, std::string_view expected, std::string_view desired) {
  return base_.compare_set(prefixed(key), expected, desired);
}

void PrefixStore::append(std::string_view key, std::string_view value) { base_.append(prefixed(key), value); }

bool PrefixStore::delete_key(std::string_view key) { return base_.delete_key(prefixed(key)); }

std::int64_t PrefixStore::num_keys() { return base_.num_keys(); }

std::vector<std::string> PrefixStore::list_keys() {
  std::vector<std::string> mine;
  for (const std::string& key : base_.list_keys()) {
    if (key.starts_with(prefix_)) mine.push_back(key.substr(prefix_.size()));
  }
  return mine;
}

std::vector<std::string> PrefixStore::multi_get(const std::vector<std::string>& keys, Milliseconds timeout) {
  return base_.multi_get(prefixed(keys), timeout);
}

void PrefixStore::multi_set(const std::vector<std::string>& keys, const std::vector<std::string>& values) {
  base_.multi_set(prefixed(keys), values);
}

void PrefixStore::queue_push(std::string_view queue, std::string_view value) {
  queues_of(base_).queue_push(prefixed(queue), value);
}

std::string PrefixStore::queue_pop(std::string_view queue, Milliseconds timeout) {
  return queues_of(base_).queue_pop(prefixed(queue), timeout);
}

std::optional<std::string> PrefixStore::queue_try_pop(std::string_view queue) {
  return queues_of(base_).queue_try_pop(prefixed(queue));
}

std::int64_t PrefixStore::queue_len(std::string_view queue) { return queues_of(base_).queue_len(prefixed(queue)); }

std::vector<std::string> PrefixStore::prefixed(const std::vector<std::string>& keys) const {
  std::vector<std::string> result;
  result.reserve(keys.size());
  for (const std::string& key : keys) result.push_back(prefixed(key));
  return result;
}

}  // namespace ddp::rendezvous
