// SPDX-License-Identifier: BSD-3-Clause
// Exported functions on stores. A handle is a rendezvous::Store under a C name.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ddp/ddp.h"
#include "rendezvous/store/file_store.hpp"
#include "rendezvous/store/prefix_store.hpp"
#include "rendezvous/store/tcp_store.hpp"
#include "runtime/api/arguments.hpp"
#include "runtime/api/c_guard.hpp"
#include "runtime/api/live_sessions.hpp"

namespace {

using ddp::rendezvous::Error;
using ddp::rendezvous::ErrorCode;
using ddp::rendezvous::FileStore;
using ddp::rendezvous::PrefixStore;
using ddp::rendezvous::Store;
using ddp::rendezvous::TcpStore;
using ddp::runtime::guard;
using ddp::runtime::not_null;
using Milliseconds = std::chrono::milliseconds;

constexpr Milliseconds kTimeout = std::chrono::minutes(5);       // as in PyTorch
constexpr Milliseconds kLongest = std::chrono::hours(24 * 365);  // stands for "for ever", without overflow

Milliseconds timeout_of(std::int64_t given, Milliseconds otherwise) {
  if (given < 0) throw Error(ErrorCode::InvalidArgument, "store: a timeout is negative; 0 means the default");
  return given == 0 ? otherwise : std::min(Milliseconds(given), kLongest);
}

Store& of(ddp_store* handle) { return not_null(reinterpret_cast<Store*>(handle), "the store"); }
std::string_view of(const char* key) { return &not_null(key, "the key"); }

std::string_view of(ddp_bytes value) {
  const char* data = static_cast<const char*>(value.data);
  if (value.size > 0) not_null(data, "the value");
  return {data, value.size};
}

std::vector<std::string> of(const char* const* keys, std::size_t count) {
  if (count > 0) not_null(keys, "the list of keys");
  std::vector<std::string> result;
  result.reserve(count);
  for (std::size_t i = 0; i < count; ++i) result.emplace_back(of(keys[i]));
  return result;
}

void deliver(const ddp_sink& sink, const std::string& value) {
  not_null(sink.deliver, "the sink's function")(sink.context, {value.data(), value.size()});
}

template <typename Create>
ddp_status create(ddp_store** out, Create make) {
  return guard([&] {
    not_null(out, "the store to fill in");
    *out = nullptr;
    std::unique_ptr<Store> store = make();
    ddp::runtime::enlist(store.get());
    *out = reinterpret_cast<ddp_store*>(store.release());
  });
}

}  // namespace

ddp_status ddp_store_create_tcp(const char* host, int32_t port, int64_t timeout_ms, int32_t count_in, ddp_store** out) {
  return create(out, [&] {
    not_null(host, "the store's host");
    if (port < 1 || port > 65535) {
      throw Error(ErrorCode::InvalidArgument,
                  "store " + std::string(host) + ": " + std::to_string(port) + " is no port");
    }
    auto store = std::make_unique<TcpStore>(host, static_cast<std::uint16_t>(port), timeout_of(timeout_ms, kTimeout));
    if (count_in != 0) store->count_in();
    return store;
  });
}

ddp_status ddp_store_create_file(const char* path, int64_t world_size, int64_t timeout_ms, ddp_store** out) {
  return create(out, [&] {
    return std::make_unique<FileStore>(&not_null(path, "the store's path"), world_size,
                                       timeout_of(timeout_ms, kTimeout));
  });
}

ddp_status ddp_store_create_prefix(const char* prefix, ddp_store* base, ddp_store** out) {
  return create(out, [&] { return std::make_unique<PrefixStore>(&not_null(prefix, "the prefix"), of(base)); });
}

void ddp_store_destroy(ddp_store* store) { ddp::runtime::destroy(reinterpret_cast<Store*>(store)); }

ddp_status ddp_store_set_timeout(ddp_store* store, int64_t timeout_ms) {
  return guard([&] { of(store).set_timeout(timeout_of(timeout_ms, kTimeout)); });
}

ddp_status ddp_store_set(ddp_store* store, const char* key, ddp_bytes value) {
  return guard([&] { of(store).set(of(key), of(value)); });
}

