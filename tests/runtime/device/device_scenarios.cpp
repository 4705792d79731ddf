// SPDX-License-Identifier: BSD-3-Clause
// Scenarios with operations on GPU memory, as a user's program has them. Each makes a session of its own.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "tests/runtime/device/device_setting.hpp"
#include "tests/runtime/job/contribution.hpp"
#include "tests/runtime/job/scenario.hpp"

namespace ddp::test {
namespace {

constexpr ddp::Milliseconds kSoon(300);

template <typename T>
std::vector<T> joined(int size, std::size_t count) {
  std::vector<T> all;
  for (int rank = 0; rank < size; ++rank) {
    const std::vector<T> part = contribution<T>(rank, count);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

template <typename T>
void check_moves(Setting& s, std::size_t count, const std::string& type) {
  const int size = s.group.size();
  const int me = s.group.rank();
  const auto n = static_cast<std::size_t>(size);
  const std::string what = type + " x " + std::to_string(count) + ": ";
  const DeviceArray<T> mine(s.gpu, contribution<T>(me, count), s.stream);
  DeviceArray<T> all(s.gpu, count * n);
  s.group.all_gather(s.buffer(mine), s.buffer(all));
  expect(all.read(s.stream) == joined<T>(size, count), what + "all_gather");
  for (int root = 0; root < size; ++root) {
    DeviceArray<T> values(s.gpu, contribution<T>(me, count), s.stream);
    s.group.broadcast(s.buffer(values), root);
    expect(values.read(s.stream) == contribution<T>(root, count), what + "broadcast");
    all.write(std::vector<T>(count * n), s.stream);
    s.group.gather(s.buffer(mine), me == root ? s.buffer(all) : ddp::Buffer(), root);
    expect(me != root || all.read(s.stream) == joined<T>(size, count), what + "gather");
    DeviceArray<T> part(s.gpu, count);
    s.group.scatter(me == root ? s.buffer(all) : ddp::Buffer(), s.buffer(part), root);
    expect(part.read(s.stream) == contribution<T>(me, count), what + "scatter");
  }
  // Rank r's part for rank q is q's contribution, so every rank receives its own contribution from all others.
  const DeviceArray<T> for_all(s.gpu, joined<T>(size, count), s.stream);
  s.group.all_to_all(s.buffer(for_all), s.buffer(all));
  const std::vector<T> got = all.read(s.stream);
  for (std::size_t rank = 0; rank < n && count > 0; ++rank) {
    const auto begin = got.begin() + static_cast<std::ptrdiff_t>(rank * count);
    expect(std::equal(begin, begin + static_cast<std::ptrdiff_t>(count), contribution<T>(me, count).begin()),
           what + "all_to_all");
  }
}

template <typename T>
void check_reductions(Setting& s, std::size_t count, const std::string& type) {
  const int size = s.group.size();
  const int me = s.group.rank();
  const auto n = static_cast<std::size_t>(size);
  for (const ddp::ReduceOp op : {ddp::ReduceOp::Sum, ddp::ReduceOp::Product, ddp::ReduceOp::Min, ddp::ReduceOp::Max}) {
    const std::string what =
        type + " x " + std::to_string(count) + ", reduction " + std::to_string(static_cast<int>(op)) + ": ";
    std::vector<T> expected(count * n);
    for (std::size_t i = 0; i < count * n; ++i) expected[i] = reduced<T>(op, size, i);
    DeviceArray<T> input(s.gpu, contribution<T>(me, count * n), s.stream);
    DeviceArray<T> part(s.gpu, count);
    s.group.reduce_scatter(s.buffer(input), s.buffer(part), op);
    const std::vector<T> got = part.read(s.stream);
    expect(std::equal(got.begin(), got.end(), expected.begin() + static_cast<std::ptrdiff_t>(count) * me),
           what + "reduce_scatter");
    expect(input.read(s.stream) == contribution<T>(me, count * n), what + "reduce_scatter leaves its input");
    const int root = size - 1;
    DeviceArray<T> on_root(s.gpu, contribution<T>(me, count * n), s.stream);
    s.group.reduce(s.buffer(on_root), op, root);
    expect(me != root || on_root.read(s.stream) == expected, what + "reduce");
    s.group.all_reduce(s.buffer(input), op);
    expect(input.read(s.stream) == expected, what + "all_reduce");
  }
}

template <typename T>
void check_type(Setting& s, const std::string& type) {
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{5}, std::size_t{1000}}) {
    check_moves<T>(s, count, type);
    if (sizeof(T) != 2) check_reductions<T>(s, count, type);
  }
}

// Multiplies each contribution by a factor in the type itself.
template <typename T>
void check_scaled(Setting& s, const std::string& type) {
  const int size = s.group.size();
  const auto total = static_cast<double>(size * (size + 1) / 2);
  DeviceArray<T> values(s.gpu, std::vector<T>(3, static_cast<T>(s.group.rank() + 1)), s.stream);
  s.group.all_reduce(s.buffer(values), ddp::ReduceOp::Avg);
  const T share = T(1) / static_cast<T>(size);
  T expected = 0;
  for (int rank = 0; rank < size; ++rank) expected += static_cast<T>(rank + 1) * share;
  for (const T value : values.read(s.stream)) {
    expect(std::abs(value - expected) <= std::abs(expected) * T(1e-6), type + " average");
  }
  DeviceArray<T> weighted(s.gpu, std::vector<T>(3, static_cast<T>(s.group.rank() + 1)), s.stream);
  s.group.all_reduce(s.buffer(weighted), ddp::premul_sum(0.5));
  expect(weighted.read(s.stream) == std::vector<T>(3, static_cast<T>(total * 0.5)), type + " weighted sum");
}

// The value 1.5 in both 16-bit types: it is exact, and so are its sums.
void check_16_bit(Setting& s, ddp::DType dtype, const std::vector<std::uint16_t>& multiples, const std::string& type) {
  const auto size = static_cast<std::size_t>(s.group.size());
  DeviceArray<std::uint16_t> values(s.gpu, std::vector<std::uint16_t>(9, multiples[1]), s.stream);
  s.group.all_reduce(s.buffer(values, dtype));
  expect(values.read(s.stream) == std::vector<std::uint16_t>(9, multiples[size]), type + " sum");
  values.write(std::vector<std::uint16_t>(9, multiples[2]), s.stream);
  s.group.all_reduce(s.buffer(values, dtype), ddp::premul_sum(0.5));
  expect(values.read(s.stream) == std::vector<std::uint16_t>(9, multiples[size]), type + " weighted sum");
}

void check_uneven(Setting& s) {
  // Rank r sends r + q elements of value r to rank q.
  const auto n = static_cast<std::size_t>(s.group.size());
  const auto me = static_cast<std::size_t>(s.group.rank());
  std::vector<std::size_t> counts(n);
  std::iota(counts.begin(), counts.end(), me);
  const std::size_t total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  const DeviceArray<std::int32_t> input(s.gpu, std::vector<std::int32_t>(total, static_cast<std::int32_t>(me)),
                                        s.stream);
  DeviceArray<std::int32_t> output(s.gpu, total);
  s.group.all_to_all(s.buffer(input), counts, s.buffer(output), counts);
  std::vector<std::int32_t> expected;
  for (std::size_t rank = 0; rank < n; ++rank) expected.insert(expected.end(), counts[rank], static_cast<int>(rank));
  expect(output.read(s.stream) == expected, "all_to_all of uneven parts");
}

void collectives() {
  Setting s;
  check_type<float>(s, "float32");
  check_type<double>(s, "float64");
  check_type<std::int8_t>(s, "int8");
  check_type<std::uint8_t>(s, "uint8");
  check_type<std::int16_t>(s, "int16");
  check_type<std::int32_t>(s, "int32");
  check_type<std::uint32_t>(s, "uint32");
  check_type<std::int64_t>(s, "int64");
  check_type<std::uint64_t>(s, "uint64");
  check_scaled<float>(s, "float32");
  check_scaled<double>(s, "float64");
  check_16_bit(s, ddp::DType::Float16, {0, 0x3e00, 0x4200, 0x4480, 0x4600}, "float16");
  check_16_bit(s, ddp::DType::BFloat16, {0, 0x3fc0, 0x4040, 0x4090, 0x40c0}, "bfloat16");
  check_uneven(s);
  std::vector<float> ones(1'000'003, 1.0F);
  DeviceArray<float> large(s.gpu, ones, s.stream);
  s.group.all_reduce(s.buffer(large));
  expect(large.read(s.stream) == std::vector<float>(ones.size(), static_cast<float>(s.group.size())), "a large one");
  s.group.barrier();
  void* communicator = s.group.nccl_communicator();
  expect(communicator != nullptr, "there is a communicator for those who call NCCL themselves");
}

// A number travels through all ranks; then two ranks send to each other.
void messages() {
  Setting s;
  const int size = s.group.size();
  const int next = (s.group.rank() + 1) % size;
  const int previous = (s.group.rank() + size - 1) % size;
  DeviceArray<std::int32_t> number(s.gpu, {40, s.group.rank()}, s.stream);
  if (s.group.rank() == 0) {
    s.group.send(s.buffer(number), next);
    expect(s.group.recv(s.buffer(number), previous) == previous, "who sent it");
    expect(number.read(s.stream) == std::vector<std::int32_t>{40 + size - 1, size - 2}, "it went by everybody");
  } else {
    s.group.recv(s.buffer(number), previous);
    std::vector<std::int32_t> values = number.read(s.stream);
    expect(values[1] == previous - 1 || previous == 0, "from the one before");
    number.write({values[0] + 1, s.group.rank() - 1}, s.stream);
    s.group.isend(s.buffer(number), next).wait();
  }
  report_failure("from anybody", [&] { s.group.recv(s.buffer(number)); });
  s.group.barrier();
}

// The memory is filled on a stream that is blocked. The operation must wait for it, and the host must not.
void follows_the_callers_stream() {
  Setting s;
  std::atomic<bool> released = false;
  const std::vector<float> ones(1000, 1.0F);
  DeviceArray<float> source(s.gpu, ones, s.stream);
  DeviceArray<float> values(s.gpu, std::vector<float>(1000, 100.0F), s.stream);
  s.gpu.synchronize(s.stream);
  s.group.barrier();  // the first operation waits for the other ranks, which this scenario is not about
  s.gpu.hold(s.stream, &released);
  s.gpu.copy(values.data(), source.data(), ones.size() * sizeof(float), s.stream);
  const ddp::Work work = s.group.all_reduce_async(s.buffer(values));
  const ddp::Work second = s.group.all_reduce_async(s.buffer(values));
  expect(!work.is_completed(), "an operation waits for the current stream");
  expect(!work.wait_for(ddp::Milliseconds(5)), "a look does not wait for long");
  released = true;
  second.wait();
  const auto n = static_cast<float>(s.group.size());
  expect(values.read(s.stream) == std::vector<float>(1000, n * n), "and finds what the stream has left");
  work.synchronize();
  expect(work.is_completed() && second.is_completed(), "what has ended has ended");
}

// The last rank begins late. The others' streams do not wait until wait(); work issued after it finds the result.
void is_followed_by_the_stream() {
  Setting s;
  const bool late = s.group.rank() == s.group.size() - 1;
  DeviceArray<float> values(s.gpu, std::vector<float>(1000, 1.0F), s.stream);
  DeviceArray<float> copied(s.gpu, std::vector<float>(1000, -1.0F), s.stream);
  s.gpu.synchronize(s.stream);
  s.group.barrier();
  if (late) s.session.store().wait({"all are waiting"});
  const ddp::Work work = s.group.all_reduce_async(s.buffer(values));
  std::atomic<bool> meanwhile = false;
  s.gpu.mark(s.stream, &meanwhile);
  s.gpu.synchronize(s.stream);
  expect(meanwhile, "the stream goes on until it has to wait");
  if (!late) expect(!work.is_completed(), "and the operation is still in flight");
  work.wait();  // the stream waits; this thread continues and lets the late rank begin
  s.gpu.copy(copied.data(), values.data(), 1000 * sizeof(float), s.stream);
  std::atomic<bool> after = false;
  s.gpu.mark(s.stream, &after);
  if (!late) {
    expect(!after, "what comes after wait() waits");
    if (s.session.store().add("waiting", 1) == s.group.size() - 1) s.session.store().set("all are waiting", "");
  }
  s.gpu.synchronize(s.stream);
  expect(after, "and comes then");
  expect(copied.read(s.stream) == std::vector<float>(1000, static_cast<float>(s.group.size())), "and finds the result");
}

// Runs operations on other streams, other threads' streams and the default stream.
void streams() {
  Setting s;
  const int device = s.gpu.index();
  void* other = s.gpu.make_stream();
  {
    const ddp::StreamGuard guard(other, device);
    expect(ddp::current_stream(device) == other, "a guard sets the stream");
    expect(ddp::current_stream(device + 1) == nullptr, "of its device only");
  }
  expect(ddp::current_stream(device) == s.stream, "and puts the one before back");
  const ddp::StreamGuard default_stream(nullptr, device);
  DeviceArray<float> values(s.gpu, std::vector<float>(10, 1.0F), nullptr);
  s.group.all_reduce(s.buffer(values));
  expect(values.read(nullptr) == std::vector<float>(10, static_cast<float>(s.group.size())), "the default stream");
  report_failure("no such device", [] { ddp::current_stream(-1); });
}

// Uses both kinds of memory in one group.
void mixed() {
  Setting s("cpu:gloo,cuda:nccl");
  const auto n = s.group.size();
  std::vector<std::int32_t> host(10, 1);
  DeviceArray<float> device(s.gpu, std::vector<float>(10, 1.0F), s.stream);
  std::atomic<bool> released = false;
  s.group.all_reduce(s.buffer(device));  // the first operation over NCCL
  s.gpu.synchronize(s.stream);
  s.gpu.hold(s.stream, &released);
  const ddp::Work behind = s.group.all_reduce_async(s.buffer(device));
  s.group.all_reduce(host);
  expect(host == std::vector<std::int32_t>(10, n), "the CPU's memory does not wait for the GPU's");
  s.group.all_reduce(host, ddp::ReduceOp::BitAnd);
  s.group.barrier();
  expect(!behind.is_completed(), "which waits for its stream");
  released = true;
  behind.synchronize();
  const auto squared = static_cast<float>(n * n);
  expect(device.read(s.stream) == std::vector<float>(10, squared), "and comes to its result");
  const ddp_work fifth = [&] {
    ddp_work work;
    ddp_barrier(s.group.c(), 0, &work);
    return work;
  }();
  expect(fifth.sequence == 6, "both have numbers in one row");
  ddp::Work(fifth).wait();
}

void refusals() {
  Setting s;
  const int device = s.gpu.index();
  DeviceArray<std::int32_t> values(s.gpu, std::vector<std::int32_t>(4, 1), s.stream);
  std::vector<std::int32_t> host(4);
  DeviceArray<std::uint16_t> narrow(s.gpu, std::vector<std::uint16_t>(4), s.stream);
  report_failure("bits", [&] { s.group.all_reduce(s.buffer(values), ddp::ReduceOp::BitOr); });
  report_failure("int16", [&] { s.group.all_reduce(s.buffer(narrow, ddp::DType::Int16)); });
  if (s.group.size() > 1) report_failure("the CPU", [&] { s.group.all_reduce(host); });
  const ddp::Device elsewhere = {ddp::DeviceKind::Cuda, device + 7};
  report_failure("elsewhere", [&] { s.group.broadcast({values.data(), 4, ddp::DType::Int32, elsewhere}); });
  report_failure("two devices", [&] { s.group.all_gather({host.data(), 4, ddp::DType::Int32}, s.buffer(values)); });
  s.group.all_reduce(s.buffer(values));  // the group still works
  expect(values.read(s.stream) == std::vector<std::int32_t>(4, s.group.size()), "a refusal leaves the group alone");
  report_failure("group without one", [] {
    ddp::InitOptions gloo;
    gloo.world_size = 1;
    ddp::Session alone = ddp::init_process_group(gloo);
    alone.world().nccl_communicator();
  });
}

// Runs an operation that does not end: on the rank that has the fault, or because its peer is gone.
void fails() {
  ddp::InitOptions given = options("nccl");
  Setting s(given);
  DeviceArray<float> values(s.gpu, std::vector<float>(250, 1.0F), s.stream);
  s.group.barrier();
  say("ready");
  if (s.group.rank() == 1 && variable("TEST_VICTIM") == "1") {
    for (;;) pause();
  }
  const auto before = std::chrono::steady_clock::now();
  const ddp::Milliseconds timeout = variable("TEST_TIMEOUT") == "1" ? kSoon : ddp::Milliseconds(0);
  report_failure("all_reduce", [&] {
    const ddp::Work work = s.group.all_reduce_async(s.buffer(values), ddp::ReduceOp::Sum, timeout);
    work.wait();
    work.synchronize();
  });
  const auto took = std::chrono::steady_clock::now() - before;
  if (timeout.count() > 0) expect(took >= timeout, "no earlier than the deadline");
  say("took " + std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(took).count()) + " ms");
  report_failure("the one after", [&] { s.group.all_reduce(s.buffer(values)); });
  report_failure("communicator", [&] { s.group.nccl_communicator(); });
  const bool is_stuck = variable("FAKE_NCCL_ABORT") == "hang";
  if (!is_stuck) s.gpu.synchronize(s.stream);  // the abort has let the stream continue
  say("done");
  if (is_stuck) _exit(all_right ? 0 : 1);  // freeing the array would wait for the GPU
}

// Groups of some of 4 ranks, on the GPU like the world.
void groups() {
  Setting s;
  const int rank = s.session.rank();
  const auto expect_sum = [&](const ddp::ProcessGroup& group, const std::vector<int>& members, const char* what) {
    DeviceArray<std::int32_t> values(s.gpu, {rank, 1}, s.stream);
    group.all_reduce(s.buffer(values));
    const std::vector<std::int32_t> expected = {std::accumulate(members.begin(), members.end(), 0),
                                                static_cast<std::int32_t>(members.size())};
    expect(values.read(s.stream) == expected, what);
  };
  const std::vector<int> half = rank % 2 == 0 ? std::vector<int>{0, 2} : std::vector<int>{1, 3};
  const ddp::ProcessGroup made = s.session.new_group(half);
  expect(made.backend() == "nccl", "a group has its session's backend");
  expect_sum(made, half, "a new group's sum");
  ddp::ProcessGroup part = s.group.split(rank == 3 ? -1 : 0, -rank);
  expect(static_cast<bool>(part) == (rank != 3), "a rank without a color is in no part");
  if (rank != 3) {
    expect(part.rank() == 2 - rank, "a part is ordered by key");
    expect_sum(part, {0, 1, 2}, "a part's sum");
    DeviceArray<std::int32_t> mine(s.gpu, {rank}, s.stream);
    DeviceArray<std::int32_t> all(s.gpu, 3);
    part.all_gather(s.buffer(mine), s.buffer(all));
    expect(all.read(s.stream) == std::vector<std::int32_t>{2, 1, 0}, "NCCL has the same order");
    const ddp::ProcessGroup alone = part.split(rank);
    expect_sum(alone, {rank}, "a part of one");
    part.destroy();
  }
  expect_sum(s.group, {0, 1, 2, 3}, "the world is as it was");
  ddp::GroupOptions both;
  both.backend = "cpu:gloo,cuda:nccl";
  const ddp::ProcessGroup mixed = s.session.new_group(half, both);
  std::vector<std::int32_t> host = {1};
  mixed.all_reduce(host);
  expect(host[0] == 2, "a group may have another backend than its session");
  expect_sum(mixed, half, "a mixed group's sum");
}

void joins_and_leaves() { const Setting s; }

// The usual line of a program that runs anywhere.
void choice() {
  const bool has_nccl = ddp::is_nccl_available();
  const std::string backend = has_nccl ? "nccl" : "gloo", why = has_nccl ? "" : std::string(": ") + ddp_error_last();
  expect(has_nccl == ddp::is_backend_available("cpu:ddp,cuda:nccl"), "a GPU's backend beside another is there, too");
  expect(!ddp::is_backend_available("cuda:gloo"), "only NCCL is for GPUs");
  const ddp::Session session = ddp::init_process_group(backend);
  say(backend + why);
}

}  // namespace

Programs device_programs() {
  return {
      {"device collectives", collectives},
      {"device messages", messages},
      {"device follows", follows_the_callers_stream},
      {"device is followed", is_followed_by_the_stream},
      {"device streams", streams},
      {"device mixed", mixed},
      {"device refusals", refusals},
      {"device fails", fails},
      {"device groups", groups},
      {"device joins and leaves", joins_and_leaves},
      {"device choice", choice},
  };
}

}  // namespace ddp::test
