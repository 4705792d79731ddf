// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/store/store_core.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace ddp::rendezvous {
namespace {

constexpr char kNoRoom[] = "no room for more unread answers";
constexpr std::size_t kSpare = 16;  // bytes that a value may leave unused, besides an eighth of its own

void send(Replies& out, ConnectionId to, Answer answer) { append_answer(out.to(to), answer); }
void answer(Replies& out, Answer answer) { append_answer(out.answer, answer); }
void answer(Replies& out, std::int64_t number) { append_i64(out.answer, number); }

constexpr std::size_t kLengthBytes = 8;  // in front of each value of an answer

void answer(Replies& out, std::string_view value) {
  if (!out.has_room(kLengthBytes + value.size())) {
    out.close = kNoRoom;
  } else {
    append_bytes(out.answer, value);
  }
}

// std::string doubles when it grows, and keeps what it has when it shrinks: as much again as is counted.
void assign(std::string& current, std::string_view value) {
  const std::size_t most = value.size() + value.size() / 8 + kSpare;
  if (current.capacity() < value.size() || current.capacity() > most) std::string().swap(current);
  current.assign(value);
}

void append(std::string& current, std::string_view value) {
  const std::size_t size = current.size() + value.size();
  if (size > current.capacity()) {
    std::string larger;
    larger.reserve(size + size / 8);
    current.swap(larger.append(current));
  }
  current.append(value);
}

}  // namespace

void StoreCore::apply(const RequestView& request, Replies& out) {
  if (request.generation != Generation::Modern) drop_wait(out.from);  // its client gave up: see the header
  Fields fields(request.fields);
  switch (request.op) {
    case Op::Set: {
      const auto key = fields.text();
      return store(key, fields.text(), How::Replace, out);
    }
    case Op::CompareSet:
      return compare_set(fields, out);
    case Op::Get:
      return answer(out, value_or_empty(fields.text()));
    case Op::Add:
      return add(fields, out);
    case Op::Check:
      return check(fields, out);
    case Op::Wait:
      return wait(fields, out);
    case Op::GetNumKeys:
      return answer(out, static_cast<std::int64_t>(values_.size()));
    case Op::DeleteKey:
      return answer(out, std::int64_t{erase(fields.text(), out)});
    case Op::Append: {
      const auto key = fields.text();
      return store(key, fields.text(), How::Append, out);
    }
    case Op::MultiGet:
      return multi_get(fields, out);
    case Op::MultiSet:
      return multi_set(fields, out);
    case Op::CancelWait:
      drop_wait(out.from);
      return answer(out, Answer::WaitCanceled);
    case Op::Ping:
      return append_u32(out.answer, static_cast<std::uint32_t>(fields.nonce()));
    case Op::QueuePush: {
      const auto key = fields.text();
      return queue_push(key, fields.text(), out);
    }
    case Op::QueuePop:
      return queue_pop(fields.text(), out);
    case Op::QueueLen: {
      auto* const queue = queues_.find(fields.text());
      return answer(out, queue == nullptr ? 0 : static_cast<std::int64_t>(queue->value.size()));
    }
    case Op::ListKeys:
      return list_keys(out);
    case Op::Barrier:
      return barrier(fields, out);
    case Op::WatchKey:
      return watch(fields.text(), out);
  }
}

void StoreCore::disconnected(ConnectionId connection) {
  drop_wait(connection);
  const auto watched = watched_.find(connection);
  if (watched == watched_.end()) return;
  for (Watchers::Entry* const watchers : watched->second) {
    watchers->value.erase(connection);
    bytes_ -= kWatchBytes;
    if (!watchers->value.empty()) continue;
    bytes_ -= kEntryBytes + watchers->key().size();
    watchers_.erase(*watchers);
  }
  watched_.erase(watched);
}

void StoreCore::reset() {
  bytes_ = 0;
  values_.clear();
  queues_.clear();
  lines_.clear();
  waiters_.clear();
  watchers_.clear();
  watched_.clear();
}

