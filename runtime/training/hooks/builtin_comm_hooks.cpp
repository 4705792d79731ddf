// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training/hooks/builtin_comm_hooks.hpp"

#include <algorithm>
#include <string>

#include "collectives/float_conversion.hpp"
#include "runtime/base/scale.hpp"
#include "runtime/collective/make_operation.hpp"

namespace ddp::runtime {
namespace {

using rendezvous::Error;
using rendezvous::ErrorCode;

constexpr std::size_t kPiece = 4096;  // floats converted at a time, few enough to stay in the cache

// Returns the bucket's entry. Buckets start in order, so a new bucket gets the last entry.
template <typename T>
T& entry(std::vector<T>& entries, const ddp_grad_bucket& bucket) {
  if (bucket.index >= entries.size()) entries.resize(bucket.index + 1);
  return entries[bucket.index];
}

bool is_wide(const ddp_grad_bucket& bucket) {
  return bucket.buffer.dtype == DDP_FLOAT32 || bucket.buffer.dtype == DDP_FLOAT64;
}

// Issues the average of buffer over the group's ranks; returns its sequence number.
std::uint64_t issue_average(ProcessGroup& group, const ddp_buffer& buffer) {
  return group.issue(make_all_reduce(buffer, {DDP_AVG, 1}));
}

}  // namespace

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

void average_parts(std::int32_t dtype, const std::uint16_t* parts, int ranks, std::uint16_t* average,
                   std::size_t count) {
  const auto share = static_cast<float>(averaging_factor(ranks, DDP_FLOAT32));
  float sums[kPiece];
  float floats[kPiece];
  for (std::size_t done = 0; done < count;) {
    const std::size_t n = std::min(kPiece, count - done);
    std::fill_n(sums, n, 0.0F);
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks); ++rank) {
      collectives::widen(dtype, parts + rank * count + done, floats, n);
      for (std::size_t i = 0; i < n; ++i) sums[i] += floats[i] * share;
    }
    collectives::narrow(dtype, sums, average + done, n);
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
  if (is_wide(bucket)) return start_compressed(compressed, bucket.buffer);
  compressed.stage = Stage::Plain;
  compressed.in_flight = issue_average(group_, bucket.buffer);
}

void CompressHook::start_compressed(Compressed& compressed, const ddp_buffer& gradients) {
  const auto ranks = static_cast<std::size_t>(group_.size());
  const std::size_t part = (gradients.count + ranks - 1) / ranks;
  compressed.stage = Stage::Averaging;
  compressed.elements.resize(part * ranks);
  compressed.received.resize(part * ranks);
  compressed.average.resize(part);
  compress(gradients.dtype, gradients.data, dtype_, compressed.elements.data(), gradients.count);
  std::fill(compressed.elements.begin() + static_cast<std::ptrdiff_t>(gradients.count), compressed.elements.end(), 0);
  compressed.in_flight = group_.issue(
      make_on(DDP_ALL_TO_ALL, buffer_of(compressed.elements), buffer_of(compressed.received), group_.place()));
}

bool CompressHook::advance(const ddp_grad_bucket& bucket) {
  Compressed& compressed = buckets_[bucket.index];
  group_.wait(compressed.in_flight);
  switch (compressed.stage) {
    case Stage::Plain:
      return false;
    case Stage::Averaging:
      average_parts(dtype_, compressed.received.data(), group_.size(), compressed.average.data(),
                    compressed.average.size());
      compressed.in_flight =
          group_.issue(make_all_gather(buffer_of(compressed.average), buffer_of(compressed.elements), group_.place()));
      compressed.stage = Stage::Gathering;
      return true;
    case Stage::Gathering:
      break;
  }
  decompress(dtype_, compressed.elements.data(), bucket.buffer.dtype, bucket.buffer.data, bucket.buffer.count);
  return false;
}

ddp_buffer CompressHook::buffer_of(std::vector<std::uint16_t>& elements) const {
  return {elements.data(), elements.size(), dtype_, {DDP_CPU, 0}};
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
