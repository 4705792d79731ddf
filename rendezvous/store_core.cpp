// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/store_core.hpp"

#include <cerrno>
#include <cstdlib>
#include <utility>

namespace ddp::rendezvous {
namespace {

void send(Replies& out, ConnectionId to, Answer answer) { append_answer(out.to(to), answer); }
void send(Replies& out, ConnectionId to, std::int64_t number) { append_i64(out.to(to), number); }

void send(Replies& out, ConnectionId to, const std::string& value) {
  if (value.size() > kMaxReplyBytes) {
    out.close.push_back({to, "asked for a value of " + std::to_string(value.size()) + " bytes"});
  } else {
    append_bytes(out.to(to), value);
  }
}

}  // namespace

void StoreCore::apply(ConnectionId from, Request&& request, Replies& out) {
  if (request.generation != Generation::Modern) drop_wait(from);  // its client gave up: see the header
  switch (request.op) {
    case Op::Set:
      return store(request.key(), std::move(request.values.front()), out);
    case Op::CompareSet:
      return compare_set(from, request, out);
    case Op::Get:
      return send(out, from, value_or_empty(request.key()));
    case Op::Add:
      return add(from, request, out);
    case Op::Check: {
      bool all = true;
      for (const std::string& key : request.keys) all = all && exists(key);
      return send(out, from, all ? Answer::Ready : Answer::NotReady);
    }
    case Op::Wait:
      return wait(from, request, out);
    case Op::GetNumKeys:
      return send(out, from, static_cast<std::int64_t>(values_.size()));
    case Op::DeleteKey:
      return send(out, from, std::int64_t{erase(request.key(), out)});
    case Op::Append:
      return append(request, out);
    case Op::MultiGet:
      return multi_get(from, request, out);
    case Op::MultiSet:
      for (std::size_t i = 0; i < request.keys.size(); ++i) store(request.keys[i], std::move(request.values[i]), out);
      return;
    case Op::CancelWait:
      drop_wait(from);
      return send(out, from, Answer::WaitCanceled);
    case Op::Ping:
      return append_u32(out.to(from), static_cast<std::uint32_t>(request.number));
    case Op::QueuePush:
      queues_[request.key()].push_back(std::move(request.values.front()));
      return wake(request.key(), Wake::One, out);
    case Op::QueuePop:
      return queue_pop(from, request, out);
    case Op::QueueLen: {
      const auto queue = queues_.find(request.key());
      return send(out, from, queue == queues_.end() ? 0 : static_cast<std::int64_t>(queue->second.size()));
    }
    case Op::ListKeys:
      return list_keys(from, out);
    case Op::Barrier:
      return barrier(from, request, out);
    case Op::WatchKey:
      return watch(from, request.key(), out);
  }
}

void StoreCore::disconnected(ConnectionId connection) {
  drop_wait(connection);
  const auto watched = watched_.find(connection);
  if (watched == watched_.end()) return;
  for (const std::string& key : watched->second) {
    const auto watchers = watchers_.find(key);
    if (watchers == watchers_.end()) continue;  // the key was named twice
    watchers->second.erase(connection);
    if (watchers->second.empty()) watchers_.erase(watchers);
  }
  watched_.erase(watched);
}

void StoreCore::reset() {
  values_.clear();
  queues_.clear();
  lines_.clear();
  waiters_.clear();
  watchers_.clear();
  watched_.clear();
}

// In place, so that n pieces cost n. Nobody is told: who watches keys (A) knows no APPEND.
void StoreCore::append(const Request& request, Replies& out) {
  values_[request.key()] += request.value();
  wake(request.key(), Wake::All, out);
}

// A missing key counts as one with an empty value, and who expected another is told that it is what he expected: odd,
// but what every PyTorch release answers.
void StoreCore::compare_set(ConnectionId from, Request& request, Replies& out) {
  std::string& expected = request.values[0];
  std::string& desired = request.values[1];
  const auto current = values_.find(request.key());
  const bool missing = current == values_.end();
  if (missing ? expected.empty() : current->second == expected) {
    send(out, from, desired);
    store(request.key(), std::move(desired), out);
  } else if (missing) {
    send(out, from, expected);
  } else {
    send(out, from, current->second);
    wake(request.key(), Wake::All, out);  // there may be a parked BARRIER
  }
}

void StoreCore::add(ConnectionId from, const Request& request, Replies& out) {
  const auto sum = counted(request.key(), request.number);
  if (!sum) return out.close.push_back({from, "ADD to " + request.key() + ", which is not a number"});
  send(out, from, *sum);
  store(request.key(), std::to_string(*sum), out);
}

void StoreCore::wait(ConnectionId from, const Request& request, Replies& out) {
  drop_wait(from);  // a second WAIT replaces the first
  for (const std::string& key : request.keys) {
    if (!exists(key)) stand_in_line(from, key);
  }
  if (!waiters_.contains(from)) send(out, from, Answer::StopWaiting);
}

void StoreCore::multi_get(ConnectionId from, const Request& request, Replies& out) {
  std::size_t size = 0;
  for (const std::string& key : request.keys) size += 8 + value_or_empty(key).size();
  if (size > kMaxReplyBytes) return out.close.push_back({from, "asked for " + std::to_string(size) + " bytes at once"});
  std::string& bytes = out.to(from);
  bytes.reserve(size);
  for (const std::string& key : request.keys) append_bytes(bytes, value_or_empty(key));
}

void StoreCore::queue_pop(ConnectionId from, const Request& request, Replies& out) {
  const auto queue = queues_.find(request.key());
  std::string& bytes = out.to(from);
  append_i64(bytes, queue == queues_.end() ? 0 : static_cast<std::int64_t>(queue->second.size()));
  if (queue == queues_.end()) return;
  append_bytes(bytes, queue->second.front());
  queue->second.pop_front();
  if (queue->second.empty()) queues_.erase(queue);
}

void StoreCore::list_keys(ConnectionId from, Replies& out) {
  std::size_t size = 8;
  for (const auto& [key, value] : values_) size += 8 + key.size();
  if (size > kMaxReplyBytes) return out.close.push_back({from, "asked for the names of all keys, which are too many"});
  std::string& bytes = out.to(from);
  bytes.reserve(size);
  append_i64(bytes, static_cast<std::int64_t>(values_.size()));
  for (const auto& [key, value] : values_) append_bytes(bytes, key);
}

// An arrival counts for ever, whoever arrived. It does not wake who waits for the key; the last one wakes everybody.
void StoreCore::barrier(ConnectionId from, const Request& request, Replies& out) {
  const auto arrived = counted(request.key(), 1);
  if (!arrived) return out.close.push_back({from, "BARRIER on " + request.key() + ", which is not a number"});
  drop_wait(from);
  if (*arrived >= request.number) {
    send(out, from, Answer::StopWaiting);
    return store(request.key(), std::to_string(*arrived), out);
  }
  values_[request.key()] = std::to_string(*arrived);
  stand_in_line(from, request.key());
}

void StoreCore::watch(ConnectionId from, const std::string& key, Replies& out) {
  if (watchers_[key].insert(from).second) watched_[from].push_back(key);
  send(out, from, Answer::CallbackRegistered);
}

void StoreCore::push_to_watchers(const std::string& key, Answer change, const std::string& before,
                                 const std::string& after, Replies& out) {
  const auto watchers = watchers_.find(key);
  if (watchers == watchers_.end()) return;
  for (const ConnectionId watcher : watchers->second) {
    std::string& bytes = out.to(watcher);
    append_answer(bytes, change);
    append_bytes(bytes, key);
    append_bytes(bytes, before);
    append_bytes(bytes, after);
  }
}

bool StoreCore::exists(const std::string& key) const { return values_.contains(key) || queues_.contains(key); }

const std::string& StoreCore::value_or_empty(const std::string& key) const {
  static const std::string kEmpty;
  const auto found = values_.find(key);
  return found == values_.end() ? kEmpty : found->second;
}

// The number at this key plus delta; like stoll: blanks before it and anything behind it are ignored, a missing key is
// 0. None if there is no number, or none of 64 bits. The sum wraps around.
std::optional<std::int64_t> StoreCore::counted(const std::string& key, std::int64_t delta) const {
  const auto found = values_.find(key);
  if (found == values_.end()) return delta;
  char* end = nullptr;
  errno = 0;
  const long long number = std::strtoll(found->second.c_str(), &end, 10);
  if (end == found->second.c_str() || errno == ERANGE) return std::nullopt;
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(number) + static_cast<std::uint64_t>(delta));
}

