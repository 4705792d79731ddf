// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Stores: keys and values that ranks share. They are the stores of torch.distributed, with its
/// protocol and file format, so ranks in C++ and in Python can share one. Each session also has one
/// (Session::store()).
///
///     ddp::TcpStore store("10.0.0.1", 29500);            // of torchrun, ddprun, or a dist.TCPStore
///     ddp::PrefixStore mine("my_app", store);            // "k" here is "my_app/k" there
///     mine.set("address", "10.0.0.7:4000");
///     std::string peer = mine.get("peer");               // waits until a process sets it
///     mine.barrier("all set", 4);
///
/// Every call ends: calls that wait take a timeout, the others have the store's. A deadline that
/// passes throws Error with Status::Timeout, which names the store, the key and the time waited,
/// and the store remains usable. Values are arbitrary bytes; keys hold no NUL byte
/// (Status::InvalidArgument). Any thread may call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ddp/buffer.hpp"
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

/// A view of any store, cheap to copy: the object it came from (TcpStore, Session, ...) owns the
/// store. As a timeout, kDefaultTimeout means the store's.
class Store {
 public:
  /// Makes a view of a store of ddp.h.
  explicit Store(ddp_store* store) : store_(store) {}

  /// Sets the store's timeout, for connecting again and for every call without a timeout of its own.
  /// On a PrefixStore it sets the timeout of the store under it.
  void set_timeout(Milliseconds timeout) const { detail::check(ddp_store_set_timeout(store_, timeout.count())); }

  /// Sets a key to a value, whatever it had before.
  void set(const std::string& key, const std::string& value) const {
    detail::check(ddp_store_set(store_, detail::c_key(key), Bytes(value).c()));
  }
  /// Returns a key's value; waits until the key exists.
  std::string get(const std::string& key, Milliseconds timeout = kDefaultTimeout) const {
    detail::Texts value;
    detail::check(ddp_store_get(store_, detail::c_key(key), timeout.count(), value.sink()));
    return value.one();
  }
  /// Adds delta to the decimal number that is a key's value, and returns the sum. A missing key
  /// counts as 0.
  std::int64_t add(const std::string& key, std::int64_t delta) const {
    std::int64_t sum = 0;
    detail::check(ddp_store_add(store_, detail::c_key(key), delta, &sum));
    return sum;
  }
  /// Returns whether all keys exist now. A queue that is not empty counts as its key.
  bool check(const std::vector<std::string>& keys) const {
    std::int32_t all = 0;
    detail::check(ddp_store_check(store_, detail::c_keys(keys).data(), keys.size(), &all));
    return all != 0;
  }
  /// Waits until all keys exist, as check() counts.
  void wait(const std::vector<std::string>& keys, Milliseconds timeout = kDefaultTimeout) const {
    detail::check(ddp_store_wait(store_, detail::c_keys(keys).data(), keys.size(), timeout.count()));
  }
  /// Sets a key to `desired` if its value is `expected`; a missing key counts as one with an empty
  /// value. Returns the value after that; if the key is missing and expected is not empty, it
  /// returns expected, as PyTorch does.
  std::string compare_set(const std::string& key, const std::string& expected, const std::string& desired) const {
    detail::Texts value;
    detail::check(
        ddp_store_compare_set(store_, detail::c_key(key), Bytes(expected).c(), Bytes(desired).c(), value.sink()));
    return value.one();
  }
  /// Appends a value to a key's value; a missing key is created.
  void append(const std::string& key, const std::string& value) const {
    detail::check(ddp_store_append(store_, detail::c_key(key), Bytes(value).c()));
  }
  /// Removes a key, and returns whether it existed. Queues cannot be deleted.
  bool delete_key(const std::string& key) const {
    std::int32_t deleted = 0;
    detail::check(ddp_store_delete_key(store_, detail::c_key(key), &deleted));
    return deleted != 0;
  }
  /// Returns the number of keys of the whole store, whatever the prefix, including the store's own
  /// counters.
  std::int64_t num_keys() const {
    std::int64_t count = 0;
    detail::check(ddp_store_num_keys(store_, &count));
    return count;
  }
  /// Returns every key, in no particular order; on a PrefixStore those that have the prefix, without
  /// it.
  std::vector<std::string> list_keys() const {
    detail::Texts keys;
    detail::check(ddp_store_list_keys(store_, keys.sink()));
    return keys.all();
  }
  /// Returns the values of several keys, in the order of the keys; waits until all exist.
  std::vector<std::string> multi_get(const std::vector<std::string>& keys,
                                     Milliseconds timeout = kDefaultTimeout) const {
    detail::Texts values;
    detail::check(
        ddp_store_multi_get(store_, detail::c_keys(keys).data(), keys.size(), timeout.count(), values.sink()));
    return values.all();
  }
  /// Sets several keys at once; there are as many values as keys.
  void multi_set(const std::vector<std::string>& keys, const std::vector<std::string>& values) const {
    if (keys.size() != values.size()) throw Error(Status::InvalidArgument, "store: as many values as keys, please");
    std::vector<ddp_bytes> c_values;
    c_values.reserve(values.size());
    for (const std::string& value : values) c_values.push_back(Bytes(value).c());
    detail::check(ddp_store_multi_set(store_, detail::c_keys(keys).data(), c_values.data(), keys.size()));
  }

