// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/store/hash_store.hpp"

#include <algorithm>
#include <utility>

namespace ddp::rendezvous {
namespace {

constexpr char kName[] = "hash store";

}  // namespace

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
  const std::int64_t result = sum(kName, key, find(key), delta);
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
  if (!changed_.wait_for(lock, timeout, [&] { return exist(keys); })) throw not_set(kName, keys, timeout);
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

// A queue of a key's name does not answer for its value.
std::vector<std::string> HashStore::multi_get(const std::vector<std::string>& keys, Milliseconds timeout) {
  Lock lock(mutex_);
  const auto all_there = [&] {
    return std::all_of(keys.begin(), keys.end(), [&](const std::string& key) { return values_.contains(key); });
  };
  if (!changed_.wait_for(lock, timeout, all_there)) throw not_set(kName, keys, timeout);
  std::vector<std::string> values;
  values.reserve(keys.size());
  for (const std::string& key : keys) values.push_back(values_[key]);
  return values;
}

void HashStore::multi_set(const std::vector<std::string>& keys, const std::vector<std::string>& values) {
  require_pairs(kName, keys, values);
  const Lock lock(mutex_);
  for (std::size_t i = 0; i < keys.size(); ++i) values_[keys[i]] = values[i];
  changed_.notify_all();
}

void HashStore::queue_push(std::string_view key, std::string_view value) {
  const Lock lock(mutex_);
  queues_[std::string(key)].emplace_back(value);
  changed_.notify_all();
}

std::string HashStore::queue_pop(std::string_view key, Milliseconds timeout) {
  Lock lock(mutex_);
  const std::string name(key);
  if (!changed_.wait_for(lock, timeout, [&] { return queues_.contains(name); })) throw still_empty(kName, key, timeout);
  return pop(name);
}

std::optional<std::string> HashStore::queue_try_pop(std::string_view key) {
  const Lock lock(mutex_);
  const std::string name(key);
  if (!queues_.contains(name)) return std::nullopt;
  return pop(name);
}

std::int64_t HashStore::queue_len(std::string_view key) {
  const Lock lock(mutex_);
  const auto queue = queues_.find(std::string(key));
  return queue == queues_.end() ? 0 : static_cast<std::int64_t>(queue->second.size());
}

const std::string* HashStore::find(std::string_view key) const {
  const auto found = values_.find(std::string(key));
  return found == values_.end() ? nullptr : &found->second;
}

bool HashStore::exist(const std::vector<std::string>& keys) const {
  return std::all_of(keys.begin(), keys.end(),
                     [&](const std::string& key) { return values_.contains(key) || queues_.contains(key); });
}

std::string HashStore::pop(const std::string& key) {
  const auto queue = queues_.find(key);
  std::string value = std::move(queue->second.front());
  queue->second.pop_front();
  if (queue->second.empty()) queues_.erase(queue);
  return value;
}

}  // namespace ddp::rendezvous