void StoreCore::store(const std::string& key, std::string value, Replies& out) {
  const auto [place, created] = values_.try_emplace(key);
  std::swap(place->second, value);  // now value is the one before
  wake(key, Wake::All, out);
  push_to_watchers(key, created ? Answer::KeyCreated : Answer::KeyUpdated, value, place->second, out);
}

bool StoreCore::erase(const std::string& key, Replies& out) {
  const auto removed = values_.extract(key);
  if (removed.empty()) return false;
  push_to_watchers(key, Answer::KeyDeleted, removed.mapped(), "", out);
  return true;
}

void StoreCore::stand_in_line(ConnectionId connection, const std::string& key) {
  Waiter& waiter = waiters_.try_emplace(connection, Waiter{connection, {}}).first->second;
  Lines::value_type* line = &*lines_.try_emplace(key).first;
  Place& place = waiter.places.emplace_back(Place{&waiter, {}, line, {}});
  place.in_waiter = std::prev(waiter.places.end());
  place.in_line = line->second.insert(line->second.end(), &place);
}

// The key exists: it is one less to wait for, for everyone in its line, or until one has nothing left to wait for.
void StoreCore::wake(const std::string& key, Wake how_many, Replies& out) {
  const auto line = lines_.find(key);
  if (line == lines_.end()) return;
  bool released = false;
  while (!line->second.empty() && !(released && how_many == Wake::One)) {
    Waiter& waiter = *line->second.front()->waiter;
    waiter.places.erase(line->second.front()->in_waiter);
    line->second.pop_front();
    released = waiter.places.empty();
    if (!released) continue;
    const ConnectionId connection = waiter.connection;
    waiters_.erase(connection);
    send(out, connection, Answer::StopWaiting);
  }
  if (line->second.empty()) lines_.erase(line);
}

void StoreCore::drop_wait(ConnectionId connection) {
  const auto waiter = waiters_.find(connection);
  if (waiter == waiters_.end()) return;
  for (const Place& place : waiter->second.places) {
    place.line->second.erase(place.in_line);
    if (place.line->second.empty()) lines_.erase(lines_.find(place.line->first));
  }
  waiters_.erase(waiter);
}

}  // namespace ddp::rendezvous
