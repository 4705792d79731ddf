// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddp_bench/store/key_map_cost.hpp"

#include <malloc.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>

#include "rendezvous/store/key_map.hpp"

namespace ddp::bench {
namespace {

constexpr std::uint64_t kSeed = 12345;
constexpr std::size_t kValueBytes = 20;

// The two maps under the same names.
class OwnMap {
 public:
  static constexpr const char* kName = "KeyMap";
  void add(const std::string& key, const std::string& value) { map_.add(key).value = value; }
  const std::string& at(const std::string& key) const { return map_.find(key)->value; }

 private:
  rendezvous::KeyMap<std::string> map_{kSeed};
};

class StandardMap {
 public:
  static constexpr const char* kName = "std::unordered_map";
  void add(const std::string& key, const std::string& value) { map_.emplace(key, value); }
  const std::string& at(const std::string& key) const { return map_.find(key)->second; }

 private:
  struct SeededHash {
    std::size_t operator()(std::string_view key) const { return rendezvous::hash_of(key, kSeed); }
  };
  std::unordered_map<std::string, std::string, SeededHash> map_;
};

// Keys as Gloo's pairs of ranks leave them.
std::vector<std::string> make_keys(int count) {
  std::vector<std::string> keys;
  keys.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    keys.push_back("/default_pg/0//cpu//0/" + std::to_string(1000000 + i) + "/rank_" + std::to_string(1000000 + 7 * i));
  }
  return keys;
}

double cpu_ms() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

double allocated_bytes() {
  const auto heap = mallinfo2();
  return static_cast<double>(heap.uordblks + heap.hblkhd);
}

template <typename Map>
KeyMapCost measure(const std::vector<std::string>& keys) {
  const std::string value(kValueBytes, 'v');
  const double allocated_before = allocated_bytes();
  KeyMapCost cost{.map = Map::kName};
  Map map;
  double before = cpu_ms();
  const double start = before;
  for (const std::string& key : keys) {
    before = cpu_ms();
    map.add(key, value);
    cost.worst_insert_ms = std::max(cost.worst_insert_ms, cpu_ms() - before);
  }
  cost.inserts_ms = cpu_ms() - start;
  cost.bytes_per_key = (allocated_bytes() - allocated_before) / static_cast<double>(keys.size());

  before = cpu_ms();
  std::size_t found = 0;
  for (const std::string& key : keys) found += map.at(key).size();
  cost.finds_ms = cpu_ms() - before;
  if (found != keys.size() * kValueBytes) throw std::logic_error(std::string(Map::kName) + " lost a value");
  return cost;
}

double median(const std::vector<KeyMapCost>& runs, double KeyMapCost::*figure) {
  std::vector<double> values;
  for (const KeyMapCost& run : runs) values.push_back(run.*figure);
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

KeyMapCost medians(const std::vector<KeyMapCost>& runs) {
  return {runs.front().map, median(runs, &KeyMapCost::worst_insert_ms), median(runs, &KeyMapCost::inserts_ms),
          median(runs, &KeyMapCost::finds_ms), median(runs, &KeyMapCost::bytes_per_key)};
}

}  // namespace

std::vector<KeyMapCost> key_map_costs(int keys, int runs) {
  const std::vector<std::string> names = make_keys(keys);
  std::vector<KeyMapCost> own, standard;
  for (int run = 0; run < runs; ++run) {
    own.push_back(measure<OwnMap>(names));
    standard.push_back(measure<StandardMap>(names));
  }
  return {medians(own), medians(standard)};
}

}  // namespace ddp::bench
