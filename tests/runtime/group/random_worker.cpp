// SPDX-License-Identifier: BSD-3-Clause
// One rank of a job that calls random collectives in random groups: `random_worker SEED COUNT [BACKEND]`. All ranks
// draw the same calls from the seed, and every rank knows the contributions of all others. So it computes the expected
// result by itself, element by element in 64 bits. A wrong result is a line "wrong: ..." that names the seed and the
// call.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "ddp/ddp.hpp"
#include "tests/runtime/job/scenario.hpp"
#include "tests/support/environment.hpp"

namespace {

using ddp::DType;
using ddp::ReduceOp;
using ddp::test::say;

enum class Kind { AllReduce, Reduce, Broadcast, AllGather, Gather, Scatter, ReduceScatter, AllToAll, Uneven, Barrier };
constexpr int kKinds = 10;

struct Call {
  Kind kind;
  DType dtype;
  ReduceOp op;
  std::size_t count;
  int root;
  bool async;
  std::uint64_t values;  // seed of the elements
};

struct TypeFacts {
  const char* name;
  std::size_t size;
  int mantissa;  // bits of a floating-point type; 0 for an integer
  bool is_signed;
};
TypeFacts facts(DType dtype) {
  switch (dtype) {
    case DType::Float32:
      return {"float32", 4, 24, true};
    case DType::Float64:
      return {"float64", 8, 53, true};
    case DType::Float16:
      return {"float16", 2, 11, true};
    case DType::BFloat16:
      return {"bfloat16", 2, 8, true};
    case DType::Int8:
      return {"int8", 1, 0, true};
    case DType::Int16:
      return {"int16", 2, 0, true};
    case DType::Int32:
      return {"int32", 4, 0, true};
    case DType::Int64:
      return {"int64", 8, 0, true};
    case DType::UInt8:
      return {"uint8", 1, 0, false};
    case DType::UInt16:
      return {"uint16", 2, 0, false};
    case DType::UInt32:
      return {"uint32", 4, 0, false};
    case DType::UInt64:
      return {"uint64", 8, 0, false};
  }
  return {"?", 0, 0, false};
}

std::uint64_t mix(std::uint64_t x) {  // splitmix64's finaliser
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

// Returns the bits of element i of the contribution of `rank`: any integer, or a floating-point number of a few bits
// near 1, which every type can hold.
std::uint64_t raw(const Call& call, int rank, std::size_t i) {
  const std::uint64_t random = mix(call.values + mix(i * 64 + static_cast<std::uint64_t>(rank)));
  const TypeFacts type = facts(call.dtype);
  if (type.mantissa == 0) return type.size == 8 ? random : random & ((std::uint64_t{1} << type.size * 8) - 1);
  const double value = static_cast<double>(random % 255 + 1) / 64 * (random >> 63 != 0 ? 1 : -1);
  if (call.dtype == DType::Float64) {
    std::uint64_t bits;
    std::memcpy(&bits, &value, 8);
    return bits;
  }
  const auto narrower = static_cast<float>(value);
  std::uint32_t bits;
  std::memcpy(&bits, &narrower, 4);
  if (call.dtype == DType::Float32) return bits;
  if (call.dtype == DType::BFloat16) return bits >> 16;
  return (bits >> 16 & 0x8000U) | (((bits & 0x7fffffffU) - (112U << 23)) >> 13);
}

double to_double(DType dtype, std::uint64_t bits) {
  if (dtype == DType::Float64) {
    double value;
    std::memcpy(&value, &bits, 8);
    return value;
  }
  auto bits32 = static_cast<std::uint32_t>(bits);
  if (dtype == DType::BFloat16) bits32 <<= 16;
  if (dtype == DType::Float16) {
    const int exponent = static_cast<int>(bits >> 10 & 31);
    const auto mantissa = static_cast<double>(bits & 1023);
    const double magnitude = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(mantissa + 1024, exponent - 25);
    return (bits & 0x8000U) != 0 ? -magnitude : magnitude;
  }
  float value;
  std::memcpy(&value, &bits32, 4);
  return value;
}

// The memory of a call, which holds elements of any type.
class Elements {
 public:
  Elements(DType dtype, std::size_t count) : dtype_(dtype), bytes_(count * facts(dtype).size + 16, 0xa5) {}
  std::size_t count() const { return (bytes_.size() - 16) / facts(dtype_).size; }
  ddp::Buffer buffer() { return {bytes_.data(), count(), dtype_}; }
  std::uint64_t get(std::size_t i) const {
    std::uint64_t bits = 0;
    std::memcpy(&bits, bytes_.data() + i * facts(dtype_).size, facts(dtype_).size);
    return bits;
  }
  void set(std::size_t i, std::uint64_t bits) {
    std::memcpy(bytes_.data() + i * facts(dtype_).size, &bits, facts(dtype_).size);
  }
  bool is_intact_behind() const {
    return std::all_of(bytes_.end() - 16, bytes_.end(), [](unsigned char c) { return c == 0xa5; });
  }
  const unsigned char* data() const { return bytes_.data(); }
  std::size_t size() const { return bytes_.size(); }

 private:
  DType dtype_;
  std::vector<unsigned char> bytes_;
};

double factor_of(int rank) { return 0.25 * (rank + 1); }

class Rank {
 public:
  // `number` is the group's. Its calls are drawn from a generator of their own, since not all ranks see every group.
  Rank(ddp::ProcessGroup group, std::uint64_t seed, std::size_t number)
      : group_(group), seed_(seed), random_(mix(seed + number)) {}

  void call_one(int number) {
    number_ = number;
    call_ = draw();
    if (call_.kind == Kind::Barrier) return run([&] { group_.barrier(); }, [&] { return group_.barrier_async(); });
    if (call_.kind == Kind::AllToAll || call_.kind == Kind::Uneven) return all_to_all();
    const std::size_t parts = static_cast<std::size_t>(size());
    const bool in_place = call_.kind == Kind::AllReduce || call_.kind == Kind::Reduce || call_.kind == Kind::Broadcast;
    const bool has_large_input = call_.kind == Kind::Scatter || call_.kind == Kind::ReduceScatter;
    const bool has_large_output = call_.kind == Kind::AllGather || call_.kind == Kind::Gather;
    Elements input(call_.dtype, call_.count * (has_large_input ? parts : 1));
    Elements output(call_.dtype, in_place ? 0 : call_.count * (has_large_output ? parts : 1));
    for (std::size_t i = 0; i < input.count(); ++i) input.set(i, raw(call_, rank(), i));
    const Elements before = input;
    perform(input, output);
    check(in_place ? input : output);
    wrong_if(!in_place && std::memcmp(before.data(), input.data(), input.size()) != 0, "the input was changed");
    wrong_if(!input.is_intact_behind() || !output.is_intact_behind(), "memory behind a buffer was written");
    if (call_.kind == Kind::AllReduce) same_everywhere(input);
  }

  bool all_right() const { return all_right_; }

 private:
  int rank() const { return group_.rank(); }
  int size() const { return group_.size(); }

  std::uint64_t below(std::uint64_t n) { return random_() % n; }

  Call draw() {
    Call call = {};
    call.kind = static_cast<Kind>(below(kKinds));
    call.dtype = static_cast<DType>(below(12));
    constexpr std::size_t kCounts[] = {0, 1, 2, 3, 7, 64, 1000, 1023, 4099, 70'001};
    call.count = kCounts[below(10)];
    if (call.kind == Kind::AllReduce && below(20) == 0) call.count = 1'200'003;  // more than one piece in 16 bits
    call.root = static_cast<int>(below(static_cast<std::uint64_t>(size())));
    call.async = below(2) == 0;
    call.values = random_();
    const bool is_float = facts(call.dtype).mantissa > 0;
    constexpr ReduceOp kOfFloats[] = {ReduceOp::Sum, ReduceOp::Product, ReduceOp::Min,
                                      ReduceOp::Max, ReduceOp::Avg,     ReduceOp::PremulSum};
    constexpr ReduceOp kOfIntegers[] = {ReduceOp::Sum,    ReduceOp::Product, ReduceOp::Min,   ReduceOp::Max,
                                        ReduceOp::BitAnd, ReduceOp::BitOr,   ReduceOp::BitXor};
    call.op = is_float ? kOfFloats[below(6)] : kOfIntegers[below(7)];
    return call;
  }

  template <typename Blocking, typename Async>
  void run(Blocking blocking, Async async) {
    if (call_.async) {
      async().wait();
    } else {
      blocking();
    }
  }

  void perform(Elements& input, Elements& output) {
    const ddp::Buffer in = input.buffer(), out = output.buffer();
    const int root = call_.root;
    const ddp::Reduction how = {call_.op, factor_of(rank())};
    switch (call_.kind) {
      case Kind::AllReduce:
        return run([&] { group_.all_reduce(in, how); }, [&] { return group_.all_reduce_async(in, how); });
      case Kind::Reduce:
        return run([&] { group_.reduce(in, how, root); }, [&] { return group_.reduce_async(in, how, root); });
      case Kind::Broadcast:
        return run([&] { group_.broadcast(in, root); }, [&] { return group_.broadcast_async(in, root); });
      case Kind::AllGather:
        return run([&] { group_.all_gather(in, out); }, [&] { return group_.all_gather_async(in, out); });
      case Kind::Gather:
        return run([&] { group_.gather(in, out, root); }, [&] { return group_.gather_async(in, out, root); });
      case Kind::Scatter:
        return run([&] { group_.scatter(in, out, root); }, [&] { return group_.scatter_async(in, out, root); });
      case Kind::ReduceScatter:
        return run([&] { group_.reduce_scatter(in, out, how); },
                   [&] { return group_.reduce_scatter_async(in, out, how); });
      case Kind::AllToAll:
      case Kind::Uneven:
      case Kind::Barrier:
        break;
    }
  }

  void check(const Elements& result) {
    const auto me = static_cast<std::size_t>(rank());
    switch (call_.kind) {
      case Kind::AllReduce:
        return expect_reduction(result, 0);
      case Kind::Reduce:
        if (rank() == call_.root) expect_reduction(result, 0);
        return;
      case Kind::ReduceScatter:
        return expect_reduction(result, me * call_.count);
      case Kind::Broadcast:
        return expect_from(result, 0, call_.count, call_.root, 0);
      case Kind::Scatter:
        return expect_from(result, 0, call_.count, call_.root, me * call_.count);
      case Kind::Gather:
        if (rank() != call_.root) return;
        [[fallthrough]];
      case Kind::AllGather:
        for (int r = 0; r < size(); ++r) {
          expect_from(result, static_cast<std::size_t>(r) * call_.count, call_.count, r, 0);
        }
        return;
      case Kind::AllToAll:
      case Kind::Uneven:
      case Kind::Barrier:
        break;
    }
  }

  // Returns the size of the part from one rank to another in an uneven exchange.
  std::size_t part(int from, int to) const {
    if (call_.kind == Kind::AllToAll) return call_.count;
    return mix(call_.values + static_cast<std::uint64_t>(from * 64 + to)) % (call_.count / 4 + 2);
  }

  void all_to_all() {
    std::vector<std::size_t> in_counts, out_counts;
    std::size_t in_all = 0, out_all = 0;
    for (int r = 0; r < size(); ++r) {
      in_counts.push_back(part(rank(), r));
      out_counts.push_back(part(r, rank()));
      in_all += in_counts.back();
      out_all += out_counts.back();
    }
    Elements input(call_.dtype, in_all), output(call_.dtype, out_all);
    for (std::size_t i = 0; i < in_all; ++i) input.set(i, raw(call_, rank(), i));
    const ddp::Buffer in = input.buffer(), out = output.buffer();
    if (call_.kind == Kind::AllToAll) {
      run([&] { group_.all_to_all(in, out); }, [&] { return group_.all_to_all_async(in, out); });
    } else {
      run([&] { group_.all_to_all(in, in_counts, out, out_counts); },
          [&] { return group_.all_to_all_async(in, in_counts, out, out_counts); });
    }
    std::size_t at = 0;
    for (int r = 0; r < size(); ++r) {
      std::size_t offset = 0;
      for (int before = 0; before < rank(); ++before) offset += part(r, before);
      expect_from(output, at, part(r, rank()), r, offset);
      at += part(r, rank());
    }
    wrong_if(!output.is_intact_behind(), "memory behind the output was written");
  }

  // Checks that result[at...] is the contribution of `from` from its element `offset` on.
  void expect_from(const Elements& result, std::size_t at, std::size_t count, int from, std::size_t offset) {
    for (std::size_t i = 0; i < count; ++i) {
      if (result.get(at + i) == raw(call_, from, offset + i)) continue;
      return wrong_if(true,
                      "element " + std::to_string(at + i) + " is not what rank " + std::to_string(from) + " gave");
    }
  }

  void expect_reduction(const Elements& result, std::size_t offset) {
    for (std::size_t i = 0; i < result.count(); ++i) {
      const std::string why = facts(call_.dtype).mantissa > 0 ? floating_point_error(result.get(i), offset + i)
                                                              : integer_error(result.get(i), offset + i);
      if (!why.empty()) return wrong_if(true, "element " + std::to_string(i) + why);
    }
  }

  std::string integer_error(std::uint64_t got, std::size_t i) const {
    const TypeFacts type = facts(call_.dtype);
    const auto shift = 64 - type.size * 8;
    const auto is_less = [&](std::uint64_t a, std::uint64_t b) {
      return type.is_signed ? static_cast<std::int64_t>(a << shift) < static_cast<std::int64_t>(b << shift) : a < b;
    };
    std::uint64_t expected = raw(call_, 0, i);
    for (int r = 1; r < size(); ++r) {
      const std::uint64_t x = raw(call_, r, i);
      if (call_.op == ReduceOp::Sum) expected += x;
      if (call_.op == ReduceOp::Product) expected *= x;
      if (call_.op == ReduceOp::Min && is_less(x, expected)) expected = x;
      if (call_.op == ReduceOp::Max && is_less(expected, x)) expected = x;
      if (call_.op == ReduceOp::BitAnd) expected &= x;
      if (call_.op == ReduceOp::BitOr) expected |= x;
      if (call_.op == ReduceOp::BitXor) expected ^= x;
    }
    expected = expected << shift >> shift;
    return got == expected ? "" : " is " + std::to_string(got) + ", not " + std::to_string(expected);
  }

  // The allowed error: one rounding per operation in the type that is computed in, and one to the result's type.
  std::string floating_point_error(std::uint64_t got, std::size_t i) const {
    double expected = 0, magnitude = 0;
    for (int r = 0; r < size(); ++r) {
      double x = to_double(call_.dtype, raw(call_, r, i));
      if (call_.op == ReduceOp::Avg) x /= size();
      if (call_.op == ReduceOp::PremulSum) x *= factor_of(r);
      if (call_.op == ReduceOp::Product) {
        expected = r == 0 ? x : expected * x;
        magnitude = std::abs(expected);
      } else if (call_.op == ReduceOp::Min || call_.op == ReduceOp::Max) {
        expected = r == 0 ? x : call_.op == ReduceOp::Min ? std::min(expected, x) : std::max(expected, x);
      } else {
        expected += x;
        magnitude += std::abs(x);
      }
    }
    const int computed_in = std::max(24, facts(call_.dtype).mantissa);
    const double smallest = call_.dtype == DType::Float16 ? std::ldexp(1.0, -25) : 0;  // half of the smallest subnormal
    const double allowed = magnitude * (size() + 1) * std::ldexp(1.0, -computed_in) + smallest +
                           (call_.dtype == DType::Float16 || call_.dtype == DType::BFloat16
                                ? std::abs(expected) * std::ldexp(1.0, -facts(call_.dtype).mantissa)
                                : 0);
    const double value = to_double(call_.dtype, got);
    const bool is_infinite = call_.dtype == DType::Float16 && std::abs(expected) >= 65519;
    if (is_infinite || std::abs(value - expected) <= allowed) return "";
    return " is " + std::to_string(value) + ", not " + std::to_string(expected);
  }

  void same_everywhere(Elements& mine) {
    const std::size_t bytes = mine.count() * facts(call_.dtype).size;
    std::vector<std::uint8_t> all(bytes * static_cast<std::size_t>(size()));
    group_.all_gather({static_cast<void*>(mine.buffer().data), bytes, DType::UInt8}, all);
    for (int r = 0; r < size(); ++r) {
      wrong_if(bytes > 0 && std::memcmp(all.data() + bytes * static_cast<std::size_t>(r), mine.data(), bytes) != 0,
               "the result differs on rank " + std::to_string(r));
    }
  }

  void wrong_if(bool wrong, const std::string& what) {
    if (!wrong) return;
    all_right_ = false;
    constexpr const char* kNames[] = {"all_reduce", "reduce",         "broadcast",  "all_gather",        "gather",
                                      "scatter",    "reduce_scatter", "all_to_all", "uneven all_to_all", "barrier"};
    say("wrong: seed " + std::to_string(seed_) + ", call " + std::to_string(number_) + " in " + group_.name() + ": " +
        kNames[static_cast<int>(call_.kind)] + " of " + std::to_string(call_.count) + " " + facts(call_.dtype).name +
        ", operation " + std::to_string(static_cast<int>(call_.op)) + ", root " + std::to_string(call_.root) +
        (call_.async ? ", asynchronous" : "") + ": " + what);
  }

  ddp::ProcessGroup group_;
  std::uint64_t seed_;
  std::mt19937_64 random_;
  Call call_ = {};
  int number_ = 0;
  bool all_right_ = true;
};

// Makes the groups: the world, every other rank, the upper half, and the two parts of a split in descending order of
// ranks. Some ranks are in all of them, some in few. A group without this rank is empty.
std::vector<ddp::ProcessGroup> make_groups(ddp::Session& session) {
  std::vector<int> even, upper;
  for (int rank = 0; rank < session.world_size(); ++rank) {
    if (rank % 2 == 0) even.push_back(rank);
    if (rank >= session.world_size() / 2) upper.push_back(rank);
  }
  std::vector<ddp::ProcessGroup> groups = {session.world(), session.new_group(even), session.new_group(upper)};
  const ddp::ProcessGroup part = session.world().split(session.rank() % 3 == 0 ? 0 : 1, -session.rank());
  for (const bool first : {true, false})
    groups.push_back((session.rank() % 3 == 0) == first ? part : ddp::ProcessGroup());
  return groups;
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t seed = argc > 1 ? std::stoull(argv[1]) : 1;
  const int count = argc > 2 ? std::stoi(argv[2]) : 100;
  ddp::InitOptions options;
  options.backend = ddp::testing::variable("TEST_BACKEND", options.backend);
  if (argc > 3) options.backend = argv[3];
  try {
    ddp::Session session = ddp::init_process_group(options);
    const std::vector<ddp::ProcessGroup> groups = make_groups(session);
    std::vector<Rank> ranks;
    for (const ddp::ProcessGroup& group : groups) ranks.emplace_back(group, seed, ranks.size());
    std::mt19937_64 random(seed);
    for (int i = 0; i < count; ++i) {
      const std::size_t chosen = random() % (2 * groups.size());  // half of the calls are in the world
      const std::size_t group = chosen < groups.size() ? chosen : 0;
      if (groups[group]) ranks[group].call_one(i);
    }
    return std::all_of(ranks.begin(), ranks.end(), [](const Rank& rank) { return rank.all_right(); }) ? 0 : 1;
  } catch (const ddp::Error& error) {
    say("error: seed " + std::to_string(seed) + ": " + error.what());
    return 1;
  }
}
