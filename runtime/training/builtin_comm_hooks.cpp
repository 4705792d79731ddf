// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training/builtin_comm_hooks.hpp"

#include <algorithm>
#include <string>

#include "collectives/float_conversion.hpp"

namespace ddp::runtime {
namespace {

using rendezvous::Error;
using rendezvous::ErrorCode;

constexpr ProcessGroup::Milliseconds kGroupsOwnTimeout{0};
constexpr std::size_t kPiece = 4096;  // doubles that become floats at a time: they stay in the cache

// A bucket's own entry; buckets start in order, so a new one comes last.
template <typename T>
T& entry(std::vector<T>& entries, const ddp_grad_bucket& bucket) {
  if (bucket.index >= entries.size()) entries.resize(bucket.index + 1);
  return entries[bucket.index];
}

bool is_wide(const ddp_grad_bucket& bucket) {
  return bucket.buffer.dtype == DDP_FLOAT32 || bucket.buffer.dtype == DDP_FLOAT64;
}

}  // namespace

std::uint64_t issue_average(ProcessGroup& group, const ddp_buffer& buffer) {
  return group.issue(make_all_reduce(buffer, {DDP_AVG, 1}), kGroupsOwnTimeout);
}

void compress(std::int32_t from, const void* wide, std::int32_t to, std::uint16_t* narrow, std::size_t count) {
  if (from == DDP_FLOAT32) return collectives::narrow(to, static_cast<const float*>(wide), narrow, count);
  const double* const doubles = static_cast<const double*>(wide);
  float floats[kPiece];
  for (std::size_t done = 0; done < count;) {
    const std::size_t n = std::min(kPiece, count - done);
    for (std::size_t i = 0; i < n; ++i) floats[i] = static_cast<float>(doubles[done + i]);
    collectives::narrow(to, floats, narrow + done, n);
    done += n;
  }
}

void decompress(std::int32_t from, const std::uint16_t* narrow, std::int32_t to, void* wide, std::size_t count) {
  if (to == DDP_FLOAT32) return collectives::widen(from, narrow, static_cast<float*>(wide), count);
  double* const doubles = static_cast<double*>(wide);
  float floats[kPiece];
  for (std::size_t done = 0; done < count;) {
    const std::size_t n = std::min(kPiece, count - done);
    collectives::widen(from, narrow + done, floats, n);
    std::copy_n(floats, n, doubles + done);
    done += n;
  }
}

void AllReduceHook::start(const ddp_grad_bucket& bucket) {
  entry(in_flight_, bucket) = issue_average(group_, bucket.buffer);
}

bool AllReduceHook::advance(const ddp_grad_bucket& bucket) {
  group_.wait(in_flight_[bucket.index]);
  return false;
}

void CompressHook::start(const ddp_grad_bucket& bucket) {
  Compressed& compressed = entry(buckets_, bucket);
  if (!is_wide(bucket)) {
    compressed.in_flight = issue_average(group_, bucket.buffer);
    return;
  }
  compressed.elements.resize(bucket.buffer.count);
  compress(bucket.buffer.dtype, bucket.buffer.data, dtype_, compressed.elements.data(), bucket.buffer.count);
  compressed.in_flight = issue_average(group_, {compressed.elements.data(), bucket.buffer.count, dtype_, {DDP_CPU, 0}});
}

bool CompressHook::advance(const ddp_grad_bucket& bucket) {
  const Compressed& compressed = buckets_[bucket.index];
  group_.wait(compressed.in_flight);
  if (is_wide(bucket)) {
    decompress(dtype_, compressed.elements.data(), bucket.buffer.dtype, bucket.buffer.data, bucket.buffer.count);
  }
  return false;
}

std::unique_ptr<CommHook> make_builtin_comm_hook(ProcessGroup& group, std::int32_t kind) {
  switch (kind) {
    case DDP_ALLREDUCE_HOOK:
      return std::make_unique<AllReduceHook>(group);
    case DDP_FP16_COMPRESS_HOOK:
      return std::make_unique<CompressHook>(group, DDP_FLOAT16);
    case DDP_BF16_COMPRESS_HOOK:
      return std::make_unique<CompressHook>(group, DDP_BFLOAT16);
    default:
      throw Error(ErrorCode::InvalidArgument, "there is no built-in communication hook " + std::to_string(kind));
  }
}

}  // namespace ddp::runtime
