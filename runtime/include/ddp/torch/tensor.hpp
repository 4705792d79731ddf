// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Tensors of libtorch's as libddp's buffers, and a group's collectives on them.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#if __has_include(<c10/cuda/CUDAStream.h>) && __has_include(<cuda_runtime_api.h>)
#include <c10/cuda/CUDAStream.h>
#define DDP_TORCH_HAS_CUDA_HEADERS
#endif

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ddp/buffer.hpp"
#include "ddp/cuda.hpp"
#include "ddp/error.hpp"
#include "ddp/process_group.hpp"
#include "ddp/session.hpp"

namespace ddp::torch {

/// The DType of a tensor's elements. A bool is a byte, which all but sums take well. Throws Error with
/// Status::InvalidArgument for a type that libddp has none for.
inline DType dtype_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return DType::Float32;
    case at::kDouble:
      return DType::Float64;
    case at::kHalf:
      return DType::Float16;
    case at::kBFloat16:
      return DType::BFloat16;
    case at::kChar:
      return DType::Int8;
    case at::kShort:
      return DType::Int16;
    case at::kInt:
      return DType::Int32;
    case at::kLong:
      return DType::Int64;
    case at::kByte:
    case at::kBool:
      return DType::UInt8;
    default:
      throw Error(Status::InvalidArgument,
                  std::string("a tensor of ") + c10::toString(type) + ": libddp has no such element type");
  }
}

/// Where a tensor is. Throws Error with Status::InvalidArgument if that is neither the CPU nor a CUDA device.
inline Device device_of(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return {};
  if (tensor.is_cuda()) return {DeviceKind::Cuda, tensor.device().index()};
  throw Error(Status::InvalidArgument,
              "a tensor on " + tensor.device().str() + ": libddp works on the memory of the CPU and of CUDA devices");
}

/// A tensor's memory, for any function of libddp: `world.all_reduce_async(ddp::torch::buffer(tensor))`. The tensor must
/// stay until the operation has ended. Throws Error with Status::InvalidArgument if it has no memory of its own that is
/// in order: if it is undefined, sparse or not contiguous.
inline Buffer buffer(const at::Tensor& tensor) {
  if (!tensor.defined()) throw Error(Status::InvalidArgument, "an undefined tensor is no buffer");
  if (tensor.layout() != at::kStrided) {
    throw Error(Status::InvalidArgument, "a sparse tensor is no buffer: give its to_dense()");
  }
  if (!tensor.is_contiguous()) {
    throw Error(Status::InvalidArgument, "a tensor that is not contiguous is no buffer: give its contiguous() copy");
  }
  return {tensor.data_ptr(), static_cast<std::size_t>(tensor.numel()), dtype_of(tensor.scalar_type()),
          torch::device_of(tensor)};  // at::device_of is another
}

namespace detail {

// The cudaStream_t behind a stream of a CUDA device. Younger libtorches tell it without a CUDA header.
template <typename Stream>
auto handle_of(const Stream& stream, int /*preferred*/) -> decltype(stream.native_handle()) {
  return stream.native_handle();
}
// Older ones with their own header, which wants CUDA's. Templates, so that nothing is linked that is not used.
template <typename Stream>
void* handle_of(const Stream& stream, long /*otherwise*/) {
#ifdef DDP_TORCH_HAS_CUDA_HEADERS
  return c10::cuda::CUDAStream(stream).stream();
#else
  if (stream.id() == 0) return nullptr;  // the default stream
  throw Error(Status::InvalidArgument,
              "this libtorch does not tell which CUDA stream is current: build with CUDA's headers, or use the default "
              "stream");
#endif
}

}  // namespace detail

/// While it lives, libddp's current stream of a tensor's device is libtorch's. Does nothing for the CPU's.
class CurrentStream {
 public:
  /// The stream that is libtorch's current one now, on this thread.
  explicit CurrentStream(const at::Tensor& tensor) {
    if (!tensor.is_cuda()) return;
    const c10::Stream stream = c10::impl::VirtualGuardImpl(at::kCUDA).getStream(tensor.device());
    guard_.emplace(detail::handle_of(stream, 0), tensor.device().index());
  }

 private:
  std::optional<StreamGuard> guard_;
};

/// @name Collectives on tensors
/// As the functions of ProcessGroup with these names, on the default group unless one is given; tensors on a GPU follow
/// libtorch's current stream. Throw as buffer() and those functions do.
/// @{

/// In place: every rank's tensor becomes the reduction over all ranks.
inline void all_reduce(const at::Tensor& tensor, const Reduction& reduction = {},
                       const ProcessGroup& group = default_group()) {
  const CurrentStream stream(tensor);
  group.all_reduce(buffer(tensor), reduction);
}
/// In place on root; what is in the others' tensors afterwards is unspecified.
inline void reduce(const at::Tensor& tensor, const Reduction& reduction = {}, int root = 0,
                   const ProcessGroup& group = default_group()) {
  const CurrentStream stream(tensor);
  group.reduce(buffer(tensor), reduction, root);
}
/// Every rank's tensor becomes root's.
inline void broadcast(const at::Tensor& tensor, int root = 0, const ProcessGroup& group = default_group()) {
  const CurrentStream stream(tensor);
  group.broadcast(buffer(tensor), root);
}
/// What all_gather() makes room for: a tensor with a first dimension of size(), rank r's input at index r.
inline at::Tensor all_gather(const at::Tensor& input, const ProcessGroup& group = default_group()) {
  std::vector<std::int64_t> sizes = {group.size()};
  sizes.insert(sizes.end(), input.sizes().begin(), input.sizes().end());
  at::Tensor output = at::empty(sizes, input.options());
  const CurrentStream stream(input);
  group.all_gather(buffer(input), buffer(output));
  return output;
}
/// Rank r's output becomes the reduction of the inputs' r-th parts; input has size() times as many elements.
inline void reduce_scatter(const at::Tensor& input, const at::Tensor& output, const Reduction& reduction = {},
                           const ProcessGroup& group = default_group()) {
  const CurrentStream stream(input);
  group.reduce_scatter(buffer(input), buffer(output), reduction);
}
/// An equal part of the input to every rank, and one from each.
inline void all_to_all(const at::Tensor& input, const at::Tensor& output, const ProcessGroup& group = default_group()) {
  const CurrentStream stream(input);
  group.all_to_all(buffer(input), buffer(output));
}

/// @}

}  // namespace ddp::torch
