// SPDX-License-Identifier: BSD-3-Clause
// The setting in which scenarios on GPU memory begin. With TEST_ONE_GPU all ranks share the first device, which NCCL
// allows if it believes that each rank is on a host of its own.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "ddp/ddp.hpp"
#include "tests/runtime/device/test_gpu.hpp"
#include "tests/support/environment.hpp"

namespace ddp::test {

using testing::variable;

inline ddp::InitOptions options(const std::string& backend) {
  ddp::InitOptions result;
  result.backend = backend;
  result.timeout = std::chrono::seconds(240);  // a busy machine runs a thousand steps behind
  if (variable("TEST_ONE_GPU").empty()) return result;
  result.device = "cuda:0";
  const std::string host = "rank" + variable("RANK");
  setenv("NCCL_HOSTID", host.c_str(), 1);
  return result;
}

// A session, its GPU, and a stream that is this thread's current stream.
struct Setting {
  explicit Setting(const std::string& backend = "nccl") : Setting(options(backend)) {}
  explicit Setting(const ddp::InitOptions& given)
      : session(ddp::init_process_group(given)),
        group(session.world()),
        gpu(given.device.empty() ? session.local_rank() : 0),
        stream(gpu.make_stream()),
        guard(stream, gpu.index()) {}

  template <typename T>
  ddp::Buffer buffer(const DeviceArray<T>& array) const {
    return {array.data(), array.count(), ddp::dtype_of<T>(), {ddp::DeviceKind::Cuda, gpu.index()}};
  }
  ddp::Buffer buffer(const DeviceArray<std::uint16_t>& array, ddp::DType dtype) const {
    return {array.data(), array.count(), dtype, {ddp::DeviceKind::Cuda, gpu.index()}};
  }

  ddp::Session session;
  ddp::ProcessGroup group;
  Gpu gpu;
  void* stream;
  ddp::StreamGuard guard;
};

}  // namespace ddp::test