// A missing key counts as one with an empty value. A client that expected another value is answered with the value it
// expected: odd, but every PyTorch release does so.
void StoreCore::compare_set(Fields fields, Replies& out) {
  const auto key = fields.text();
  const auto expected = fields.text();
  const auto desired = fields.text();
  auto* const current = values_.find(key);
  const bool missing = current == nullptr;
  if (missing ? expected.empty() : current->value == expected) {
    answer(out, desired);
    if (out.close.empty()) store(key, desired, How::Replace, out);
  } else if (missing) {
    answer(out, expected);
  } else {
    answer(out, std::string_view(current->value));
    wake(key, Wake::All, out);  // there may be a parked BARRIER
  }
}

void StoreCore::add(Fields fields, Replies& out) {
  const auto key = fields.text();
  const auto sum = counted(key, fields.number());
  if (!sum) return void(out.close = "ADD to a key that is not a number: " + std::string(key));
  answer(out, *sum);
  store(key, std::to_string(*sum), How::Replace, out);
}

void StoreCore::check(Fields fields, Replies& out) {
  bool all = true;
  for (auto count = fields.number(); count > 0 && all; --count) all = exists(fields.text());
  answer(out, all ? Answer::Ready : Answer::NotReady);
}

void StoreCore::wait(Fields fields, Replies& out) {
  drop_wait(out.from);  // a second WAIT replaces the first
  texts_.clear();
  for (auto count = fields.number(); count > 0; --count) {
    const auto key = fields.text();
    if (!exists(key)) texts_.push_back(key);
  }
  if (texts_.empty()) return answer(out, Answer::StopWaiting);
  park(out.from, texts_, out);
}

void StoreCore::multi_get(Fields fields, Replies& out) {
  texts_.clear();
  std::size_t size = 0;
  for (auto count = fields.number(); count > 0; --count) {
    texts_.push_back(value_or_empty(fields.text()));
    size += kLengthBytes + texts_.back().size();
  }
  if (size > kMaxReplyBytes) {
    return void(out.close = "asked for more than " + std::to_string(kMaxReplyBytes) + " bytes at once");
  }
  if (!out.has_room(size)) return void(out.close = kNoRoom);
  // The answer grows once, not twice for each value.
  std::size_t at = out.answer.size();
  out.answer.resize(at + size);
  for (const std::string_view value : texts_) {
    const std::uint64_t length = value.size();
    std::memcpy(&out.answer[at], &length, kLengthBytes);
    value.copy(&out.answer[at + kLengthBytes], value.size());
    at += kLengthBytes + value.size();
  }
}

void StoreCore::multi_set(Fields fields, Replies& out) {
  for (auto count = fields.number(); count > 0 && out.close.empty(); --count) {
    const auto key = fields.text();
    store(key, fields.text(), How::Replace, out);
  }
}

void StoreCore::queue_push(std::string_view key, std::string_view value, Replies& out) {
  auto* queue = queues_.find(key);
  if (!take((queue == nullptr ? kEntryBytes + key.size() : 0) + kElementBytes + value.size(), out)) return;
  if (queue == nullptr) queue = &queues_.add(key);
  queue->value.emplace_back(value);
  wake(key, Wake::One, out);
}

void StoreCore::queue_pop(std::string_view key, Replies& out) {
  auto* const queue = queues_.find(key);
  if (queue == nullptr) return answer(out, std::int64_t{0});
  const std::string& first = queue->value.front();
  if (!out.has_room(2 * kLengthBytes + first.size())) return void(out.close = kNoRoom);  // and the element stays
  answer(out, static_cast<std::int64_t>(queue->value.size()));
  answer(out, std::string_view(first));
  bytes_ -= kElementBytes + first.size();
  queue->value.pop_front();
  if (!queue->value.empty()) return;
  bytes_ -= kEntryBytes + key.size();
  queues_.erase(*queue);
}

