// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/store/store_core.hpp"

#include <cerrno>
#include <cstdlib>
#include <utility>

namespace ddp::rendezvous {
namespace {

constexpr std::size_t kEntryBytes = 100;  // about what a key or an element of a queue costs in addition to its bytes

void send(Replies& out, ConnectionId to, Answer answer) { append_answer(out.to(to), answer); }
void answer(Replies& out, Answer answer) { append_answer(out.answer, answer); }
void answer(Replies& out, std::int64_t number) { append_i64(out.answer, number); }

void answer(Replies& out, std::string_view value) {
  if (value.size() > kMaxReplyBytes) {
    out.close = "asked for a value of " + std::to_string(value.size()) + " bytes";
  } else {
    append_bytes(out.answer, value);
  }
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
  for (const std::string& key : watched->second) {
    auto* const watchers = watchers_.find(key);
    if (watchers == nullptr) continue;  // the key was named twice
    watchers->value.erase(connection);
    if (watchers->value.empty()) watchers_.erase(*watchers);
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
    store(key, desired, How::Replace, out);
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
  bool all = true;
  for (auto count = fields.number(); count > 0; --count) {
    const auto key = fields.text();
    if (exists(key)) continue;
    stand_in_line(out.from, key);
    all = false;
  }
  if (all) answer(out, Answer::StopWaiting);
}

void StoreCore::multi_get(Fields fields, Replies& out) {
  const auto count = fields.number();
  const std::size_t before = out.answer.size();
  for (auto i = count; i > 0; --i) {
    append_bytes(out.answer, value_or_empty(fields.text()));
    if (out.answer.size() - before <= kMaxReplyBytes) continue;
    out.answer.resize(before);
    out.close = "asked for more than " + std::to_string(kMaxReplyBytes) + " bytes at once";
    return;
  }
}

void StoreCore::multi_set(Fields fields, Replies& out) {
  for (auto count = fields.number(); count > 0 && out.close.empty(); --count) {
    const auto key = fields.text();
    store(key, fields.text(), How::Replace, out);
  }
}

void StoreCore::queue_push(std::string_view key, std::string_view value, Replies& out) {
  if (!has_room(key.size() + value.size() + kEntryBytes, out)) return;
  auto* queue = queues_.find(key);
  if (queue == nullptr) queue = &queues_.add(key);
  queue->value.emplace_back(value);
  bytes_ += key.size() + value.size() + kEntryBytes;
  wake(key, Wake::One, out);
}

void StoreCore::queue_pop(std::string_view key, Replies& out) {
  auto* const queue = queues_.find(key);
  answer(out, queue == nullptr ? 0 : static_cast<std::int64_t>(queue->value.size()));
  if (queue == nullptr) return;
  answer(out, std::string_view(queue->value.front()));
  bytes_ -= key.size() + queue->value.front().size() + kEntryBytes;
  queue->value.pop_front();
  if (queue->value.empty()) queues_.erase(*queue);
}

void StoreCore::list_keys(Replies& out) {
  std::size_t size = 8;
  values_.for_each([&size](const auto& entry) { size += 8 + entry.key().size(); });
  if (size > kMaxReplyBytes) return void(out.close = "asked for the names of all keys, which are too many");
  answer(out, static_cast<std::int64_t>(values_.size()));
  values_.for_each([&out](const auto& entry) { answer(out, entry.key()); });
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
  if (!is_last && out.close.empty()) stand_in_line(out.from, key);
}

void StoreCore::watch(std::string_view key, Replies& out) {
  auto* watchers = watchers_.find(key);
  if (watchers == nullptr) watchers = &watchers_.add(key);
  if (watchers->value.insert(out.from).second) watched_[out.from].emplace_back(key);
  answer(out, Answer::CallbackRegistered);
}

void StoreCore::push_to_watchers(std::string_view key, Answer change, std::string_view before, std::string_view after,
                                 Replies& out) {
  auto* const watchers = watchers_.find(key);
  if (watchers == nullptr) return;
  for (const ConnectionId watcher : watchers->value) {
    std::string& bytes = out.to(watcher);
    append_answer(bytes, change);
    append_bytes(bytes, key);
    append_bytes(bytes, before);
    append_bytes(bytes, after);
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
  const std::size_t replaced = created || how == How::Append ? 0 : entry->value.size();
  const std::size_t added = value.size() + (created ? key.size() + kEntryBytes : 0);
  if (added > replaced && !has_room(added - replaced, out)) return;
  bytes_ = bytes_ + added - replaced;

  // Change the value.
  if (created) entry = &values_.add(key);
  std::string& current = entry->value;
  const bool watched = how == How::Replace && !watchers_.empty() && watchers_.contains(key);
  const std::string before = watched ? current : std::string();
  if (how == How::Append) {
    current.append(value);  // in place, so that n pieces cost n
  } else if (current.capacity() / 2 > value.size() + kEntryBytes) {
    current = std::string(value);  // gives back what a larger value took
  } else {
    current.assign(value);
  }
  // Answer the clients that wait for the key or watch it.
  if (how != How::Count) wake(key, Wake::All, out);
  if (watched) push_to_watchers(key, created ? Answer::KeyCreated : Answer::KeyUpdated, before, current, out);
}

bool StoreCore::erase(std::string_view key, Replies& out) {
  auto* const found = values_.find(key);
  if (found == nullptr) return false;
  bytes_ -= key.size() + found->value.size() + kEntryBytes;
  push_to_watchers(key, Answer::KeyDeleted, found->value, {}, out);
  values_.erase(*found);
  return true;
}

bool StoreCore::has_room(std::size_t bytes, Replies& out) {
  if (bytes <= max_bytes_ - bytes_) return true;
  out.close = "the store is full: " + std::to_string(max_bytes_) + " bytes of keys and values";
  return false;
}

void StoreCore::stand_in_line(ConnectionId connection, std::string_view key) {
  Waiter& waiter = waiters_.try_emplace(connection, Waiter{connection, {}}).first->second;
  auto* line = lines_.find(key);
  if (line == nullptr) line = &lines_.add(key);
  PlaceInLine& place = waiter.places.emplace_back(PlaceInLine{&waiter, {}, line, {}});
  place.in_waiter = std::prev(waiter.places.end());
  place.in_line = line->value.insert(line->value.end(), &place);
}

// The key exists now: takes it from every waiter in its line (Wake::One: until one of them is released) and answers
// those that have nothing left to wait for.
void StoreCore::wake(std::string_view key, Wake how_many, Replies& out) {
  auto* const line = lines_.find(key);
  if (line == nullptr) return;
  bool released = false;
  while (!line->value.empty() && !(released && how_many == Wake::One)) {
    Waiter& waiter = *line->value.front()->waiter;
    waiter.places.erase(line->value.front()->in_waiter);
    line->value.pop_front();
    released = waiter.places.empty();
    if (!released) continue;
    const ConnectionId connection = waiter.connection;
    waiters_.erase(connection);
    send(out, connection, Answer::StopWaiting);
  }
  if (line->value.empty()) lines_.erase(*line);
}

void StoreCore::drop_wait(ConnectionId connection) {
  const auto waiter = waiters_.find(connection);
  if (waiter == waiters_.end()) return;
  for (const PlaceInLine& place : waiter->second.places) {
    place.line->value.erase(place.in_line);
    if (place.line->value.empty()) lines_.erase(*place.line);
  }
  waiters_.erase(waiter);
}

}  // namespace ddp::rendezvous
