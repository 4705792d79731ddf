// SPDX-License-Identifier: BSD-3-Clause
// A rank that counts what collectives cost once they have been called for a while. Each line shows the rank, a
// collective, how it was called, the allocations of all calls on any thread of this process, and how often another
// thread was woken:
//
//   allocation_worker null    libddp over a backend that does nothing, 1000 calls: "0 all_reduce blocking 0 0"
//   allocation_worker ddp     steps of DistributedDataParallel over the same, 1000: "0 ddp copied 0 1203"
//   allocation_worker batch_norm    a rank by itself, 1000 steps of SyncBatchNorm: "0 batch_norm channels_first 0 0"
//   allocation_worker gloo    libddp over Gloo, and Gloo called directly, in turn, 100 calls: "0 reduce gloo 1601 305"
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/ddp_bench/contenders/gloo_contender.hpp"
#include "apps/ddp_bench/contenders/libddp_contender.hpp"
#include "ddp/training/sync_batch_norm.hpp"

namespace {

std::atomic<bool> counting{false};
std::atomic<long> allocations{0};

void count_one() {
  if (counting.load(std::memory_order_relaxed)) allocations.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

// These replace the C library's functions for every shared object of this process. operator new calls them.
extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* memory, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);

__attribute__((visibility("default"))) void* malloc(std::size_t size) {
  count_one();
  return __libc_malloc(size);
}
__attribute__((visibility("default"))) void* calloc(std::size_t count, std::size_t size) {
  count_one();
  return __libc_calloc(count, size);
}
__attribute__((visibility("default"))) void* realloc(void* memory, std::size_t size) {
  count_one();
  return __libc_realloc(memory, size);
}
__attribute__((visibility("default"))) void* aligned_alloc(std::size_t alignment, std::size_t size) {
  count_one();
  return __libc_memalign(alignment, size);
}
__attribute__((visibility("default"))) int posix_memalign(void** memory, std::size_t alignment, std::size_t size) {
  count_one();
  *memory = __libc_memalign(alignment, size);
  return *memory != nullptr ? 0 : 12;  // ENOMEM
}
}

namespace {

using ddp::bench::Calling;
using ddp::bench::Collective;
using ddp::bench::LibddpContender;

constexpr int kCalls = 1000;
constexpr int kBurst = 8;    // issued before the last one is waited for
constexpr int kWarmUps = 5;  // times 1000 calls
constexpr int kGlooCalls = 100;
constexpr int kTurns = 5;           // Gloo's own figures vary
constexpr std::size_t kCount = 24;  // divisible by 1, 2, 3 and 4 ranks

struct Buffers {
  std::vector<float> input = std::vector<float>(kCount);
  std::vector<float> output = std::vector<float>(kCount);
};

using Calls = std::function<void()>;

long wakes_of_other_threads() {
  const std::string name = "voluntary_ctxt_switches:";
  long wakes = 0;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    if (thread.path().filename() == std::to_string(gettid())) continue;
    std::ifstream status(thread.path() / "status");
    for (std::string line; std::getline(status, line);) {
      if (line.rfind(name, 0) == 0) wakes += std::stol(line.substr(name.size()));
    }
  }
  return wakes;
}

// A thread that has not started to run yet would allocate while calls are counted, which takes only a millisecond.
bool all_others_sleep() {
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    if (thread.path().filename() == std::to_string(gettid())) continue;
    std::ifstream status(thread.path() / "status");
    for (std::string line; std::getline(status, line);) {
      if (line.rfind("State:", 0) == 0 && line.find('S', 6) == std::string::npos) return false;
    }
  }
  return true;
}

// Counts several times and reports the sum of allocations and the fewest wake-ups, since a thread may sleep for a
// moment while it starts.
void report(ddp::ProcessGroup group, const char* what, const char* how, const Calls& all_calls, int counts = 1) {
  allocations = 0;
  long wakes = std::numeric_limits<long>::max();
  for (int i = 0; i < counts; ++i) {
    while (!all_others_sleep()) sched_yield();
    group.barrier();
    const long wakes_before = wakes_of_other_threads();
    counting = true;
    all_calls();
    group.barrier();  // this rank's threads take part in what other ranks still do
    counting = false;
    wakes = std::min(wakes, wakes_of_other_threads() - wakes_before);
  }
  std::printf("%d %s %s %ld %ld\n", group.rank(), what, how, allocations.load(), wakes);
}

void for_each_collective(const std::function<void(Collective)>& body) {
  for (std::size_t i = 0; i < ddp::bench::kCollectiveNames.size(); ++i) body(static_cast<Collective>(i));
}