void StoreCore::list_keys(Replies& out) {
  std::size_t size = kLengthBytes;
  values_.for_each([&size](const auto& entry) { size += kLengthBytes + entry.key().size(); });
  if (size > kMaxReplyBytes) return void(out.close = "asked for the names of all keys, which are too many");
  if (!out.has_room(size)) return void(out.close = kNoRoom);
  out.answer.reserve(out.answer.size() + size);
  answer(out, static_cast<std::int64_t>(values_.size()));
  values_.for_each([&out](const auto& entry) { append_bytes(out.answer, entry.key()); });
}

// An arrival counts for ever, even if its connection ends. It does not wake clients that wait for the key; the last
// arrival wakes all of them.
void StoreCore::barrier(Fields fields, Replies& out) {
  const auto key = fields.text();
  const auto arrived = counted(key, 1);
  if (!arrived) return void(out.close = "BARRIER on a key that is not a number: " + std::string(key));
  drop_wait(out.from);
  const bool is_last = *arrived >= fields.number();
  if (is_last) answer(out, Answer::StopWaiting);
  store(key, std::to_string(*arrived), is_last ? How::Replace : How::Count, out);
  if (!is_last && out.close.empty()) park(out.from, {&key, 1}, out);
}

void StoreCore::watch(std::string_view key, Replies& out) {
  auto* watchers = watchers_.find(key);
  if (watchers == nullptr || !watchers->value.contains(out.from)) {
    if (!take((watchers == nullptr ? kEntryBytes + key.size() : 0) + kWatchBytes, out)) return;
    if (watchers == nullptr) watchers = &watchers_.add(key);
    watchers->value.insert(out.from);
    watched_[out.from].push_back(watchers);
  }
  answer(out, Answer::CallbackRegistered);
}

void StoreCore::push_to_watchers(std::string_view key, Answer change, std::string_view before, std::string_view after,
                                 Replies& out) {
  auto* const watchers = watchers_.find(key);
  if (watchers == nullptr) return;
  const std::size_t size = 1 + 3 * kLengthBytes + key.size() + before.size() + after.size();
  for (const ConnectionId watcher : watchers->value) {
    if (!out.has_room(size)) {
      out.overrun.push_back(watcher);
      continue;
    }
    std::string& bytes = out.to(watcher);
    bytes.reserve(bytes.size() + size);
    append_answer(bytes, change);
    append_bytes(bytes, key);
    append_bytes(bytes, before);
    append_bytes(bytes, after);
    if (watcher != out.from) out.pushed += size;
  }
}

std::string_view StoreCore::value_or_empty(std::string_view key) const {
  auto* const found = values_.find(key);
  return found == nullptr ? std::string_view() : found->value;
}

// Returns the number at this key plus delta. Parses like stoll: blanks before the number and anything behind it are
// ignored; a missing key is 0. Nothing if there is no number, or none of 64 bits. The sum wraps around.
std::optional<std::int64_t> StoreCore::counted(std::string_view key, std::int64_t delta) const {
  auto* const found = values_.find(key);
  if (found == nullptr) return delta;
  char* end = nullptr;
  errno = 0;
  const long long number = std::strtoll(found->value.c_str(), &end, 10);
  if (end == found->value.c_str() || errno == ERANGE) return std::nullopt;
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(number) + static_cast<std::uint64_t>(delta));
}

void StoreCore::store(std::string_view key, std::string_view value, How how, Replies& out) {
  // Account for the bytes, or refuse.
  auto* entry = values_.find(key);
  const bool created = entry == nullptr;
  if (how == How::Append && !created && entry->value.size() + value.size() > kMaxReplyBytes) {
    return void(out.close = "appended to a value more than can be read: " + std::to_string(kMaxReplyBytes) + " bytes");
  }
  const std::size_t replaced = created || how == How::Append ? 0 : entry->value.size();
  const std::size_t added = value.size() + (created ? kEntryBytes + key.size() + kValueBytes : 0);
  if (added > replaced) {
    if (!take(added - replaced, out)) return;
  } else {
    bytes_ -= replaced - added;
  }

  // Change the value.
  if (created) entry = &values_.add(key);
  std::string& current = entry->value;
  std::string before;
  const bool watched = how == How::Replace && !watchers_.empty() && watchers_.contains(key);
  if (watched) before.swap(current);
  if (how == How::Append) {
    append(current, value);
  } else {
    assign(current, value);
  }
  // Answer the clients that wait for the key or watch it.
  if (how != How::Count) wake(key, Wake::All, out);
  if (watched) push_to_watchers(key, created ? Answer::KeyCreated : Answer::KeyUpdated, before, current, out);
}

