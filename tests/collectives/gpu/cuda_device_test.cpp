// SPDX-License-Identifier: BSD-3-Clause
// Copies and events on a GPU of the fake driver, whose streams are threads.
#include "collectives/gpu/cuda_device.hpp"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <future>
#include <numeric>
#include <thread>
#include <vector>

#include "tests/fixtures/gpu/fake_cuda.hpp"

using namespace ddp::collectives;

namespace {

std::vector<unsigned char> counted(std::size_t size) {
  std::vector<unsigned char> bytes(size);
  std::iota(bytes.begin(), bytes.end(), static_cast<unsigned char>(1));
  return bytes;
}

// The fake driver starts once per process, with as many devices as the other tests need.
CudaApi open_fake() {
  setenv("FAKE_CUDA_DEVICES", "4", 1);
  return open_cuda(FAKE_CUDA);
}

struct Gpu {
  Gpu() : api(open_fake()), device(api, 0) {}

  std::vector<unsigned char> read(const DeviceMemory& memory, std::size_t size, CudaStream* stream) const {
    std::vector<unsigned char> bytes(size);
    device.download(bytes.data(), memory.get(), size, stream);
    return bytes;
  }
  // Makes work issued to the stream wait for the future.
  void hold(CudaStream* stream, std::shared_future<void>& until) const {
    cuLaunchHostFunc(
        stream, [](void* future) { static_cast<std::shared_future<void>*>(future)->wait(); }, &until);
  }

  CudaApi api;
  CudaDevice device;
};

}  // namespace

TEST_CASE("CUDA device: bytes are copied to it, on it, cleared and copied back", "[collectives][unit]") {
  const Gpu gpu;
  const SideStream stream(gpu.device);
  const DeviceMemory one(gpu.device, 5);
  const DeviceMemory other(gpu.device, 5);
  gpu.device.upload(one.get(), counted(5).data(), 5, stream.get());
  gpu.device.clear(other.get(), 5, stream.get());
  CHECK(gpu.read(other, 5, stream.get()) == std::vector<unsigned char>(5, 0));
  gpu.device.copy(other.get(), one.get(), 3, stream.get());
  CHECK(gpu.read(other, 5, stream.get()) == std::vector<unsigned char>{1, 2, 3, 0, 0});
  gpu.device.clear(static_cast<char*>(one.get()) + 1, 2, nullptr);  // the legacy default stream is one too
  CHECK(gpu.read(one, 5, nullptr) == std::vector<unsigned char>{1, 0, 0, 4, 5});
}

TEST_CASE("CUDA device: copying nothing calls no function of the driver", "[collectives][unit]") {
  const Gpu gpu;
  gpu.device.upload(nullptr, nullptr, 0, nullptr);
  gpu.device.copy(nullptr, nullptr, 0, nullptr);
  gpu.device.clear(nullptr, 0, nullptr);
  gpu.device.download(nullptr, nullptr, 0, nullptr);
}

TEST_CASE("CUDA device: a copy waits for its stream, and the host does not wait", "[collectives][unit]") {
  const Gpu gpu;
  const SideStream held(gpu.device);
  const SideStream free(gpu.device);
  const DeviceMemory from(gpu.device, 4);
  const DeviceMemory to(gpu.device, 4);
  gpu.device.upload(from.get(), counted(4).data(), 4, free.get());
  gpu.device.clear(to.get(), 4, free.get());
  CHECK(gpu.read(to, 4, free.get()) == std::vector<unsigned char>(4, 0));
  std::promise<void> go;
  std::shared_future<void> until = go.get_future().share();
  gpu.hold(held.get(), until);
  gpu.device.copy(to.get(), from.get(), 4, held.get());
  CHECK(gpu.read(to, 4, free.get()) == std::vector<unsigned char>(4, 0));
  go.set_value();
  CHECK(gpu.read(to, 4, held.get()) == counted(4));
}

