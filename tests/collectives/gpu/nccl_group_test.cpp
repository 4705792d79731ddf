// SPDX-License-Identifier: BSD-3-Clause
// NcclGroup over the fakes, with one thread per rank where a job has one process.
#include "collectives/gpu/nccl_group.hpp"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <future>
#include <thread>
#include <vector>

#include "collectives/gpu/nccl_memory.hpp"
#include "rendezvous/base/error.hpp"
#include "rendezvous/store/hash_store.hpp"
#include "tests/fixtures/gpu/fake_cuda.hpp"
#include "tests/support/hosts.hpp"

using namespace ddp::collectives;
using Catch::Matchers::Contains;
using ddp::rendezvous::Error;
using ddp::rendezvous::ErrorCode;
using ddp::rendezvous::HashStore;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

namespace {

constexpr std::int32_t kFloat32 = 0;
constexpr std::int32_t kInt16 = 6;
constexpr ReduceOp kSum = ReduceOp::Sum;
constexpr ReduceOp kAnd = ReduceOp::And;
constexpr milliseconds kLong = std::chrono::seconds(30);

// Sets what a process reads when it opens NCCL and makes a communicator.
void fake(const std::vector<std::pair<const char*, const char*>>& faults = {}) {
  setenv("DDP_CUDA_LIBRARY", FAKE_CUDA, 1);
  setenv("DDP_NCCL_LIBRARY", FAKE_NCCL, 1);
  setenv("FAKE_CUDA_DEVICES", "4", 1);
  for (const char* name : {"FAKE_NCCL_RANK", "FAKE_NCCL_INIT", "FAKE_NCCL_STUCK_OP", "FAKE_NCCL_ASYNC_ERROR_OP",
                           "FAKE_NCCL_ABORT", "FAKE_NCCL_LAG", "FAKE_NCCL_REGISTERS"}) {
    unsetenv(name);
  }
  for (const auto& [name, value] : faults) setenv(name, value, 1);
}

ddp_backend_store store_of(HashStore& store) {
  const auto set = [](void* context, const char* key, const void* value, std::size_t size, ddp_backend_error*) {
    static_cast<HashStore*>(context)->set(key, std::string_view(static_cast<const char*>(value), size));
    return 0;
  };
  const auto get = [](void* context, const char* key, std::int64_t timeout_ms, void* sink,
                      void (*deliver)(void*, const void*, std::size_t), ddp_backend_error* error) {
    try {
      const std::string value = static_cast<HashStore*>(context)->get(key, milliseconds(timeout_ms));
      deliver(sink, value.data(), value.size());
      return 0;
    } catch (const Error& e) {
      std::snprintf(error->text, sizeof(error->text), "timed out: %s", e.what());
      return 1;
    }
  };
  return {&store, set, get};
}

// One rank of a test.
struct Rank {
  explicit Rank(int number) : device(cuda_api(), number), stream(device) {}
  CudaDevice device;
  SideStream stream;
  std::unique_ptr<NcclGroup> group;
  ddp_backend_error error = {};

  NcclGroup::Call call(milliseconds timeout = kLong) { return {stream.get(), Clock::now() + timeout, &error}; }
  void synchronize() { cuStreamSynchronize(stream.get()); }
};

// Device memory that holds floats.
class Floats {
 public:
  Floats(Rank& rank, const std::vector<float>& values)
      : rank_(rank), count_(values.size()), memory_(rank.device, values.size() * sizeof(float)) {
    cuMemcpyHtoDAsync_v2(address(), values.data(), count_ * sizeof(float), rank.stream.get());
  }
  void* get() const { return memory_.get(); }
  std::vector<float> read() const {
    std::vector<float> values(count_);
    cuMemcpyDtoHAsync_v2(values.data(), address(), count_ * sizeof(float), rank_.stream.get());
    return values;
  }

 private:
  std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(memory_.get()); }
  Rank& rank_;
  std::size_t count_;
  DeviceMemory memory_;
};

// Runs body(rank, number) on one thread per rank, with a group of all ranks. Returns the texts of what they throw.
std::vector<std::string> run(int size, const std::function<void(Rank&, int)>& body, milliseconds timeout = kLong) {
  HashStore store(kLong);
  std::vector<std::future<std::string>> ranks;
  for (int number = 0; number < size; ++number) {
    ranks.push_back(std::async(std::launch::async, [&store, &body, number, size, timeout]() -> std::string {
      try {
        Rank rank(number);
        const ddp_backend_store shared = store_of(store);
        rank.group = std::make_unique<NcclGroup>(nccl_api(), rank.device, NcclGroup::Place{number, size},
                                                 NcclGroup::Joining{&shared, Clock::now() + timeout, nullptr});
        body(rank, number);
        return "";
      } catch (const Error& e) {
        return std::to_string(static_cast<int>(e.code())) + " " + e.what();
      }
    }));
  }
  std::vector<std::string> results;
  for (auto& rank : ranks) results.push_back(rank.get());
  return results;
}

