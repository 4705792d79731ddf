// SPDX-License-Identifier: BSD-3-Clause
// Opens the module argv[1] as libddp does (argv[2]: deep) or without deep binding (shallow). Two threads are the ranks
// of a group that adds 1 and 2. The exit code is 0 if the sum is 3.
#include <dlfcn.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "ddp/backend.h"
#include "ddp/ddp.h"

namespace {

constexpr std::int64_t kTimeoutMs = 30'000;

// The store through which the two ranks find each other.
class Store {
 public:
  ddp_backend_store c() { return {this, &set, &get}; }

 private:
  static int set(void* context, const char* key, const void* value, std::size_t size, ddp_backend_error*) {
    auto* self = static_cast<Store*>(context);
    const std::lock_guard lock(self->mutex_);
    self->values_[key].assign(static_cast<const char*>(value), size);
    self->changed_.notify_all();
    return 0;
  }
  static int get(void* context, const char* key, std::int64_t, void* sink,
                 void (*deliver)(void*, const void*, std::size_t), ddp_backend_error*) {
    auto* self = static_cast<Store*>(context);
    std::unique_lock lock(self->mutex_);
    self->changed_.wait(lock, [&] { return self->values_.count(key) != 0; });
    deliver(sink, self->values_[key].data(), self->values_[key].size());
    return 0;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

float sum_of_two(const ddp_backend_table& table, Store& store, std::int32_t rank) {
  const std::int32_t ranks[] = {0, 1};
  const ddp_backend_group_config config = {rank, 2, ranks, "127.0.0.1", kTimeoutMs, store.c()};
  ddp_backend_error error = {};
  ddp_backend_group* group = nullptr;
  float value = 1 + static_cast<float>(rank);
  if (table.group_create(&config, &group, &error) != DDP_BACKEND_OK ||
      table.all_reduce(group, &value, 1, DDP_FLOAT32, DDP_SUM, 1, kTimeoutMs, &error) != DDP_BACKEND_OK) {
    std::fprintf(stderr, "%s\n", error.text);
    return 0;
  }
  table.group_destroy(group);
  return value;
}

}  // namespace

int main(int, char** argv) {
  const bool deep = std::strcmp(argv[2], "deep") == 0;
  void* module = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL | (deep ? RTLD_DEEPBIND : 0));
  if (module == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  const auto open = reinterpret_cast<ddp_backend_open_function>(dlsym(module, DDP_BACKEND_OPEN_SYMBOL));
  const ddp_backend_table& table = *open(DDP_BACKEND_ABI_VERSION);

  Store store;
  float sums[2] = {};
  std::thread other([&] { sums[1] = sum_of_two(table, store, 1); });
  sums[0] = sum_of_two(table, store, 0);
  other.join();
  return sums[0] == 3 && sums[1] == 3 ? 0 : 1;
}