void count_over_null_backend() {
  const ddp::Session session = ddp::init_process_group({.backend = "null"});
  Buffers b;
  LibddpContender blocking(session.world(), Calling::Blocking);
  LibddpContender asynchronous(session.world(), Calling::Asynchronous);
  for_each_collective([&](Collective collective) {
    const auto repeat = [&](LibddpContender& contender) {
      for (int k = 0; k < kCalls; ++k) contender.run(collective, b.input.data(), b.output.data(), kCount);
    };
    const auto burst = [&] {
      for (int k = 0; k < kCalls / kBurst; ++k) {
        ddp::Work last;
        for (int i = 0; i < kBurst; ++i) {
          last = asynchronous.issue(collective, b.input.data(), b.output.data(), kCount);
        }
        last.wait();
      }
    };
    const std::vector<std::pair<const char*, Calls>> ways = {
        {"blocking", [&] { repeat(blocking); }}, {"asynchronous", [&] { repeat(asynchronous); }}, {"burst", burst}};
    for (const auto& [how, all_calls] : ways) {
      for (int k = 0; k < kWarmUps; ++k) all_calls();
      report(session.world(), name_of(collective), how, all_calls, 3);
    }
  });
}

// Eight gradients of 1 KiB in four buckets, also compressed by a hook.
void count_ddp() {
  constexpr std::size_t kParameters = 8;
  constexpr std::size_t kElements = 256;
  const ddp::Session session = ddp::init_process_group({.backend = "null"});
  std::vector<float> values(kParameters * kElements);
  std::vector<float> gradients(values.size(), 1);
  ddp::DistributedDataParallelOptions options;
  options.first_bucket_bytes = options.bucket_bytes = 2 * kElements * sizeof(float);
  for (const std::string how : {"copied", "in_buckets", "fp16"}) {
    std::vector<ddp::Parameter> parameters;
    for (std::size_t i = 0; i < kParameters; ++i) {
      float* const gradient = how == "in_buckets" ? nullptr : &gradients[i * kElements];
      parameters.emplace_back("", &values[i * kElements], gradient, kElements, std::vector<std::int64_t>{16, 16});
    }
    ddp::DistributedDataParallel model(session.world(), parameters, options);
    if (how == "fp16") model.register_comm_hook(ddp::fp16_compress_hook);
    const auto steps = [&] {
      for (int k = 0; k < kCalls; ++k) {
        for (std::size_t i = kParameters; i-- > 0;) model.mark_ready(i);
        model.synchronize();
      }
    };
    for (int k = 0; k < kWarmUps; ++k) steps();
    report(session.world(), "ddp", how.c_str(), steps);
  }
}

// A world of one, since the backend that does nothing would give several ranks no values.
void count_batch_norm() {
  constexpr std::size_t kChannels = 16;
  constexpr std::size_t kLength = 9;
  const ddp::Session session = ddp::init_process_group();
  std::vector<float> weight(kChannels, 1), weight_grad(kChannels), mean(kChannels), var(kChannels, 1);
  std::vector<float> input(8 * kChannels * kLength), output(input.size()), gradient(input.size());
  for (std::size_t i = 0; i < input.size(); ++i) input[i] = static_cast<float>(i % 7);
  for (const bool channels_last : {false, true}) {
    ddp::BatchNormOptions options;
    options.channels_last = channels_last;
    ddp::SyncBatchNorm<float> norm(
        session.world(), kChannels,
        {weight.data(), nullptr, weight_grad.data(), nullptr, mean.data(), var.data(), nullptr}, options);
    const auto steps = [&] {
      for (int k = 0; k < kCalls; ++k) {
        norm.forward(input, output, kLength);
        norm.backward(input, output, gradient);
      }
    };
    steps();
    report(session.world(), "batch_norm", channels_last ? "channels_last" : "channels_first", steps);
  }
}

void count_over_gloo() {
  const ddp::Session session = ddp::init_process_group();
  Buffers b;
  LibddpContender libddp(session.world(), Calling::Blocking);
  const ddp::Store store = session.store();
  const std::unique_ptr<ddp::bench::Contender> gloo(
      ddp::bench::ddp_bench_gloo_contender(&store, session.rank(), session.world_size()));
  for_each_collective([&](Collective collective) {
    if (!gloo->has(collective)) return;
    const auto count = [&](ddp::bench::Contender& contender) {
      report(session.world(), name_of(collective), contender.name(), [&] {
        for (int k = 0; k < kGlooCalls; ++k) contender.run(collective, b.input.data(), b.output.data(), kCount);
      });
    };
    for (int turn = 0; turn < kTurns; ++turn) {
      count(libddp);
      count(*gloo);
    }
  });
}

}  // namespace

int main(int argc, char** argv) {
  setvbuf(stdout, nullptr, _IOLBF, 0);  // whole lines, so that those of several ranks do not mix
  try {
    if (argc == 2 && std::string(argv[1]) == "null") {
      count_over_null_backend();
    } else if (argc == 2 && std::string(argv[1]) == "ddp") {
      count_ddp();
    } else if (argc == 2 && std::string(argv[1]) == "batch_norm") {
      count_batch_norm();
    } else {
      count_over_gloo();
    }
    return EXIT_SUCCESS;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "allocation_worker: %s\n", error.what());
    return EXIT_FAILURE;
  }
}