void expect(bool right, const std::string& what) {
  if (!right) throw Error(ErrorCode::Corrupt, what);
}

// Waits until NCCL reports that an operation will not end.
ddp_backend_status wait_for_error(Rank& rank) {
  for (;;) {
    if (const ddp_backend_status status = rank.group->poll_error(&rank.error); status != DDP_BACKEND_OK) return status;
    std::this_thread::yield();
  }
}

}  // namespace

TEST_CASE("nccl group: operations are put on the stream, however long a call is in progress", "[collectives][unit]") {
  const char* lag = GENERATE("0", "1", "500");
  fake({{"FAKE_NCCL_LAG", lag}});
  for (const std::string& failure : run(3, [](Rank&rank, int number) {
         const auto n = static_cast<float>(number);
         Floats values(rank, {n, 1, 2});
         expect(rank.group->all_reduce(values.get(), 3, kFloat32, {kSum, 1}, rank.call()) == DDP_BACKEND_OK, "sum");
         expect(values.read() == std::vector<float>{3, 3, 6}, "the sum, right behind the operation");
         Floats all(rank, std::vector<float>(9));
         expect(rank.group->gather(values.get(), all.get(), 3, kFloat32, 2, rank.call()) == DDP_BACKEND_OK, "gather");
         const std::vector<float> gathered = {3, 3, 6, 3, 3, 6, 3, 3, 6};
         expect(number != 2 || all.read() == gathered, "a group of calls, right behind it");
       })) {
    INFO(failure);
    CHECK(failure.empty());
  }
}

TEST_CASE("nccl group: what NCCL lacks is refused with a reason", "[collectives][unit]") {
  fake();
  for (const std::string& failure : run(1, [](Rank&rank, int) {
         Floats values(rank, {1, 2});
         const auto bits = rank.group->all_reduce(values.get(), 1, 2, {kAnd, 1}, rank.call());
         expect(bits == DDP_BACKEND_UNSUPPORTED, "bitwise");
         expect(std::strstr(rank.error.text, "NCCL has no bitwise reductions") != nullptr, rank.error.text);
         const auto narrow = rank.group->all_reduce(values.get(), 1, kInt16, {kSum, 1}, rank.call());
         expect(narrow == DDP_BACKEND_UNSUPPORTED, "int16");
         expect(std::strstr(rank.error.text, "NCCL has no reductions of int16") != nullptr, rank.error.text);
         expect(rank.group->broadcast(values.get(), 4, kInt16, 0, rank.call()) == DDP_BACKEND_OK, "moving them");
       })) {
    INFO(failure);
    CHECK(failure.empty());
  }
}

TEST_CASE("nccl group: a rank that fails to join gets an error at once, the others at their deadline",
          "[collectives][unit]") {
  fake({{"FAKE_NCCL_INIT", "fail"}, {"FAKE_NCCL_RANK", "1"}});
  const std::vector<std::string> failures = run(
      2, [](Rank&, int) {}, milliseconds(200));
  CHECK_THAT(failures[1], Contains("5 NCCL: unhandled system error: the fake fails, as configured"));
  CHECK_THAT(failures[0], Contains("1 NCCL did not hear from all ranks in time"));
}

TEST_CASE("nccl group: joining that stays in progress ends at the deadline", "[collectives][unit]") {
  fake({{"FAKE_NCCL_INIT", "hang"}});
  const auto before = Clock::now();
  for (const std::string& failure : run(
           2, [](Rank&, int) {}, milliseconds(100))) {
    CHECK_THAT(failure, Contains("1 NCCL did not hear from all ranks in time"));
  }
  CHECK(Clock::now() - before >= milliseconds(100));
}

TEST_CASE("nccl group: an operation that does not end is ended by abort", "[collectives][unit]") {
  fake({{"FAKE_NCCL_STUCK_OP", "2"}, {"FAKE_NCCL_RANK", "0"}});
  for (const std::string& failure : run(2, [](Rank&rank, int number) {
         Floats values(rank, {1});
         expect(rank.group->barrier(rank.call()) == DDP_BACKEND_OK, "the first");
         rank.synchronize();
         expect(rank.group->all_reduce(values.get(), 1, kFloat32, {kSum, 1}, rank.call()) == DDP_BACKEND_OK, "given");
         if (number == 1) {
           // Rank 0 gives up, which breaks this rank's connection to it.
           expect(wait_for_error(rank) == DDP_BACKEND_PEER_LOST, "what a peer's abort is");
           expect(std::strstr(rank.error.text, "connection closed by peer, rank 0") != nullptr, rank.error.text);
         }
         expect(rank.group->abort(), "the abort comes back");
         rank.synchronize();  // and the stream continues
         expect(rank.group->abort(), "an abort is idempotent");
         expect(rank.group->barrier(rank.call()) == DDP_BACKEND_ABORTED, "a group is single-use");
         expect(rank.group->communicator() == nullptr, "the communicator is gone");
       })) {
    INFO(failure);
    CHECK(failure.empty());
  }
}