  /// Appends an element to a queue. Queues are first in, first out; their names are separate from
  /// keys. A FileStore has no queues, nor has a PyTorch server before 2.8 or with use_libuv=False.
  void queue_push(const std::string& key, const std::string& value) const {
    detail::check(ddp_store_queue_push(store_, detail::c_key(key), Bytes(value).c()));
  }
  /// Removes and returns the oldest element of a queue; waits until there is one.
  std::string queue_pop(const std::string& key, Milliseconds timeout = kDefaultTimeout) const {
    detail::Texts value;
    detail::check(ddp_store_queue_pop(store_, detail::c_key(key), timeout.count(), value.sink()));
    return value.one();
  }
  /// Removes and returns the oldest element of a queue, or nothing if the queue is empty.
  std::optional<std::string> queue_try_pop(const std::string& key) const {
    detail::Texts value;
    std::int32_t popped = 0;
    detail::check(ddp_store_queue_try_pop(store_, detail::c_key(key), &popped, value.sink()));
    return popped != 0 ? std::optional<std::string>(value.one()) : std::nullopt;
  }
  /// Returns the number of elements of a queue; 0 if there is no queue of that name.
  std::int64_t queue_len(const std::string& key) const {
    std::int64_t length = 0;
    detail::check(ddp_store_queue_len(store_, detail::c_key(key), &length));
    return length;
  }

  /// Waits until world_size calls with this key were made. A key is for one use: afterwards it stays
  /// open, and a call that timed out still counts.
  void barrier(const std::string& key, std::int64_t world_size, Milliseconds timeout = kDefaultTimeout) const {
    detail::check(ddp_store_barrier(store_, detail::c_key(key), world_size, timeout.count()));
  }

  /// Returns the store of ddp.h.
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

/// Options for TcpStore.
struct TcpStoreOptions {
  Milliseconds timeout = kDefaultTimeout;  ///< for connecting and for later calls; 5 minutes by default
  bool count_in = false;  ///< count as one of the workers that a dist.TCPStore(world_size=...) waits for
};

/// A client of a c10d TCPStore, hosted by ddprun, torchrun, or any PyTorch program since 2.2.
/// Keys have up to 8191 bytes, values up to 8 MiB. A lost connection is Status::System, for that
/// call and all later ones. A call that waits delays those of other threads: give each thread that
/// waits a TcpStore of its own.
class TcpStore : public detail::OwnedStore {
 public:
  /// Connects, and retries until the timeout has passed.
  TcpStore(const std::string& host, std::uint16_t port, const TcpStoreOptions& options = {})
      : OwnedStore(create(host, port, options)) {}

 private:
  static ddp_store* create(const std::string& host, std::uint16_t port, const TcpStoreOptions& options) {
    ddp_store* store = nullptr;
    detail::check(ddp_store_create_tcp(host.c_str(), port, options.timeout.count(), options.count_in ? 1 : 0, &store));
    return store;
  }
};

/// A store in a file that all ranks can open, in the format of torch's FileStore. The folder must
/// exist. The last of world_size objects to end removes the file; with -1 nothing removes it, nor
/// if a rank was killed: use a new file for each run.
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

/// A view of another store that puts "PREFIX/" before every key. That store must outlive it.
class PrefixStore : public detail::OwnedStore {
 public:
  /// Makes a view of the keys of `base` that begin with "PREFIX/".
  PrefixStore(const std::string& prefix, const Store& base) : OwnedStore(create(prefix, base)) {}

 private:
  static ddp_store* create(const std::string& prefix, const Store& base) {
    ddp_store* store = nullptr;
    detail::check(ddp_store_create_prefix(detail::c_key(prefix), base.c(), &store));
    return store;
  }
};

}  // namespace ddp
