// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/store/key_map.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/rendezvous/store/allocation_meter.hpp"

namespace ddp::rendezvous {
namespace {

constexpr std::uint64_t kSeed = 20260401;

TEST_CASE("key map: finds what was added, and nothing else", "[rendezvous][unit]") {
  KeyMap<int> map(kSeed);
  CHECK(map.find("/a") == nullptr);
  map.add("/a").value = 1;
  CHECK(map.find("/a")->value == 1);
  CHECK(map.find("/a")->key() == "/a");
  CHECK_FALSE(map.contains("/b"));
  CHECK(map.size() == 1);
}

TEST_CASE("key map: every byte of a key counts, and their number", "[rendezvous][unit]") {
  KeyMap<std::size_t> map(kSeed);
  for (std::size_t size = 0; size < 70; ++size) map.add(std::string(size, '\0')).value = size;
  for (std::size_t size = 0; size < 70; ++size) {
    CHECK(map.find(std::string(size, '\0'))->value == size);
    for (std::size_t i = 0; i < size; ++i) {
      std::string other(size, '\0');
      other[i] = 1;
      CHECK_FALSE(map.contains(other));
      CHECK(hash_of(other, kSeed) != hash_of(std::string(size, '\0'), kSeed));
    }
  }
}

TEST_CASE("key map: does what std::map does, and its entries stay where they are", "[rendezvous][unit]") {
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 30; ++round) {
    KeyMap<int> map(random());
    std::map<std::string, KeyMap<int>::Entry*> expected;
    // The number of keys goes up and down through powers of two, where the table's numbering gets one more bit.
    for (int step = 0; step < 2000; ++step) {
      const std::string key = std::to_string(random() % 300);
      auto* const entry = map.find(key);
      REQUIRE(entry == (expected.contains(key) ? expected[key] : nullptr));
      if (entry == nullptr && random() % 400 > map.size()) {
        expected[key] = &map.add(key);
        expected[key]->value = std::stoi(key);
      } else if (entry != nullptr) {
        map.erase(*entry);
        expected.erase(key);
      }
      REQUIRE(map.size() == expected.size());
      if (random() % 1000 == 0) {
        map.clear();
        expected.clear();
      }
    }
    std::map<std::string, int> seen;
    map.for_each([&seen](const auto& entry) { ++seen[std::string(entry.key())]; });
    CHECK(seen.size() == expected.size());
    for (const auto& [key, entry] : expected) {
      CHECK(map.find(key) == entry);
      CHECK(entry->value == std::stoi(key));
      CHECK(seen[key] == 1);
    }
  }
}

TEST_CASE("key map: a value is destroyed with its entry, and with the map", "[rendezvous][unit]") {
  const auto value = std::make_shared<int>();
  {
    KeyMap<std::shared_ptr<int>> map(kSeed);
    for (const char* key : {"/a", "/b", "/c"}) map.add(key).value = value;
    map.erase(*map.find("/b"));
    CHECK(value.use_count() == 3);
    map.clear();
    CHECK(value.use_count() == 1);
    CHECK(map.empty());
    map.add("/a").value = value;
  }
  CHECK(value.use_count() == 1);
}

TEST_CASE("key map: what it had for many keys is given back when they go", "[rendezvous][unit]") {
  const std::size_t before = allocated_now();
  KeyMap<int> map(kSeed);
  for (int i = 0; i < 100'000; ++i) map.add(std::to_string(i));
  for (int i = 1; i < 100'000; ++i) map.erase(*map.find(std::to_string(i)));
  CHECK(map.contains("0"));
  CHECK(allocated_now() - before < 1000);
}

// Limit for the fullest of n buckets with n keys: chance puts 5 to 8 into it, and hardly ever 40.
std::size_t most_in_one_bucket(const std::vector<std::string>& keys, std::uint64_t seed) {
  std::map<std::size_t, std::size_t> buckets;
  std::size_t most = 0;
  for (const std::string& key : keys) most = std::max(most, ++buckets[hash_of(key, seed) % keys.size()]);
  return most;
}

TEST_CASE("key map: keys of one seed's bucket are spread by another's", "[rendezvous][unit]") {
  std::vector<std::string> chosen;
  for (int i = 0; chosen.size() < 128; ++i) {
    const std::string key = "/default_pg/0//cuda//" + std::to_string(i);
    if (hash_of(key, kSeed) % 128 == 0) chosen.push_back(key);
  }
  CHECK(most_in_one_bucket(chosen, kSeed) == 128);
  CHECK(most_in_one_bucket(chosen, kSeed + 1) < 40);
}

TEST_CASE("key map: keys that differ in a digit or a byte are spread over all buckets", "[rendezvous][unit]") {
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::vector<std::string> ranks, hosts, numbers;
  for (int i = 0; i < 4096; ++i) {
    ranks.push_back("/default_pg/0//cpu//0/" + std::to_string(i));
    hosts.push_back("/host" + std::to_string(i % 64) + "/worker/" + std::to_string(i / 64) + "/address");
    numbers.push_back(
        {'\0', '\0', '\0', '\0', '\0', '\0', '\0', '\0', static_cast<char>(i % 256), static_cast<char>(i / 256)});
  }
  for (const auto& keys : {ranks, hosts, numbers}) CHECK(most_in_one_bucket(keys, seed) < 40);
}

}  // namespace
}  // namespace ddp::rendezvous