TEST_CASE("nccl group: poll_error returns an asynchronous error", "[collectives][unit]") {
  fake({{"FAKE_NCCL_ASYNC_ERROR_OP", "1"}, {"FAKE_NCCL_RANK", "1"}});
  for (const std::string& failure : run(2, [](Rank&rank, int number) {
         rank.group->barrier(rank.call());
         const ddp_backend_status status = wait_for_error(rank);
         expect(status == (number == 1 ? DDP_BACKEND_ERROR : DDP_BACKEND_PEER_LOST), "status");
         const char* text = number == 1 ? "NCCL: unhandled system error: the network is gone" : "rank 1";
         expect(number == 0 || std::strstr(rank.error.text, text) != nullptr, rank.error.text);
         rank.group->abort();
       })) {
    INFO(failure);
    CHECK(failure.empty());
  }
}

TEST_CASE("nccl group: an abort from which NCCL does not return leaks the communicator", "[collectives][unit]") {
#ifdef __SANITIZE_ADDRESS__
  ddp::testing::skip("what is left behind is a leak");
#endif
  fake({{"FAKE_NCCL_ABORT", "hang"}});
  for (const std::string& failure : run(1, [](Rank&rank, int) {
         const auto before = Clock::now();
         expect(!rank.group->abort(), "abort reports it");
         expect(Clock::now() - before < std::chrono::seconds(20), "within seconds");
       })) {
    INFO(failure);
    CHECK(failure.empty());
  }
}

TEST_CASE("nccl group: an abort ends a call that is in progress on another thread", "[collectives][unit]") {
  fake({{"FAKE_NCCL_LAG", "1000000000"}});
  for (const std::string& failure : run(1, [](Rank&rank, int) {
         auto status = std::async(std::launch::async, [&] { return rank.group->barrier(rank.call()); });
         while (rank.device.issuing().try_lock()) rank.device.issuing().unlock();  // until it is on its way
         rank.group->abort();
         expect(status.get() == DDP_BACKEND_ABORTED, "aborted");
       })) {
    INFO(failure);
    CHECK(failure.empty());
  }
}

TEST_CASE("nccl group: a call that stays in progress ends at its deadline", "[collectives][unit]") {
  fake({{"FAKE_NCCL_LAG", "1000000000"}});
  for (const std::string& failure : run(1, [](Rank&rank, int) {
         expect(rank.group->barrier(rank.call(milliseconds(50))) == DDP_BACKEND_TIMEOUT, "timeout");
         rank.group->abort();
       })) {
    INFO(failure);
    CHECK(failure.empty());
  }
}

TEST_CASE("nccl group: split makes groups of one colour, ordered by key", "[collectives][unit]") {
  fake();
  for (const std::string& failure : run(4, [](Rank&rank, int number) {
         // Rank 3 is in no part; the order of the others is reversed.
         const int color = number == 3 ? -1 : number % 2;
         const int size = color == 0 ? 2 : 1;
         const int place = number == 0 ? 1 : 0;
         auto part = rank.group->split(color, -number, {place, size}, Clock::now() + kLong);
         expect((part == nullptr) == (number == 3), "who is in");
         if (part == nullptr) return;
         Floats values(rank, {static_cast<float>(number + 1)});
         Floats all(rank, std::vector<float>(2));
         expect(part->all_gather(values.get(), all.get(), 1, kFloat32, rank.call()) == DDP_BACKEND_OK, "all_gather");
         expect(all.read() == (color == 0 ? std::vector<float>{3, 1} : std::vector<float>{2, 0}), "order");
         rank.group.reset();  // a part outlives the whole
         part->barrier(rank.call());
         rank.synchronize();
       })) {
    INFO(failure);
    CHECK(failure.empty());
  }
}

