// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/slurm_lists.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

#include "rendezvous/base/text.hpp"
#include "rendezvous/base/text_stream.hpp"

namespace ddp::rendezvous {

std::string first_host(const std::string& nodes) {
  std::string host;
  for (std::size_t i = 0; i < nodes.size() && nodes[i] != ','; ++i) {
    if (nodes[i] != '[') {
      host += nodes[i];
      continue;
    }
    const auto end = std::min(nodes.find(']', i), nodes.size() - 1);
    const auto number = nodes.find_first_of("-,]", i);
    host += nodes.substr(i + 1, number - i - 1);
    i = end;
  }
  return host;
}

namespace {

constexpr std::size_t kMostNames = 1'000'000;

// Appends each name with each number of "07-09,12". Returns whether that is a list of numbers.
bool append_numbers(const std::vector<std::string>& names, const std::string& numbers,
                    std::vector<std::string>& longer) {
  TextStream list(numbers);
  for (std::string range; std::getline(list, range, ',');) {
    const auto dash = range.find('-');
    const std::string first = range.substr(0, dash), last = dash == std::string::npos ? first : range.substr(dash + 1);
    const auto from = parse_number<std::size_t>(first), to = parse_number<std::size_t>(last);
    if (!from || !to || *to < *from) return false;
    if ((*to - *from + 1) > kMostNames / names.size() || longer.size() > kMostNames) return false;
    for (const std::string& name : names) {
      for (std::size_t number = *from; number <= *to; ++number) {
        const std::string digits = std::to_string(number);
        const std::size_t zeros = first.size() > digits.size() ? first.size() - digits.size() : 0;
        longer.push_back(name + std::string(zeros, '0') + digits);
      }
    }
  }
  return !longer.empty();
}

}  // namespace

std::optional<std::vector<std::string>> expand_hosts(const std::string& list) {
  std::vector<std::string> all, names(1);
  const auto finish = [&] {
    if (names.front().empty()) return false;
    all.insert(all.end(), names.begin(), names.end());
    names.assign(1, "");
    return all.size() <= kMostNames;
  };
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i] == ',') {
      if (!finish()) return std::nullopt;
    } else if (list[i] == '[') {
      const auto end = list.find(']', i);
      std::vector<std::string> longer;
      if (end == std::string::npos || !append_numbers(names, list.substr(i + 1, end - i - 1), longer)) {
        return std::nullopt;
      }
      names = std::move(longer);
      i = end;
    } else if (list[i] == ']') {
      return std::nullopt;
    } else {
      for (std::string& name : names) name += list[i];
    }
  }
  if (!finish()) return std::nullopt;
  return all;
}

std::optional<int> count_on_node(const std::string& counts, int node) {
  TextStream list(counts);
  for (std::string entry; std::getline(list, entry, ',');) {
    const char* end = entry.data() + entry.size();
    int count = 0, nodes = 1;
    const auto [after, error] = std::from_chars(entry.data(), end, count);
    if (error != std::errc()) return std::nullopt;
    if (after != end) {
      const std::size_t times = entry.find("(x");
      if (times == std::string::npos) return std::nullopt;
      if (std::from_chars(entry.data() + times + 2, end, nodes).ec != std::errc()) return std::nullopt;
    }
    if (node < nodes) return count;
    node -= nodes;
  }
  return std::nullopt;
}

}  // namespace ddp::rendezvous
