// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/store/hash_store.hpp"

#include <algorithm>
#include <utility>

namespace ddp::rendezvous {

std::unique_ptr<Store> HashStore::clone(Milliseconds /*timeout*/) const {
  invalid_argument("hash store: it is only in this process, where no other process finds it");
}

void HashStore::set(std::string_view key, std::string_view value) {
  const Lock lock(mutex_);
  values_[std::string(key)] = value;
  changed_.notify_all();
}

std::string HashStore::get(std::string_view key, Milliseconds timeout) {
  return std::move(multi_get({std::string(key)}, timeout).front());
}

std::int64_t HashStore::add(std::string_view key, std::int64_t delta) {
  const Lock lock(mutex_);
  const std::int64_t result = sum(name(), key, find(key), delta);
  values_[std::string(key)] = std::to_string(result);
  changed_.notify_all();
  return result;
}

bool HashStore::check(const std::vector<std::string>& keys) {
  const Lock lock(mutex_);
  return exist(keys);
}

void HashStore::wait(const std::vector<std::string>& keys, Milliseconds timeout) {
  Lock lock(mutex_);
  if (!changed_.wait_for(lock, timeout, [&] { return exist(keys); })) throw not_set(name(), keys, timeout);
}

std::string HashStore::compare_set(std::string_view key, std::string_view expected, std::string_view desired) {
  const Lock lock(mutex_);
  Comparison comparison = compare(find(key), expected, desired);
  if (comparison.equal) values_[std::string(key)] = desired;
  changed_.notify_all();
  return std::move(comparison.answer);
}

void HashStore::append(std::string_view key, std::string_view value) {
  const Lock lock(mutex_);
  values_[std::string(key)] += value;
  changed_.notify_all();
}

bool HashStore::delete_key(std::string_view key) {
  const Lock lock(mutex_);
  return values_.erase(std::string(key)) > 0;
}

std::int64_t HashStore::num_keys() {
  const Lock lock(mutex_);
  return static_cast<std::int64_t>(values_.size());
}

std::vector<std::string> HashStore::list_keys() {
  const Lock lock(mutex_);
  std::vector<std::string> keys;
  keys.reserve(values_.size());
  for (const auto& [key, value] : values_) keys.push_back(key);
  return keys;
}

// A queue that has the key's name does not count here: it has no value to return.
std::vector<std::string> HashStore::multi_get(const std::vector<std::string>& keys, Milliseconds timeout) {
  Lock lock(mutex_);
  const auto all_there = [&] {
    return std::all_of(keys.begin(), keys.end(), [&](const std::string& key) { return values_.contains(key); });
  };
  if (!changed_.wait_for(lock, timeout, all_there)) throw not_set(name(), keys, timeout);
  std::vector<std::string> values;
  values.reserve(keys.size());
  for (const std::string& key : keys) values.push_back(values_[key]);
  return values;
}

void HashStore::multi_set(const std::vector<std::string>& keys, const std::vector<std::string>& values) {
  require_pairs(name(), keys, values);
  const Lock lock(mutex_);
  for (std::size_t i = 0; i < keys.size(); ++i) values_[keys[i]] = values[i];
  changed_.notify_all();
}

void HashStore::queue_push(std::string_view queue, std::string_view value) {
  const Lock lock(mutex_);
  queues_[std::string(queue)].emplace_back(value);
  changed_.notify_all();
}

std::string HashStore::queue_pop(std::string_view queue, Milliseconds timeout) {
  Lock lock(mutex_);
  const std::string wanted(queue);
  if (!changed_.wait_for(lock, timeout, [&] { return queues_.contains(wanted); })) {
    throw still_empty(name(), queue, timeout);
  }
  return pop(wanted);
}

std::optional<std::string> HashStore::queue_try_pop(std::string_view queue) {
  const Lock lock(mutex_);
  const std::string wanted(queue);
  if (!queues_.contains(wanted)) return std::nullopt;
  return pop(wanted);
}

std::int64_t HashStore::queue_len(std::string_view queue) {
  const Lock lock(mutex_);
  const auto found = queues_.find(std::string(queue));
  return found == queues_.end() ? 0 : static_cast<std::int64_t>(found->second.size());
}

const std::string* HashStore::find(std::string_view key) const {
  const auto found = values_.find(std::string(key));
  return found == values_.end() ? nullptr : &found->second;
}

bool HashStore::exist(const std::vector<std::string>& keys) const {
  return std::all_of(keys.begin(), keys.end(),
                     [&](const std::string& key) { return values_.contains(key) || queues_.contains(key); });
}

std::string HashStore::pop(const std::string& queue) {
  const auto found = queues_.find(queue);
  std::string value = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) queues_.erase(found);
  return value;
}

}  // namespace ddp::rendezvous