TEST_CASE("nccl group: memory is registered in the best way that this NCCL and these GPUs have",
          "[collectives][unit]") {
  using Registration = NcclGroup::Registration;
  struct Case {
    const char* registers;  // what the fake does
    Registration expected;
  };
  const Case the = GENERATE(Case{"windows", Registration::Window}, Case{"none", Registration::Buffer},
                            Case{"nothing", Registration::None});
  CAPTURE(the.registers);
  fake({{"FAKE_NCCL_REGISTERS", the.registers}, {"FAKE_NCCL_LAG", "3"}});
  for (const std::string& failure : run(2, [&](Rank&rank, int number) {
         expect(rank.group->best_registration() == Registration::Window, "it has all functions");
         const std::uint64_t before = rank.group->registration_history();
         {
           NcclMemory memory(nccl_api(), rank.device, *rank.group, 4096);
           expect(memory.register_with_group(Registration::Window, rank.call()) == DDP_BACKEND_OK, rank.error.text);
           expect(memory.registration() == the.expected, "how it is registered");
           const float value = static_cast<float>(number) + 1;
           cuMemcpyHtoDAsync_v2(reinterpret_cast<std::uint64_t>(memory.get()), &value, sizeof(value),
                                rank.stream.get());
           // The end of this memory waits for the operation, ends the registration, then frees.
           expect(rank.group->all_reduce(memory.get(), 1, kFloat32, {kSum, 1}, rank.call()) == DDP_BACKEND_OK, "sum");
           Floats sum(rank, {0});
           cuMemcpyDtoDAsync_v2(reinterpret_cast<std::uint64_t>(sum.get()),
                                reinterpret_cast<std::uint64_t>(memory.get()), sizeof(float), rank.stream.get());
           expect(sum.read() == std::vector<float>{3}, "the sum");
           rank.group->all_reduce(memory.get(), 1024, kFloat32, {kSum, 1}, rank.call());
         }
         expect(rank.group->registration_history() != before, "the history knows of it");
       })) {
    INFO(failure);
    CHECK(failure.empty());
  }
}

TEST_CASE("nccl group: an NCCL without the functions registers less or nothing", "[collectives][unit]") {
  using Registration = NcclGroup::Registration;
  fake();
  for (const std::string& failure : run(1, [&](Rank&rank, int) {
         NcclApi until_2_26 = nccl_api();
         until_2_26.comm_window_register = nullptr;
         until_2_26.comm_window_deregister = nullptr;
         NcclApi until_2_18 = until_2_26;
         until_2_18.memory_allocate = nullptr;
         until_2_18.memory_free = nullptr;
         until_2_18.comm_register = nullptr;
         until_2_18.comm_deregister = nullptr;
         const NcclGroup::Joining joining = {nullptr, Clock::now() + kLong, nullptr};
         NcclGroup old(until_2_26, rank.device, {0, 1}, joining);
         expect(old.best_registration() == Registration::Buffer, "buffers since 2.19");
         NcclMemory memory(until_2_26, rank.device, old, 100);
         expect(memory.register_with_group(old.best_registration(), rank.call()) == DDP_BACKEND_OK, rank.error.text);
         expect(memory.registration() == Registration::Buffer, "a buffer");
         NcclGroup oldest(until_2_18, rank.device, {0, 1}, joining);
         expect(oldest.best_registration() == Registration::None, "nothing before");
       })) {
    INFO(failure);
    CHECK(failure.empty());
  }
}

TEST_CASE("nccl group: registrations end with an aborted communicator, and the memory after it",
          "[collectives][unit]") {
  fake({{"FAKE_NCCL_STUCK_OP", "1"}});
  for (const std::string& failure : run(2, [&](Rank&rank, int) {
         NcclMemory memory(nccl_api(), rank.device, *rank.group, 64);
         expect(memory.register_with_group(NcclGroup::Registration::Window, rank.call()) == DDP_BACKEND_OK, "window");
         expect(rank.group->all_reduce(memory.get(), 1, kFloat32, {kSum, 1}, rank.call()) == DDP_BACKEND_OK, "given");
         expect(rank.group->abort(), "the abort comes back");
       })) {
    INFO(failure);
    CHECK(failure.empty());
  }
}

TEST_CASE("nccl group: the fake refuses memory that only some ranks have registered", "[collectives][unit]") {
  fake();
  for (const std::string& failure : run(2, [&](Rank&rank, int number) {
         NcclMemory memory(nccl_api(), rank.device, *rank.group, 64);
         if (number == 0) memory.register_with_group(NcclGroup::Registration::Buffer, rank.call());
         rank.group->all_reduce(memory.get(), 1, kFloat32, {kSum, 1}, rank.call());
         expect(wait_for_error(rank) == DDP_BACKEND_ERROR, "an error");
         expect(std::strstr(rank.error.text, "not registered at the same place") != nullptr, rank.error.text);
         rank.group->abort();
       })) {
    INFO(failure);
    CHECK(failure.empty());
  }
}
