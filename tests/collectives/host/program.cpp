// SPDX-License-Identifier: BSD-3-Clause
#include "tests/collectives/host/program.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "collectives/backend_error.hpp"
#include "collectives/element_types.hpp"
#include "collectives/float16.hpp"
#include "collectives/float_conversion.hpp"
#include "collectives/host/backend.hpp"
#include "collectives/reduce_kernels.hpp"
#include "collectives/reduce_op.hpp"
#include "tests/collectives/host/job.hpp"
#include "tests/support/environment.hpp"

namespace ddp::collectives::test {
namespace {

using Bytes = std::vector<unsigned char>;

enum class Kind {
  AllReduce,
  Reduce,
  Broadcast,
  AllGather,
  AllGatherV,
  Gather,
  Scatter,
  ReduceScatter,
  AllToAll,
  Barrier,
  Messages
};
constexpr int kKinds = 11;

struct Call {
  Kind kind;
  std::size_t group;
  std::int32_t dtype;
  std::int32_t op;
  std::size_t count;
  std::uint32_t root;
  std::uint64_t values;
};

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(mix(seed + 1)) {}
  std::uint64_t below(std::uint64_t n) { return random_() % n; }
  std::uint64_t any() { return random_(); }

 private:
  std::mt19937_64 random_;
};

// Returns elements of rank `rank`: any integers, or floating-point numbers whose sums round. In minima and maxima some
// are NaN.
Bytes contribution(const Call& call, std::uint32_t rank, std::size_t count, std::uint64_t salt = 0) {
  const std::size_t size = element_size(call.dtype);
  Bytes bytes(count * size);
  std::uint64_t state = mix(call.values + rank * 1000003ULL + salt * 7919);
  for (std::size_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    const std::uint64_t bits = state >> 24;
    const bool may_be_nan =
        call.op == static_cast<std::int32_t>(ReduceOp::Min) || call.op == static_cast<std::int32_t>(ReduceOp::Max);
    const bool is_nan = may_be_nan && bits % 16 == 0;
    const double value = is_nan ? std::numeric_limits<double>::quiet_NaN()
                                : static_cast<double>(static_cast<std::int32_t>(bits)) * 0x1p-28;
    const auto narrower = static_cast<float>(value);
    unsigned char* const at = bytes.data() + i * size;
    if (is_16_bit_float(call.dtype)) {
      const std::uint16_t half = call.dtype == 10 ? float_to_float16(narrower) : float_to_bfloat16(narrower);
      std::memcpy(at, &half, 2);
    } else if (call.dtype == 0) {
      std::memcpy(at, &narrower, 4);
    } else if (call.dtype == 1) {
      std::memcpy(at, &value, 8);
    } else {
      std::memcpy(at, &bits, size);
    }
  }
  return bytes;
}

// Returns the reduction of all ranks' contributions, in the order of ranks.
Bytes reduced(const Call& call, std::uint32_t ranks, std::size_t count) {
  const bool wide = is_16_bit_float(call.dtype);
  const std::int32_t dtype = wide ? static_cast<std::int32_t>(ElementType::Float32) : call.dtype;
  const ReduceFunction reduce = reduce_function(dtype, call.op);
  Bytes sum;
  for (std::uint32_t r = 0; r < ranks; ++r) {
    Bytes next = contribution(call, r, count);
    if (wide) {
      Bytes floats(count * sizeof(float));
      widen(call.dtype, next.data(), reinterpret_cast<float*>(floats.data()), count);
      next = std::move(floats);
    }
    if (r == 0) {
      sum = std::move(next);
    } else {
      reduce(sum.data(), sum.data(), next.data(), count);
    }
  }
  if (!wide) return sum;
  Bytes halves(count * 2);
  narrow(call.dtype, reinterpret_cast<const float*>(sum.data()), halves.data(), count);
  return halves;
}

std::size_t uneven(const Call& call, std::uint32_t from, std::uint32_t to) {
  return mix(call.values + from * 131 + to) % (call.count + 2);
}

Call draw_call(Draw& draw, const std::vector<GroupPlan>& plans) {
  Call call = {};
  call.group = draw.below(plans.size());
  call.kind = static_cast<Kind>(draw.below(kKinds));
  call.dtype = static_cast<std::int32_t>(draw.below(12));
  constexpr std::int32_t kOps[] = {0, 2, 3, 4, 5, 6, 7};  // those of ddp_reduce_op that backends get
  call.op = kOps[draw.below(is_floating_point(call.dtype) ? 4 : 7)];
  constexpr std::size_t kCounts[] = {0, 1, 2, 5, 31, 64, 257, 1000, 4099, 20'011};
  call.count = kCounts[draw.below(10)];
  if (draw.below(60) == 0) call.count = 300'007;
  call.root = static_cast<std::uint32_t>(draw.below(plans[call.group].members.size()));
  call.values = draw.any();
  return call;
}

// One call of one rank: its arguments, and what is expected of them.
class Runner {
 public:
  Runner(const Call& call, ddp_backend_group* group, std::uint32_t rank, std::uint32_t size)
      : call_(call), group_(group), rank_(rank), size_(size), element_(element_size(call.dtype)) {}

  std::string run() {
    if (call_.values / 8 % 4 == 0 && call_.count <= 20'011) {
      room_ = size_ * (call_.count + 2) * element_;  // enough for all kinds
      void* memory = nullptr;
      const auto status = table_.allocate(group_, 2 * room_, 0, kTimeoutMs, &memory, &error_);
      if (status != DDP_BACKEND_OK) return verdict(status, {}, {});
      shared_ = static_cast<unsigned char*>(memory);
    }
    const std::string wrong = run_kind();
    if (shared_ != nullptr) table_.release(group_, shared_);
    return wrong;
  }

 private:
  std::string run_kind() {
    switch (call_.kind) {
      case Kind::AllReduce:
      case Kind::Reduce:
        return reduce();
      case Kind::Broadcast:
        return broadcast();
      case Kind::AllGather:
      case Kind::AllGatherV:
        return all_gather();
      case Kind::Gather:
        return gather();
      case Kind::Scatter:
        return scatter();
      case Kind::ReduceScatter:
        return reduce_scatter();
      case Kind::AllToAll:
        return all_to_all();
      case Kind::Messages:
        return messages();
      case Kind::Barrier:
        break;
    }
    return verdict(table_.barrier(group_, 0, kTimeoutMs, &error_), {}, {});
  }

  // Returns memory with these bytes for a call: in a shared buffer, if this call has one, until verdict(). In some
  // calls one rank passes memory of its own.
  unsigned char* lent(Bytes& bytes) {
    if (shared_ == nullptr || bytes.empty()) return bytes.data();
    if (call_.values / 32 % 4 == 0 && rank_ == call_.root) return bytes.data();
    unsigned char* const place = shared_ + lent_.size() * room_;
    std::copy(bytes.begin(), bytes.end(), place);
    lent_.emplace_back(&bytes, place);
    return place;
  }
  std::string verdict(ddp_backend_status status, const Bytes& got, const Bytes& expected) {
    for (const auto& [bytes, place] : std::exchange(lent_, {})) std::copy_n(place, bytes->size(), bytes->begin());
    if (status != DDP_BACKEND_OK) return "status " + std::to_string(status) + ": " + error_.text;
    if (got == expected) return "";
    const auto [at, wanted] = std::mismatch(got.begin(), got.end(), expected.begin(), expected.end());
    return "byte " + std::to_string(at - got.begin()) + " of " + std::to_string(expected.size()) + " is wrong";
  }
  Bytes part(const Bytes& all, std::size_t index) const {
    const auto bytes = static_cast<std::ptrdiff_t>(call_.count * element_);
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(index) * bytes;
    return {begin, begin + bytes};
  }
  Bytes joined(const std::vector<std::size_t>& counts) const {
    Bytes all;
    for (std::uint32_t r = 0; r < size_; ++r) {
      const Bytes one = contribution(call_, r, counts[r]);
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }

  std::string reduce() {
    Bytes data = contribution(call_, rank_, call_.count);
    if (call_.kind == Kind::AllReduce && call_.values % 2 == 0) return reduce_in_shared_buffers(data);
    if (call_.kind == Kind::AllReduce) {
      const auto status =
          table_.all_reduce(group_, lent(data), call_.count, call_.dtype, call_.op, 0, kTimeoutMs, &error_);
      return verdict(status, data, reduced(call_, size_, call_.count));
    }
    const auto status = table_.reduce(group_, lent(data), call_.count, call_.dtype, call_.op,
                                      static_cast<std::int32_t>(call_.root), 0, kTimeoutMs, &error_);
    if (rank_ != call_.root) return verdict(status, {}, {});  // this rank's data is scratch
    return verdict(status, data, reduced(call_, size_, call_.count));
  }
  // In memory of the group's: the same place on all ranks, or another on one of them, which may also be its own memory.
  std::string reduce_in_shared_buffers(Bytes& own) {
    const std::size_t odd = call_.values / 2 % 3, room = kLine;
    const bool is_odd = rank_ == call_.root;
    void* memory = nullptr;
    const auto made = table_.allocate(group_, own.size() + room, 0, kTimeoutMs, &memory, &error_);
    if (made != DDP_BACKEND_OK) return verdict(made, {}, {});
    auto* data = static_cast<unsigned char*>(memory) + (is_odd && odd == 1 ? room : 0);
    if (is_odd && odd == 2) data = own.data();
    std::copy(own.begin(), own.end(), data);
    const auto status = table_.all_reduce(group_, data, call_.count, call_.dtype, call_.op, 0, kTimeoutMs, &error_);
    const Bytes result(data, data + own.size());
    table_.release(group_, memory);
    return verdict(status, result, reduced(call_, size_, call_.count));
  }
  std::string broadcast() {
    Bytes data = contribution(call_, rank_, call_.count);
    const auto status = table_.broadcast(group_, lent(data), call_.count, call_.dtype,
                                         static_cast<std::int32_t>(call_.root), 0, kTimeoutMs, &error_);
    return verdict(status, data, contribution(call_, call_.root, call_.count));
  }
  std::string all_gather() {
    std::vector<std::size_t> counts(size_, call_.count);
    const bool even = call_.kind == Kind::AllGather;
    for (std::uint32_t r = 0; r < size_ && !even; ++r) counts[r] = uneven(call_, r, 0);
    Bytes input = contribution(call_, rank_, counts[rank_]);
    Bytes output(std::accumulate(counts.begin(), counts.end(), std::size_t{0}) * element_);
    const auto status =
        even
            ? table_.all_gather(group_, lent(input), lent(output), call_.count, call_.dtype, 0, kTimeoutMs, &error_)
            : table_.all_gatherv(group_, lent(input), lent(output), counts.data(), call_.dtype, 0, kTimeoutMs, &error_);
    return verdict(status, output, joined(counts));
  }
  std::string gather() {
    Bytes input = contribution(call_, rank_, call_.count);
    Bytes output(rank_ == call_.root ? size_ * input.size() : 0);
    const auto status = table_.gather(group_, lent(input), lent(output), call_.count, call_.dtype,
                                      static_cast<std::int32_t>(call_.root), 0, kTimeoutMs, &error_);
    return verdict(status, output, rank_ == call_.root ? joined(std::vector(size_, call_.count)) : Bytes());
  }
  std::string scatter() {
    Bytes all = contribution(call_, call_.root, size_ * call_.count);
    Bytes output(call_.count * element_);
    const auto status = table_.scatter(group_, rank_ == call_.root ? lent(all) : nullptr, lent(output), call_.count,
                                       call_.dtype, static_cast<std::int32_t>(call_.root), 0, kTimeoutMs, &error_);
    return verdict(status, output, part(all, rank_));
  }
  std::string reduce_scatter() {
    Bytes input = contribution(call_, rank_, size_ * call_.count);
    Bytes output(call_.count * element_);
    const auto status = table_.reduce_scatter(group_, lent(input), lent(output), call_.count, call_.dtype, call_.op, 0,
                                              kTimeoutMs, &error_);
    return verdict(status, output, part(reduced(call_, size_, size_ * call_.count), rank_));
  }
  std::string all_to_all() {
    std::vector<std::size_t> sent, received;
    Bytes input, expected;
    for (std::uint32_t r = 0; r < size_; ++r) {
      sent.push_back(uneven(call_, rank_, r));
      received.push_back(uneven(call_, r, rank_));
      const Bytes to = contribution(call_, rank_, sent.back(), r),
                  from = contribution(call_, r, received.back(), rank_);
      input.insert(input.end(), to.begin(), to.end());
      expected.insert(expected.end(), from.begin(), from.end());
    }
    Bytes output(expected.size());
    const auto status = table_.all_to_all(group_, lent(input), sent.data(), lent(output), received.data(), call_.dtype,
                                          0, kTimeoutMs, &error_);
    return verdict(status, output, expected);
  }

  // Every rank sends two messages to every other one, whose receives are posted the other way round, and waits for all
  // in an order of its own.
  std::string messages() {
    struct Part {
      Bytes memory, expected;
      ddp_backend_message* message = nullptr;
    };
    std::vector<Part> parts;
    parts.reserve(4 * size_);
    ddp_backend_status status = DDP_BACKEND_OK;
    const auto content = [&](std::uint32_t from, std::uint32_t to, std::uint64_t tag) {
      return contribution(call_, from, uneven(call_, from, to + 100 * static_cast<std::uint32_t>(tag)), to + tag * 64);
    };
    for (std::uint32_t r = 0; r < size_; ++r) {
      if (r == rank_) continue;
      const auto peer = static_cast<std::int32_t>(r);
      for (const std::uint64_t tag : {0U, 1U}) {
        Part& to = parts.emplace_back();
        to.memory = to.expected = content(rank_, r, tag);
        status = std::max(status, table_.send(group_, to.memory.data(), to.memory.size(), peer, call_.count + tag,
                                              &to.message, &error_));
      }
      for (const std::uint64_t tag : {1U, 0U}) {
        Part& from = parts.emplace_back();
        from.expected = content(r, rank_, tag);
        from.memory.resize(from.expected.size());
        status = std::max(status, table_.receive(group_, from.memory.data(), from.memory.size(), peer,
                                                 call_.count + tag, &from.message, &error_));
      }
    }
    std::rotate(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(parts.empty() ? 0 : rank_ % parts.size()),
                parts.end());
    std::string wrong = verdict(status, {}, {});
    for (Part& p : parts) {
      std::int32_t peer = -1;
      if (wrong.empty()) wrong = verdict(table_.message_wait(group_, p.message, kTimeoutMs, &peer, &error_), {}, {});
      if (wrong.empty()) wrong = verdict(DDP_BACKEND_OK, p.memory, p.expected);
      if (p.message != nullptr) table_.message_free(p.message);
    }
    return wrong;
  }

  const Call& call_;
  ddp_backend_group* group_;
  const std::uint32_t rank_, size_;
  const std::size_t element_;
  const ddp_backend_table& table_ = host_backend();
  BackendError error_;
  unsigned char* shared_ = nullptr;  // room for input and output
  std::size_t room_ = 0;             // bytes of each
  std::vector<std::pair<Bytes*, unsigned char*>> lent_;
};

// Runs one rank's part of a call, if it is in the group. Returns "" or what was wrong.
std::string run_call(const Call& call, const std::vector<GroupPlan>& plans, const Rank& rank) {
  ddp_backend_group* const group = rank.groups[call.group];
  if (group == nullptr) return "";
  const auto& members = plans[call.group].members;
  const auto place = std::find(members.begin(), members.end(), rank.number) - members.begin();
  Runner runner(call, group, static_cast<std::uint32_t>(place), static_cast<std::uint32_t>(members.size()));
  const std::string wrong = runner.run();
  if (wrong.empty()) return "";
  return "rank " + std::to_string(rank.number) + " (kind " + std::to_string(static_cast<int>(call.kind)) + ", type " +
         std::to_string(call.dtype) + ", reduction " + std::to_string(call.op) + ", count " +
         std::to_string(call.count) + ", group " + std::to_string(call.group) + "): " + wrong;
}

}  // namespace

std::vector<GroupPlan> draw_groups(std::uint64_t seed, std::uint32_t ranks) {
  Draw draw(seed);
  constexpr std::uint64_t kRings[] = {4096, 32 << 10, 256 << 10, 2 << 20};
  std::vector<GroupPlan> plans(3);
  for (GroupPlan& plan : plans) {
    const bool all = &plan == plans.data();
    for (std::uint32_t r = 0; r < ranks; ++r) {
      if (all || draw.below(3) != 0) plan.members.push_back(r);
    }
    if (plan.members.size() < 2) plan.members = {0, ranks - 1};
    plan.ring_bytes = kRings[draw.below(4)];
  }
  return plans;
}

std::uint64_t first_seed() {
  return testing::number_from<std::uint64_t>("DDPRUN_COLLECTIVE_SEED", std::random_device()());
}
std::uint64_t programs_each() { return testing::number_from<std::uint64_t>("DDPRUN_COLLECTIVE_PROGRAMS", 150) / 3 + 1; }

std::string run_program(const std::vector<GroupPlan>& plans, const Rank& rank, std::uint64_t seed) {
  Draw draw(seed);
  const std::uint64_t calls = 1 + draw.below(20);
  for (std::uint64_t i = 0; i < calls; ++i) {
    if (std::string wrong = run_call(draw_call(draw, plans), plans, rank); !wrong.empty())
      return "seed " + std::to_string(seed) + ", call " + std::to_string(i) + ": " + wrong;
  }
  return "";
}

std::string run_each_kind(const std::vector<GroupPlan>& plans, const Rank& rank, std::uint64_t seed,
                          std::size_t count) {
  Draw draw(seed);
  for (int kind = 0; kind < kKinds; ++kind) {
    Call call = draw_call(draw, plans);
    call.kind = static_cast<Kind>(kind);
    call.count = count;
    if (std::string wrong = run_call(call, plans, rank); !wrong.empty())
      return "seed " + std::to_string(seed) + ": " + wrong;
  }
  return "";
}

}  // namespace ddp::collectives::test