TEST_CASE("CUDA device: an event blocks a stream until the recorded work has run", "[collectives][unit]") {
  const Gpu gpu;
  const SideStream held(gpu.device);
  const SideStream later(gpu.device);
  const DeviceMemory memory(gpu.device, 4);
  gpu.device.clear(memory.get(), 4, held.get());
  std::promise<void> go;
  std::shared_future<void> until = go.get_future().share();
  DeviceEvent written(gpu.device);
  written.block(later.get());  // never recorded: waits for nothing
  gpu.hold(held.get(), until);
  const std::vector<unsigned char> ones(4, 1);
  const DeviceMemory source(gpu.device, 4);
  gpu.device.upload(source.get(), ones.data(), 4, later.get());
  gpu.device.copy(memory.get(), source.get(), 4, held.get());
  written.record(held.get());
  written.block(later.get());
  const DeviceMemory result(gpu.device, 4);
  gpu.device.copy(result.get(), memory.get(), 4, later.get());
  go.set_value();
  CHECK(gpu.read(result, 4, later.get()) == ones);
}

TEST_CASE("CUDA device: a copy to pinned memory is in the order of the stream, and the host goes on",
          "[collectives][unit]") {
  const Gpu gpu;
  const SideStream stream(gpu.device);
  const DeviceMemory memory(gpu.device, 5);
  const PinnedMemory copy(gpu.device, 5);
  DeviceEvent done(gpu.device);
  CHECK(done.is_reached());  // it marks nothing
  gpu.device.upload(memory.get(), counted(5).data(), 5, stream.get());
  std::promise<void> released;
  std::shared_future<void> until = released.get_future().share();
  gpu.hold(stream.get(), until);
  gpu.device.clear(memory.get(), 2, stream.get());
  gpu.device.start_download(copy.get(), memory.get(), 5, stream.get());
  done.record(stream.get());
  CHECK_FALSE(done.is_reached());
  released.set_value();
  gpu.device.synchronize(stream.get());
  CHECK(done.is_reached());
  CHECK(std::vector<char>(copy.get(), copy.get() + 5) == std::vector<char>{0, 0, 3, 4, 5});
}

TEST_CASE("CUDA device: waits of the host are refused while a graph is captured, and questions do not end it",
          "[collectives][unit]") {
  const Gpu gpu;
  const SideStream stream(gpu.device);
  const SideStream other(gpu.device);
  const DeviceMemory memory(gpu.device, 5);
  DeviceEvent event(gpu.device);
  event.record(other.get());
  std::vector<unsigned char> bytes(5);
  const auto end = [&] {
    void* graph = nullptr;
    const bool well = cuStreamEndCapture(stream.get(), &graph) == 0;
    if (well) cuGraphDestroy(graph);
    return well;
  };
  const CurrentDevice current(gpu.device);
  CHECK(gpu.device.capture_of(stream.get()) == 0);
  REQUIRE(cuStreamBeginCapture_v2(stream.get(), 0) == 0);
  const std::uint64_t first = gpu.device.capture_of(stream.get());
  CHECK(first != 0);
  CHECK(gpu.device.capture_of(other.get()) == 0);
  const char* const kWhy = "not while a CUDA graph is captured";
  using Catch::Matchers::EndsWith;
  CHECK_THROWS_WITH(gpu.device.synchronize(stream.get()), EndsWith(kWhy));
  CHECK_THROWS_WITH(gpu.device.upload(memory.get(), bytes.data(), 5, stream.get()), EndsWith(kWhy));
  CHECK_THROWS_WITH(gpu.device.download(bytes.data(), memory.get(), 5, stream.get()), EndsWith(kWhy));
  event.is_reached();
  std::thread([&] { event.is_reached(); }).join();
  CHECK(end());
  CHECK(gpu.device.capture_of(stream.get()) == 0);
  // What the driver would not forgive.
  REQUIRE(cuStreamBeginCapture_v2(stream.get(), 0) == 0);
  CHECK(gpu.device.capture_of(stream.get()) != first);
  gpu.api.event_query(event.get());
  CHECK_FALSE(end());
  REQUIRE(cuStreamBeginCapture_v2(stream.get(), 0) == 0);
  event.record(stream.get());
  event.block(other.get());
  gpu.device.clear(memory.get(), 5, other.get());
  CHECK_FALSE(end());  // the other stream is not joined again
}
