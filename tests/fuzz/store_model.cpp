// SPDX-License-Identifier: BSD-3-Clause
#include "tests/fuzz/store_model.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

namespace ddp::rendezvous::fuzz {

StoreModel::Outcome StoreModel::apply(ConnectionId from, const Request& request) {
  Outcome out;
  const auto answer = [&](auto&& append, const auto&... what) { append(out.to(from), what...); };
  const auto number = [&](std::size_t n) { answer(append_i64, static_cast<std::int64_t>(n)); };
  if (request.generation != Generation::Modern) leave(from);
  switch (request.op) {
    case Op::Set:
      put(request.key(), request.value(), out);
      break;
    case Op::MultiSet:
      for (std::size_t i = 0; i < request.keys.size() && !out.closes; ++i) put(request.keys[i], request.values[i], out);
      break;
    case Op::Append:
      if (keep([&] { values_[request.key()] += request.value(); }, out)) wake(request.key(), false, out);
      break;
    case Op::CompareSet: {
      const bool present = values_.count(request.key()) > 0;
      const std::string current = value_or_empty(request.key());
      const bool equal = current == request.values[0];
      answer(append_bytes, equal ? request.values[1] : present ? current : request.values[0]);
      if (equal) put(request.key(), request.values[1], out);
      if (!equal && present) wake(request.key(), false, out);
      break;
    }
    case Op::Get:
      answer(append_bytes, value_or_empty(request.key()));
      break;
    case Op::MultiGet:
      for (const std::string& key : request.keys) answer(append_bytes, value_or_empty(key));
      break;
    case Op::Add:
    case Op::Barrier: {
      const bool is_barrier = request.op == Op::Barrier;
      std::int64_t before = 0;
      if (!parse(request.key(), before)) {
        out.closes = true;
        break;
      }
      const auto sum = static_cast<std::int64_t>(static_cast<std::uint64_t>(before) +
                                                 (is_barrier ? 1U : static_cast<std::uint64_t>(request.number)));
      if (is_barrier) leave(from);
      if (is_barrier && sum < request.number) {
        if (keep([&] { values_[request.key()] = std::to_string(sum); }, out)) park(from, {request.key()}, out);
        break;
      }
      if (is_barrier) answer(append_answer, Answer::StopWaiting);
      if (!is_barrier) answer(append_i64, sum);
      put(request.key(), std::to_string(sum), out);
      break;
    }
    case Op::Check: {
      const bool all = std::all_of(request.keys.begin(), request.keys.end(), [&](auto& key) { return exists(key); });
      answer(append_answer, all ? Answer::Ready : Answer::NotReady);
      break;
    }
    case Op::Wait: {
      leave(from);
      std::vector<std::string> missing;
      for (const std::string& key : request.keys) {
        if (!exists(key)) missing.push_back(key);
      }
      if (missing.empty()) {
        answer(append_answer, Answer::StopWaiting);
      } else {
        park(from, missing, out);
      }
      break;
    }
    case Op::CancelWait:
      leave(from);
      answer(append_answer, Answer::WaitCanceled);
      break;
    case Op::GetNumKeys:
      number(values_.size());
      break;
    case Op::DeleteKey: {
      const std::string before = value_or_empty(request.key());
      const bool removed = values_.erase(request.key()) > 0;
      if (removed) tell_watchers(request.key(), Answer::KeyDeleted, before, "", out);
      number(removed ? 1 : 0);  // after the push, as in PyTorch 1.13's deleteHandler
      break;
    }
    case Op::Ping:
      answer(append_u32, static_cast<std::uint32_t>(request.number));
      break;
    case Op::QueuePush:
      if (keep([&] { queues_[request.key()].push_back(request.value()); }, out)) wake(request.key(), true, out);
      break;
    case Op::QueuePop: {
      const auto queue = queues_.find(request.key());
      number(queue == queues_.end() ? 0 : queue->second.size());
      if (queue == queues_.end()) break;
      answer(append_bytes, queue->second.front());
      queue->second.pop_front();
      if (queue->second.empty()) queues_.erase(queue);
      break;
    }
    case Op::QueueLen:
      number(queues_.count(request.key()) > 0 ? queues_[request.key()].size() : 0);
      break;
    case Op::ListKeys:
      number(values_.size());
      for (const auto& [key, value] : values_) answer(append_bytes, key);
      break;
    case Op::WatchKey:
      if (keep([&] { watchers_[request.key()].insert(from); }, out)) answer(append_answer, Answer::CallbackRegistered);
      break;
  }
  return out;
}

void StoreModel::disconnected(ConnectionId connection) {
  leave(connection);
  for (auto& [key, who] : watchers_) who.erase(connection);
}

std::size_t StoreModel::bytes() const {
  std::size_t sum = 0;
  for (const auto& [key, value] : values_) sum += kEntryBytes + key.size() + kValueBytes + value.size();
  for (const auto& [key, queue] : queues_) {
    sum += kEntryBytes + key.size();
    for (const std::string& element : queue) sum += kElementBytes + element.size();
  }
  std::set<std::string> awaited;
  for (const Parked& parked : parked_) {
    sum += kWaiterBytes + parked.places * kPlaceBytes;
    awaited.insert(parked.missing.begin(), parked.missing.end());
  }
  for (const std::string& key : awaited) sum += kEntryBytes + key.size();
  for (const auto& [key, who] : watchers_) {
    if (!who.empty()) sum += kEntryBytes + key.size() + who.size() * kWatchBytes;
  }
  return sum;
}

// Makes a change, or takes it back and closes the connection if more than the limit would be kept.
template <typename Change>
bool StoreModel::keep(Change change, Outcome& out) {
  if (limit_ == std::numeric_limits<std::size_t>::max()) {
    change();
    return true;
  }
  const StoreModel before = *this;
  const std::size_t kept = bytes();
  change();
  if (bytes() <= limit_ || bytes() <= kept) return true;
  *this = before;
  out.closes = true;
  return false;
}

void StoreModel::park(ConnectionId who, const std::vector<std::string>& missing, Outcome& out) {
  keep([&] { parked_.push_back({who, missing, missing.size()}); }, out);
}

void StoreModel::leave(ConnectionId who) {
  std::erase_if(parked_, [&](const Parked& parked) { return parked.who == who; });
}

void StoreModel::wake(const std::string& key, bool only_one, Outcome& out) {
  for (auto parked = parked_.begin(); parked != parked_.end();) {
    std::erase(parked->missing, key);
    if (!parked->missing.empty()) {
      ++parked;
      continue;
    }
    append_answer(out.to(parked->who), Answer::StopWaiting);
    parked = parked_.erase(parked);
    if (only_one) return;
  }
}

void StoreModel::put(const std::string& key, const std::string& value, Outcome& out) {
  const Answer change = values_.count(key) > 0 ? Answer::KeyUpdated : Answer::KeyCreated;
  const std::string before = value_or_empty(key);
  if (!keep([&] { values_[key] = value; }, out)) return;
  wake(key, false, out);
  tell_watchers(key, change, before, value, out);
}

void StoreModel::tell_watchers(const std::string& key, Answer change, const std::string& before,
                               const std::string& after, Outcome& out) {
  if (watchers_.count(key) == 0) return;
  for (const ConnectionId who : watchers_.at(key)) {
    append_answer(out.to(who), change);
    for (const std::string& text : {key, before, after}) append_bytes(out.to(who), text);
  }
}

// Reads a value as stoll does: blanks, a sign, digits, then anything. A missing key is 0. Returns
// false if it is not a number of 64 bits.
bool StoreModel::parse(const std::string& key, std::int64_t& number) const {
  number = 0;
  if (values_.count(key) == 0) return true;
  const char* text = values_.at(key).c_str();  // as stoll, only up to the first NUL
  while (*text != 0 && std::strchr(" \t\n\v\f\r", *text) != nullptr) ++text;
  if (*text == '+') {
    ++text;
    if (*text == '-') return false;
  }
  return std::from_chars(text, text + std::strlen(text), number).ec == std::errc();
}

}  // namespace ddp::rendezvous::fuzz
