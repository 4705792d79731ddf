// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Tensors of libtorch as buffers of libddp, on the stream that is libtorch's current one.
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

#include "ddp/buffer.hpp"
#include "ddp/cuda.hpp"
#include "ddp/error.hpp"

namespace ddp::libtorch {

/// Returns the DType of a tensor's elements. A bool is a byte: reduce such tensors with the functions of
/// collectives.hpp, which know that a sum of them is "or". Throws Error with Status::InvalidArgument for a type that
/// libddp does not have.
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

/// Returns libtorch's type for a DType. libtorch does not compute with unsigned types of more than 8
/// bits: for these it throws Error with Status::InvalidArgument.
inline at::ScalarType scalar_type_of(DType dtype) {
  for (const at::ScalarType type :
       {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kChar, at::kShort, at::kInt, at::kLong, at::kByte}) {
    if (dtype_of(type) == dtype) return type;
  }
  throw Error(Status::InvalidArgument, "libtorch has no tensors of unsigned elements of more than 8 bits");
}

/// Returns the device of a tensor. Throws Error with Status::InvalidArgument if it is neither the
/// CPU nor a CUDA device.
inline Device device_of(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return {};
  if (tensor.is_cuda()) return {DeviceKind::Cuda, tensor.device().index()};
  throw Error(Status::InvalidArgument,
              "a tensor on " + tensor.device().str() + ": libddp works on the memory of the CPU and of CUDA devices");
}

/// Returns a tensor's memory as a buffer for any function of libddp:
/// `world.all_reduce_async(ddp::libtorch::buffer(tensor))`. The tensor must stay until the operation
/// has ended. Throws Error with Status::InvalidArgument if the tensor is undefined, sparse or not
/// contiguous.
inline Buffer buffer(const at::Tensor& tensor) {
  if (!tensor.defined()) throw Error(Status::InvalidArgument, "an undefined tensor is no buffer");
  if (tensor.layout() != at::kStrided) {
    throw Error(Status::InvalidArgument, "a sparse tensor is no buffer: give its to_dense()");
  }
  if (!tensor.is_contiguous() || tensor.is_neg()) {
    throw Error(
        Status::InvalidArgument,
        "a tensor that is not contiguous, or not yet negated, is no buffer: give its resolve_neg().contiguous()");
  }
  return {tensor.data_ptr(), static_cast<std::size_t>(tensor.numel()), dtype_of(tensor.scalar_type()),
          libtorch::device_of(tensor)};  // at::device_of is another function
}

namespace detail {

// Returns the cudaStream_t of a stream of a CUDA device. Newer libtorches give it without a CUDA header.
template <typename Stream>
auto handle_of(const Stream& stream, int /*preferred*/) -> decltype(stream.native_handle()) {
  return stream.native_handle();
}
// Older ones need their own header, which needs CUDA's. Both are templates, so that only what is used is linked.
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

/// Makes libtorch's current stream libddp's current one for a tensor's device, while it lives. Does
/// nothing for a tensor on the CPU.
class CurrentStream {
 public:
  /// Sets the stream that is libtorch's current one now, on this thread.
  explicit CurrentStream(const at::Tensor& tensor) {
    if (!tensor.is_cuda()) return;
    const c10::Stream stream = c10::impl::VirtualGuardImpl(at::kCUDA).getStream(tensor.device());
    guard_.emplace(detail::handle_of(stream, 0), tensor.device().index());
  }

 private:
  std::optional<StreamGuard> guard_;
};

}  // namespace ddp::libtorch
