// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/gpu/cuda_device.hpp"

#include "rendezvous/base/error.hpp"

namespace ddp::collectives {

using rendezvous::Error;
using rendezvous::ErrorCode;

namespace {

void check(const CudaApi& api, CudaResult result, const char* what) {
  if (result != CudaResult::Success) throw Error(ErrorCode::System, cuda_failure(api, result, what));
}

std::uint64_t address(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }

}  // namespace

std::string cuda_failure(const CudaApi& api, CudaResult result, const char* what) {
  if (result == CudaResult::Success) return "";
  const char* text = nullptr;
  const bool known = api.get_error_string(result, &text) == CudaResult::Success && text != nullptr;
  return std::string(what) + ": " + (known ? text : "CUDA error " + std::to_string(static_cast<int>(result)));
}

int CudaDevice::count(const CudaApi& api) {
  check(api, api.init(0), "starting the CUDA driver");
  int count = 0;
  check(api, api.device_get_count(&count), "counting CUDA devices");
  return count;
}

CudaDevice::CudaDevice(const CudaApi& api, int index) : api_(api), index_(index) {
  const int there = count(api);
  if (index < 0 || index >= there) {
    throw Error(ErrorCode::InvalidArgument, "there is no CUDA device " + std::to_string(index) +
                                                ": this process may use " + std::to_string(there) +
                                                " (see CUDA_VISIBLE_DEVICES)");
  }
  const std::string device = "CUDA device " + std::to_string(index);
  check(api, api.device_get(&handle_, index), device.c_str());
  check(api, api.primary_context_retain(&context_, handle_), (device + ": its context").c_str());
}

CudaDevice::~CudaDevice() { api_.primary_context_release(handle_); }

std::uint64_t CudaDevice::capture_of(CudaStream* stream) const {
  if (api_.stream_get_capture_info == nullptr) return 0;
  const CurrentDevice current(*this);
  CudaCapture state = CudaCapture::None;
  std::uint64_t id = 0;
  const CudaResult result = api_.stream_get_capture_info(stream, &state, &id, nullptr, nullptr, nullptr);
  return result == CudaResult::Success && state != CudaCapture::None ? id : 0;
}

void CudaDevice::refuse_in_capture(CudaStream* stream, const std::string& what) const {
  if (capture_of(stream) == 0) return;
  throw Error(ErrorCode::InvalidArgument, what + ": not while a CUDA graph is captured");
}

void CudaDevice::copy(void* to, const void* from, std::size_t size, CudaStream* stream) const {
  if (size == 0) return;
  const CurrentDevice current(*this);
  check(api_, api_.copy_on_device(address(to), address(from), size, stream), "copying device memory");
}

void CudaDevice::clear(void* at, std::size_t size, CudaStream* stream) const {
  if (size == 0) return;
  const CurrentDevice current(*this);
  check(api_, api_.set_bytes(address(at), 0, size, stream), "clearing device memory");
}

void CudaDevice::upload(void* to, const void* from, std::size_t size, CudaStream* stream) const {
  if (size == 0) return;
  refuse_in_capture(stream, "copying to device memory, for which the host waits");
  const CurrentDevice current(*this);
  check(api_, api_.copy_to_device(address(to), from, size, stream), "copying to device memory");
  check(api_, api_.stream_synchronize(stream), "waiting for a copy to device memory");
}

void CudaDevice::download(void* to, const void* from, std::size_t size, CudaStream* stream) const {
  if (size == 0) return;
  refuse_in_capture(stream, "copying from device memory, for which the host waits");
  const CurrentDevice current(*this);
  check(api_, api_.copy_to_host(to, address(from), size, stream), "copying from device memory");
  check(api_, api_.stream_synchronize(stream), "waiting for a copy from device memory");
}

void CudaDevice::start_download(void* to, const void* from, std::size_t size, CudaStream* stream) const {
  if (size == 0) return;
  const CurrentDevice current(*this);
  check(api_, api_.copy_to_host(to, address(from), size, stream), "copying from device memory");
}

void CudaDevice::synchronize(CudaStream* stream) const {
  refuse_in_capture(stream, "waiting for a stream");
  const CurrentDevice current(*this);
  check(api_, api_.stream_synchronize(stream), "waiting for a stream");
}

SideStream::SideStream(const CudaDevice& device) : device_(device) {
  const CurrentDevice current(device_);
  int least = 0;
  int greatest = 0;
  const CudaApi& api = device_.api();
  check(api, api.context_get_stream_priority_range(&least, &greatest), "asking for stream priorities");
  check(api, api.stream_create_with_priority(&stream_, kCudaNonBlockingStream, greatest), "creating a stream");
}

SideStream::~SideStream() {
  const CurrentDevice current(device_);
  device_.api().stream_destroy(stream_);
}

bool SideStream::is_idle() const {
  const CurrentDevice current(device_);
  const BesideCaptures beside(device_.api());
  return device_.api().stream_query(stream_) != CudaResult::NotReady;
}

DeviceEvent::DeviceEvent(const CudaDevice& device) : device_(device) {
  const CurrentDevice current(device_);
  check(device_.api(), device_.api().event_create(&event_, kCudaEventWithoutTime), "creating an event");
}

DeviceEvent::~DeviceEvent() {
  const CurrentDevice current(device_);
  device_.api().event_destroy(event_);
}

void DeviceEvent::record(CudaStream* stream) {
  const CurrentDevice current(device_);
  check(device_.api(), device_.api().event_record(event_, stream), "recording an event");
}

void DeviceEvent::block(CudaStream* stream) const {
  const CurrentDevice current(device_);
  check(device_.api(), device_.api().stream_wait_event(stream, event_, 0), "making a stream wait");
}

bool DeviceEvent::is_reached() const {
  const BesideCaptures beside(device_.api());
  const CudaResult result = device_.api().event_query(event_);
  if (result == CudaResult::NotReady) return false;
  check(device_.api(), result, "asking for the end of work on the GPU");
  return true;
}

PinnedMemory::PinnedMemory(const CudaDevice& device, std::size_t size) : device_(device) {
  const CurrentDevice current(device_);
  const std::string what = "pinning " + std::to_string(size) + " bytes of host memory";
  check(device_.api(), device_.api().host_memory_allocate(&memory_, size, kCudaPortableMemory), what.c_str());
}

PinnedMemory::~PinnedMemory() {
  const CurrentDevice current(device_);
  device_.api().host_memory_free(memory_);
}

DeviceMemory::DeviceMemory(const CudaDevice& device, std::size_t size) : device_(device) {
  const CurrentDevice current(device_);
  check(device_.api(), device_.api().memory_allocate(&address_, size), "allocating device memory");
}

DeviceMemory::~DeviceMemory() {
  const CurrentDevice current(device_);
  device_.api().memory_free(address_);
}

}  // namespace ddp::collectives
