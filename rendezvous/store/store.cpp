// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/store/store.hpp"

#include <cerrno>
#include <cstdlib>

#include "rendezvous/base/text.hpp"

namespace ddp::rendezvous {

// Uses the keys of torch's Store::barrier, so that both can meet in one barrier.
void Store::barrier(std::string_view key, std::int64_t world_size, Milliseconds timeout) {
  const std::string last_member = std::string(key) + "/last_member";
  if (add(std::string(key) + "/num_members", 1) == world_size) set(last_member, "1");
  wait({last_member}, timeout);
}

Queues& queues_of(Store& store) {
  if (Queues* const queues = store.queues()) return *queues;
  throw Error(ErrorCode::InvalidArgument, store.name() + ": a file has no queues, here as in PyTorch; use a TcpStore");
}

std::string describe_keys(const std::vector<std::string>& keys) {
  std::vector<std::string> quoted;
  quoted.reserve(keys.size());
  for (const std::string& key : keys) quoted.push_back("\"" + key + "\"");
  return (keys.size() == 1 ? "key " : "keys ") + list_of(quoted, 4);
}

Error not_set(const std::string& store, const std::vector<std::string>& keys, Store::Milliseconds timeout) {
  return {ErrorCode::Timeout, store + ": " + describe_keys(keys) + " not set within " + to_string(timeout) +
                                  " (is the worker that sets it running?)"};
}

Error still_empty(const std::string& store, std::string_view queue, Store::Milliseconds timeout) {
  return {ErrorCode::Timeout, store + ": queue \"" + std::string(queue) + "\" still empty after " + to_string(timeout) +
                                  " (is the worker that pushes to it running?)"};
}

void require_pairs(const std::string& store, const std::vector<std::string>& keys,
                   const std::vector<std::string>& values) {
  if (keys.size() == values.size()) return;
  throw Error(ErrorCode::InvalidArgument, store + ": " + std::to_string(keys.size()) + " keys but " +
                                              std::to_string(values.size()) + " values to set");
}

std::int64_t sum(const std::string& store, std::string_view key, const std::string* text, std::int64_t delta) {
  if (text == nullptr || text->empty()) return delta;
  char* end = nullptr;
  errno = 0;
  const long long number = std::strtoll(text->c_str(), &end, 10);
  if (end == text->c_str() || errno == ERANGE) {
    throw Error(ErrorCode::InvalidArgument, store + ": adding to " + describe_keys({std::string(key)}) +
                                                ": its value \"" + text->substr(0, 40) +
                                                "\" is not a number of 64 bits");
  }
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(number) + static_cast<std::uint64_t>(delta));
}

Comparison compare(const std::string* current, std::string_view expected, std::string_view desired) {
  const bool equal = current != nullptr ? *current == expected : expected.empty();
  if (equal) return {true, std::string(desired)};
  return {false, current != nullptr ? *current : std::string(expected)};
}

}  // namespace ddp::rendezvous
