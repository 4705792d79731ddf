// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Key-value stores for C++17, as torch.distributed has them, with its protocol and its file format: ranks in C++ and
/// in Python can share one. Included by ddp/ddp.hpp, which also gives each session a store (Session::store()).
///
///     ddp::TcpStore store("10.0.0.1", 29500);            // torchrun's, ddprun's, or a dist.TCPStore
///     ddp::PrefixStore mine("my_app", store);            // "k" here is "my_app/k" there
///     mine.set("address", "10.0.0.7:4000");
///     std::string peer = mine.get("peer");               // waits until somebody sets it
///     mine.barrier("all set", 4);
///
/// Every call ends: those that wait take a deadline, the others have the store's timeout. A deadline that passes throws
/// Error with Status::Timeout, which names store, key and how long, and leaves the store usable.
/// Values are arbitrary bytes; keys hold no NUL byte (Status::InvalidArgument). Any thread may call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ddp/bytes.hpp"
#include "ddp/ddp.h"
#include "ddp/error.hpp"

namespace ddp {

namespace detail {

struct StoreDeleter {
  void operator()(ddp_store* store) const { ddp_store_destroy(store); }
};

inline const char* c_key(const std::string& key) {
  if (key.find('\0') == std::string::npos) return key.c_str();
  throw Error(Status::InvalidArgument, "store: a key must not hold a NUL byte");
}

inline std::vector<const char*> c_keys(const std::vector<std::string>& keys) {
  std::vector<const char*> result;
  result.reserve(keys.size());
  for (const std::string& key : keys) result.push_back(c_key(key));
  return result;
}

}  // namespace detail

/// What all stores can do. A view, cheap to copy: the object it came from (TcpStore, Session, ...) owns the store.
/// timeout: kDefaultTimeout is the store's.
class Store {
 public:
  /// From ddp.h.
  explicit Store(ddp_store* store) : store_(store) {}

  /// For connecting anew and for every call without a timeout of its own. On a PrefixStore: of the store under it.
  void set_timeout(Milliseconds timeout) const { detail::check(ddp_store_set_timeout(store_, timeout.count())); }

  /// Makes value the key's value, whatever was there.
  void set(const std::string& key, const std::string& value) const {
    detail::check(ddp_store_set(store_, detail::c_key(key), Bytes(value).c()));
  }
  /// Waits until the key exists.
  std::string get(const std::string& key, Milliseconds timeout = kDefaultTimeout) const {
    detail::Texts value;
    detail::check(ddp_store_get(store_, detail::c_key(key), timeout.count(), value.sink()));
    return value.one();
  }
  /// Adds to the decimal number there, 0 if there is none, and returns the sum.
  std::int64_t add(const std::string& key, std::int64_t delta) const {
    std::int64_t sum = 0;
    detail::check(ddp_store_add(store_, detail::c_key(key), delta, &sum));
    return sum;
  }
  /// Do all of them exist now? A queue that is not empty counts as its key.
  bool check(const std::vector<std::string>& keys) const {
    std::int32_t all = 0;
    detail::check(ddp_store_check(store_, detail::c_keys(keys).data(), keys.size(), &all));
    return all != 0;
  }
  /// Until check(keys).
  void wait(const std::vector<std::string>& keys, Milliseconds timeout = kDefaultTimeout) const {
    detail::check(ddp_store_wait(store_, detail::c_keys(keys).data(), keys.size(), timeout.count()));
  }
  /// Sets desired if the value is expected; a missing key counts as one with an empty value. Returns the value after
  /// that, but expected if the key is missing and expected is not empty (as every PyTorch answers).
  std::string compare_set(const std::string& key, const std::string& expected, const std::string& desired) const {
    detail::Texts value;
    detail::check(
        ddp_store_compare_set(store_, detail::c_key(key), Bytes(expected).c(), Bytes(desired).c(), value.sink()));
    return value.one();
  }
  /// Puts value behind what is there; a missing key is created.
  void append(const std::string& key, const std::string& value) const {
    detail::check(ddp_store_append(store_, detail::c_key(key), Bytes(value).c()));
  }
  /// Was it there? Queues cannot be deleted.
  bool delete_key(const std::string& key) const {
    std::int32_t deleted = 0;
    detail::check(ddp_store_delete_key(store_, detail::c_key(key), &deleted));
    return deleted != 0;
  }
  /// Of the whole store, whatever the prefix, its own counters among them.
  std::int64_t num_keys() const {
    std::int64_t count = 0;
    detail::check(ddp_store_num_keys(store_, &count));
    return count;
  }
  /// In no order. On a PrefixStore: those with its prefix, without it.
  std::vector<std::string> list_keys() const {
    detail::Texts keys;
    detail::check(ddp_store_list_keys(store_, keys.sink()));
    return keys.all();
  }
  /// Waits until all exist; values in the order of the keys.
  std::vector<std::string> multi_get(const std::vector<std::string>& keys,
                                     Milliseconds timeout = kDefaultTimeout) const {
    detail::Texts values;
    detail::check(
        ddp_store_multi_get(store_, detail::c_keys(keys).data(), keys.size(), timeout.count(), values.sink()));
    return values.all();
  }
  /// As many values as keys.
  void multi_set(const std::vector<std::string>& keys, const std::vector<std::string>& values) const {
    if (keys.size() != values.size()) throw Error(Status::InvalidArgument, "store: as many values as keys, please");
    std::vector<ddp_bytes> c_values;
    c_values.reserve(values.size());
    for (const std::string& value : values) c_values.push_back(Bytes(value).c());
    detail::check(ddp_store_multi_set(store_, detail::c_keys(keys).data(), c_values.data(), keys.size()));
  }

