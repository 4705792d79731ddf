// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/collective/host_collectives.hpp"

#include <algorithm>
#include <cstring>

#include "collectives/backend_loader.hpp"
#include "collectives/element_types.hpp"
#include "collectives/float_conversion.hpp"
#include "collectives/host/backend.hpp"
#include "runtime/base/buffer.hpp"
#include "runtime/base/scale.hpp"
#include "runtime/collective/object_collectives.hpp"

namespace ddp::runtime {

namespace {

using collectives::is_16_bit_float;
using collectives::narrow;
using collectives::ReduceOp;
using collectives::widen;

// How many 16-bit elements are widened at a time: 4 MiB of float32, which stays in the cache.
constexpr std::size_t kPiece = 1 << 20;

const void* at(const void* data, std::size_t index, std::size_t element_size) {
  return static_cast<const unsigned char*>(data) + index * element_size;
}
void* at(void* data, std::size_t index, std::size_t element_size) {
  return static_cast<unsigned char*>(data) + index * element_size;
}

void scale_floats(float* values, std::size_t count, double factor) {
  if (factor != 1) scale(values, values, count, DDP_FLOAT32, factor);
}

}  // namespace

// What every call to the backend takes besides its data.
struct HostCollectives::Call {
  std::uint32_t tag;
  std::int64_t timeout_ms;
  ddp_backend_error* error;
};

ddp_backend_status HostCollectives::perform(const Operation& o, std::uint32_t tag, std::int64_t timeout,
                                            ddp_backend_error* error) {
  const Call call = {tag, timeout, error};
  if (o.reduces()) return o.count > 0 ? reduce(o, call) : DDP_BACKEND_OK;
  switch (o.kind) {
    case OperationKind::Broadcast:
      return backend_.broadcast(group_, o.data, o.count, o.dtype, o.root, tag, timeout, error);
    case OperationKind::AllGather:
      if (!o.output_counts.empty()) {
        return backend_.all_gatherv(group_, o.input, o.data, o.output_counts.data(), o.dtype, tag, timeout, error);
      }
      return backend_.all_gather(group_, o.input, o.data, o.count, o.dtype, tag, timeout, error);
    case OperationKind::Gather:
      return backend_.gather(group_, o.input, o.data, o.count, o.dtype, o.root, tag, timeout, error);
    case OperationKind::Scatter:
      return backend_.scatter(group_, o.input, o.data, o.count, o.dtype, o.root, tag, timeout, error);
    case OperationKind::AllToAll: {
      const bool is_even = o.input_counts.empty();
      if (is_even) even_counts_.assign(o.parts, o.count);
      const std::size_t* input_counts = is_even ? even_counts_.data() : o.input_counts.data();
      const std::size_t* output_counts = is_even ? even_counts_.data() : o.output_counts.data();
      return backend_.all_to_all(group_, o.input, input_counts, o.data, output_counts, o.dtype, tag, timeout, error);
    }
    case OperationKind::Barrier:
      return backend_.barrier(group_, tag, timeout, error);
    case OperationKind::BroadcastObject:
    case OperationKind::AllGatherObject:
    case OperationKind::GatherObject:
    case OperationKind::ScatterObject:
      return perform_object(
          o, place_, [&](const Operation& part) { return perform(part, tag, timeout, error); }, error);
    case OperationKind::Allocate:
      return backend_.allocate(group_, o.count, tag, timeout, static_cast<void**>(o.data), error);
    case OperationKind::AllReduce:
    case OperationKind::Reduce:
    case OperationKind::ReduceScatter:
      break;  // handled above
    case OperationKind::MonitoredBarrier:
    case OperationKind::Send:
    case OperationKind::Receive:
      break;  // ProcessGroup carries these out itself
  }
  return DDP_BACKEND_UNSUPPORTED;
}

void HostCollectives::perform_alone(const Operation& o) {
  if (is_on_objects(o.kind)) return perform_object_alone(o);
  const bool is_float32_or_64 = o.dtype == DDP_FLOAT32 || o.dtype == DDP_FLOAT64;
  if (o.input != nullptr && o.bytes() > 0) std::memmove(o.data, o.input, o.bytes());
  if (!o.reduces() || o.reduce_op != ReduceOp::WeightedSum) return;
  if (is_float32_or_64) return scale(o.data, o.data, o.count, o.dtype, o.factor);
  std::vector<float> wide(o.count);
  widen(o.dtype, o.data, wide.data(), o.count);
  scale_floats(wide.data(), o.count, o.factor);
  narrow(o.dtype, wide.data(), o.data, o.count);
}

ddp_backend_status HostCollectives::reduce(const Operation& operation, const Call& call) {
  // Each rank has a factor of its own, and all must take the same way: the operation decides, not the factor.
  const bool scales = operation.reduce_op == ReduceOp::Average || operation.reduce_op == ReduceOp::WeightedSum;
  const bool backend_widens = !scales && (collectives::features_of(backend_) & DDP_BACKEND_REDUCES_16_BIT) != 0;
  // Averages and weighted sums become sums of contributions times a factor.
  double factor = 1;
  if (operation.reduce_op == ReduceOp::Average) factor = averaging_factor(place_.size, operation.dtype);
  if (operation.reduce_op == ReduceOp::WeightedSum) factor = operation.factor;
  Operation sum = operation;
  if (scales) sum.reduce_op = ReduceOp::Sum;
  const bool scatters = operation.kind == OperationKind::ReduceScatter;
  if (is_16_bit_float(sum.dtype) && !backend_widens) {
    return scatters ? reduce_scatter_16_bit(sum, factor, call) : reduce_16_bit(sum, factor, call);
  }
  if (factor != 1 && scatters) {  // the input belongs to the caller and stays as it is
    const std::size_t count = sum.count * static_cast<std::size_t>(place_.size);
    scaled_.resize(count * dtype_size(sum.dtype));
    scale(scaled_.data(), sum.input, count, sum.dtype, factor);
    sum.input = scaled_.data();
  } else if (factor != 1) {
    scale(sum.data, sum.data, sum.count, sum.dtype, factor);
  }
  return call_reduction(sum, call);
}

ddp_backend_status HostCollectives::call_reduction(const Operation& o, const Call& call) {
  const std::int64_t timeout = call.timeout_ms;
  const auto op = static_cast<ddp_backend_reduce_op>(o.reduce_op);
  if (o.kind == OperationKind::Reduce) {
    return backend_.reduce(group_, o.data, o.count, o.dtype, op, o.root, call.tag, timeout, call.error);
  }
  if (o.kind == OperationKind::ReduceScatter) {
    return backend_.reduce_scatter(group_, o.input, o.data, o.count, o.dtype, op, call.tag, timeout, call.error);
  }
  return backend_.all_reduce(group_, o.data, o.count, o.dtype, op, call.tag, timeout, call.error);
}

ddp_backend_status HostCollectives::reduce_16_bit(const Operation& operation, double factor, const Call& call) {
  wide_.resize(std::min(operation.count, kPiece));
  const bool keeps_result = operation.kind != OperationKind::Reduce || operation.root == place_.rank;
  for (std::size_t done = 0; done < operation.count;) {
    Operation piece = operation;
    piece.count = std::min(kPiece, operation.count - done);
    piece.dtype = DDP_FLOAT32;
    piece.data = wide_.data();
    void* const here = at(operation.data, done, dtype_size(operation.dtype));
    widen(operation.dtype, here, wide_.data(), piece.count);
    scale_floats(wide_.data(), piece.count, factor);
    if (const auto status = call_reduction(piece, call); status != DDP_BACKEND_OK) return status;
    if (keeps_result) narrow(operation.dtype, wide_.data(), here, piece.count);
    done += piece.count;
  }
  return DDP_BACKEND_OK;
}

// Reduces in pieces; each holds the same elements of every rank's part.
ddp_backend_status HostCollectives::reduce_scatter_16_bit(const Operation& operation, double factor, const Call& call) {
  const auto size = static_cast<std::size_t>(place_.size);
  const std::size_t most = std::max<std::size_t>(1, std::min(operation.count, kPiece / size));
  wide_.resize(most * (size + 1));
  float* const result = wide_.data() + most * size;
  for (std::size_t done = 0; done < operation.count;) {
    Operation piece = operation;
    piece.count = std::min(most, operation.count - done);
    piece.dtype = DDP_FLOAT32;
    piece.input = wide_.data();
    piece.data = result;
    for (std::size_t rank = 0; rank < size; ++rank) {
      const void* part = at(operation.input, rank * operation.count + done, dtype_size(operation.dtype));
      widen(operation.dtype, part, wide_.data() + rank * piece.count, piece.count);
    }
    scale_floats(wide_.data(), size * piece.count, factor);
    if (const auto status = call_reduction(piece, call); status != DDP_BACKEND_OK) return status;
    narrow(operation.dtype, result, at(operation.data, done, dtype_size(operation.dtype)), piece.count);
    done += piece.count;
  }
  return DDP_BACKEND_OK;
}

}  // namespace ddp::runtime