ddp_status ddp_store_get(ddp_store* store, const char* key, int64_t timeout_ms, ddp_sink sink) {
  return guard([&] { deliver(sink, of(store).get(of(key), timeout_of(timeout_ms, of(store).timeout()))); });
}

ddp_status ddp_store_add(ddp_store* store, const char* key, int64_t delta, int64_t* sum) {
  return guard([&] { not_null(sum, "where to tell the sum") = of(store).add(of(key), delta); });
}

ddp_status ddp_store_check(ddp_store* store, const char* const* keys, size_t count, int32_t* all) {
  return guard([&] { not_null(all, "where to tell whether all exist") = of(store).check(of(keys, count)) ? 1 : 0; });
}

ddp_status ddp_store_wait(ddp_store* store, const char* const* keys, size_t count, int64_t timeout_ms) {
  return guard([&] { of(store).wait(of(keys, count), timeout_of(timeout_ms, of(store).timeout())); });
}

ddp_status ddp_store_compare_set(ddp_store* store, const char* key, ddp_bytes expected, ddp_bytes desired,
                                 ddp_sink sink) {
  return guard([&] { deliver(sink, of(store).compare_set(of(key), of(expected), of(desired))); });
}

ddp_status ddp_store_append(ddp_store* store, const char* key, ddp_bytes value) {
  return guard([&] { of(store).append(of(key), of(value)); });
}

ddp_status ddp_store_delete_key(ddp_store* store, const char* key, int32_t* deleted) {
  return guard(
      [&] { not_null(deleted, "where to tell whether it was there") = of(store).delete_key(of(key)) ? 1 : 0; });
}

ddp_status ddp_store_num_keys(ddp_store* store, int64_t* count) {
  return guard([&] { not_null(count, "where to tell the number of keys") = of(store).num_keys(); });
}

ddp_status ddp_store_list_keys(ddp_store* store, ddp_sink sink) {
  return guard([&] {
    for (const std::string& key : of(store).list_keys()) deliver(sink, key);
  });
}

ddp_status ddp_store_multi_get(ddp_store* store, const char* const* keys, size_t count, int64_t timeout_ms,
                               ddp_sink sink) {
  return guard([&] {
    const Milliseconds timeout = timeout_of(timeout_ms, of(store).timeout());
    for (const std::string& value : of(store).multi_get(of(keys, count), timeout)) deliver(sink, value);
  });
}

ddp_status ddp_store_multi_set(ddp_store* store, const char* const* keys, const ddp_bytes* values, size_t count) {
  return guard([&] {
    if (count > 0) not_null(values, "the list of values");
    std::vector<std::string> texts;
    texts.reserve(count);
    for (std::size_t i = 0; i < count; ++i) texts.emplace_back(of(values[i]));
    of(store).multi_set(of(keys, count), texts);
  });
}

ddp_status ddp_store_queue_push(ddp_store* store, const char* key, ddp_bytes value) {
  return guard([&] { queues_of(of(store)).queue_push(of(key), of(value)); });
}

ddp_status ddp_store_queue_pop(ddp_store* store, const char* key, int64_t timeout_ms, ddp_sink sink) {
  return guard(
      [&] { deliver(sink, queues_of(of(store)).queue_pop(of(key), timeout_of(timeout_ms, of(store).timeout()))); });
}

ddp_status ddp_store_queue_try_pop(ddp_store* store, const char* key, int32_t* popped, ddp_sink sink) {
  return guard([&] {
    not_null(popped, "where to tell whether there was one") = 0;
    const std::optional<std::string> value = queues_of(of(store)).queue_try_pop(of(key));
    if (!value) return;
    *popped = 1;
    deliver(sink, *value);
  });
}

ddp_status ddp_store_queue_len(ddp_store* store, const char* key, int64_t* length) {
  return guard([&] { not_null(length, "where to tell the length") = queues_of(of(store)).queue_len(of(key)); });
}

ddp_status ddp_store_barrier(ddp_store* store, const char* key, int64_t world_size, int64_t timeout_ms) {
  return guard([&] {
    if (world_size < 1) {
      throw Error(ErrorCode::InvalidArgument, "store: a barrier of " + std::to_string(world_size) + " workers");
    }
    of(store).barrier(of(key), world_size, timeout_of(timeout_ms, of(store).timeout()));
  });
}