bool StoreCore::erase(std::string_view key, Replies& out) {
  auto* const found = values_.find(key);
  if (found == nullptr) return false;
  bytes_ -= kEntryBytes + key.size() + kValueBytes + found->value.size();
  push_to_watchers(key, Answer::KeyDeleted, found->value, {}, out);
  values_.erase(*found);
  return true;
}

// Counts these bytes as kept, or refuses the request.
bool StoreCore::take(std::size_t bytes, Replies& out) {
  if (bytes > max_bytes_ - bytes_) {
    out.close =
        "the store is full: " + std::to_string(max_bytes_) + " bytes of keys, values, queues, waits and watches";
    return false;
  }
  bytes_ += bytes;
  return true;
}

void StoreCore::park(ConnectionId connection, std::span<const std::string_view> missing, Replies& out) {
  if (!take(kWaiterBytes + missing.size() * kPlaceBytes, out)) return;
  Waiter& waiter = waiters_[connection];
  waiter.connection = connection;
  waiter.places.resize(missing.size());
  for (const std::string_view key : missing) {
    auto* line = lines_.find(key);
    if (line == nullptr) {
      if (!take(kEntryBytes + key.size(), out)) return drop_wait(connection);
      line = &lines_.add(key);
    }
    Place& place = waiter.places[waiter.missing++];
    place = {&waiter, line, line->value.last, nullptr};
    (place.ahead == nullptr ? line->value.first : place.ahead->behind) = &place;
    line->value.last = &place;
  }
}

// The key exists now: takes it from every waiter in its line (Wake::One: until one of them is released) and answers
// those that have nothing left to wait for.
void StoreCore::wake(std::string_view key, Wake how_many, Replies& out) {
  auto* const line = lines_.find(key);
  if (line == nullptr) return;
  bool released = false;
  while (line->value.first != nullptr && !(released && how_many == Wake::One)) {
    Waiter& waiter = *line->value.first->waiter;
    leave_line(*line->value.first);
    released = --waiter.missing == 0;
    if (!released) continue;
    const ConnectionId connection = waiter.connection;
    forget(waiter);
    send(out, connection, Answer::StopWaiting);
  }
  erase_if_empty(*line);
}

void StoreCore::drop_wait(ConnectionId connection) {
  const auto waiter = waiters_.find(connection);
  if (waiter == waiters_.end()) return;
  for (Place& place : waiter->second.places) {
    Lines::Entry* const line = place.line;
    if (line == nullptr) continue;
    leave_line(place);
    erase_if_empty(*line);
  }
  forget(waiter->second);
}

void StoreCore::forget(const Waiter& waiter) {
  bytes_ -= kWaiterBytes + waiter.places.size() * kPlaceBytes;
  const ConnectionId connection = waiter.connection;
  waiters_.erase(connection);
}

void StoreCore::leave_line(Place& place) {
  Line& line = place.line->value;
  (place.ahead == nullptr ? line.first : place.ahead->behind) = place.behind;
  (place.behind == nullptr ? line.last : place.behind->ahead) = place.ahead;
  place.line = nullptr;
}

void StoreCore::erase_if_empty(Lines::Entry& line) {
  if (line.value.first != nullptr) return;
  bytes_ -= kEntryBytes + line.key().size();
  lines_.erase(line);
}

}  // namespace ddp::rendezvous