  /// Queues, first in, first out. Their names are apart from keys. A FileStore has none, nor has a PyTorch server
  /// before 2.8 or with use_libuv=False.
  void queue_push(const std::string& key, const std::string& value) const {
    detail::check(ddp_store_queue_push(store_, detail::c_key(key), Bytes(value).c()));
  }
  /// The oldest element; waits for one.
  std::string queue_pop(const std::string& key, Milliseconds timeout = kDefaultTimeout) const {
    detail::Texts value;
    detail::check(ddp_store_queue_pop(store_, detail::c_key(key), timeout.count(), value.sink()));
    return value.one();
  }
  /// The oldest element, or none if the queue is empty.
  std::optional<std::string> queue_try_pop(const std::string& key) const {
    detail::Texts value;
    std::int32_t popped = 0;
    detail::check(ddp_store_queue_try_pop(store_, detail::c_key(key), &popped, value.sink()));
    return popped != 0 ? std::optional<std::string>(value.one()) : std::nullopt;
  }
  /// How many elements it has; 0 if there is no such queue.
  std::int64_t queue_len(const std::string& key) const {
    std::int64_t length = 0;
    detail::check(ddp_store_queue_len(store_, detail::c_key(key), &length));
    return length;
  }

  /// Returns once world_size calls with this key were made. For one use: afterwards the key stays open, and a call that
  /// ran out of time has counted all the same.
  void barrier(const std::string& key, std::int64_t world_size, Milliseconds timeout = kDefaultTimeout) const {
    detail::check(ddp_store_barrier(store_, detail::c_key(key), world_size, timeout.count()));
  }

  /// For ddp.h.
  ddp_store* c() const { return store_; }

 private:
  ddp_store* store_;
};

namespace detail {
/// A store that ends with the object. Moves, does not copy.
class OwnedStore : public Store {
 protected:
  explicit OwnedStore(ddp_store* store) : Store(store), owner_(store) {}

 private:
  std::unique_ptr<ddp_store, StoreDeleter> owner_;
};
}  // namespace detail

/// How to connect.
struct TcpStoreOptions {
  Milliseconds timeout = kDefaultTimeout;  ///< for connecting, and for later calls; 0 means 5 minutes
  bool count_in = false;                   ///< be one of the workers that a dist.TCPStore(world_size=...) waits for
};

/// A client of a c10d TCPStore: ddprun's, torchrun's, or any PyTorch program's since 2.2. Connects, retrying until its
/// deadline. Keys up to 8191 bytes, values up to 8 MiB. A lost connection is Status::System, then and ever after.
/// A call that waits delays those of other threads: give each thread that waits a TcpStore of its own.
class TcpStore : public detail::OwnedStore {
 public:
  /// Connects.
  TcpStore(const std::string& host, std::uint16_t port, const TcpStoreOptions& options = {})
      : OwnedStore(create(host, port, options)) {}

 private:
  static ddp_store* create(const std::string& host, std::uint16_t port, const TcpStoreOptions& options) {
    ddp_store* store = nullptr;
    detail::check(ddp_store_create_tcp(host.c_str(), port, options.timeout.count(), options.count_in ? 1 : 0, &store));
    return store;
  }
};

/// A store in a file that all ranks can open, in torch's FileStore's format. The folder must exist. The last of
/// world_size to end removes the file; with -1 nobody does, nor if a rank was killed: give each run a file of its own.
class FileStore : public detail::OwnedStore {
 public:
  /// Opens the file, or creates it.
  explicit FileStore(const std::string& path, std::int64_t world_size = -1, Milliseconds timeout = kDefaultTimeout)
      : OwnedStore(create(path, world_size, timeout)) {}

 private:
  static ddp_store* create(const std::string& path, std::int64_t world_size, Milliseconds timeout) {
    ddp_store* store = nullptr;
    detail::check(ddp_store_create_file(path.c_str(), world_size, timeout.count(), &store));
    return store;
  }
};

/// A store inside this process.
class HashStore : public detail::OwnedStore {
 public:
  /// An empty one.
  explicit HashStore(Milliseconds timeout = kDefaultTimeout) : OwnedStore(create(timeout)) {}

 private:
  static ddp_store* create(Milliseconds timeout) {
    ddp_store* store = nullptr;
    detail::check(ddp_store_create_hash(timeout.count(), &store));
    return store;
  }
};

/// Another store, every key with "PREFIX/" before it. That store must outlive it.
class PrefixStore : public detail::OwnedStore {
 public:
  /// Every key of `base` that begins with "PREFIX/".
  PrefixStore(const std::string& prefix, const Store& base) : OwnedStore(create(prefix, base)) {}

 private:
  static ddp_store* create(const std::string& prefix, const Store& base) {
    ddp_store* store = nullptr;
    detail::check(ddp_store_create_prefix(detail::c_key(prefix), base.c(), &store));
    return store;
  }
};

}  // namespace ddp
