// SPDX-License-Identifier: BSD-3-Clause
// A GPU as a user of libddp has it: streams and memory from the driver's own functions, in the library that libddp uses
// too. A failure ends the process.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ddp::test {

class Gpu {
 public:
  explicit Gpu(int index);  // makes its context this thread's current one
  ~Gpu();                   // destroys its streams and graphs
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  int index() const { return index_; }
  void* make_stream();
  void synchronize(void* stream);
  void* allocate(std::size_t size);
  void free(void* address);
  // Run in the stream's order. download() returns when the bytes have arrived.
  void upload(void* to, const void* from, std::size_t size, void* stream);
  void copy(void* to, const void* from, std::size_t size, void* stream);
  void download(void* to, const void* from, std::size_t size, void* stream);
  // Makes work issued to the stream wait until *released is true.
  void hold(void* stream, const std::atomic<bool>* released);
  // Sets *reached to true when the stream gets here.
  void mark(void* stream, std::atomic<bool>* reached);
  // Captures what is put on the stream in between in a CUDA graph. end_capture() returns what launch() takes, or null
  // if something ended the capture.
  void begin_capture(void* stream);
  void* end_capture(void* stream);
  void launch(void* graph, void* stream);

 private:
  int index_;
  std::vector<void*> streams_;
  std::vector<void*> graphs_;
};

// An array in GPU memory.
template <typename T>
class DeviceArray {
 public:
  DeviceArray(Gpu& gpu, std::size_t count) : gpu_(gpu), count_(count) {
    if (count > 0) data_ = gpu.allocate(count * sizeof(T));
  }
  DeviceArray(Gpu& gpu, const std::vector<T>& values, void* stream) : DeviceArray(gpu, values.size()) {
    write(values, stream);
  }
  ~DeviceArray() {
    if (data_ != nullptr) gpu_.free(data_);
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  void* data() const { return data_; }
  std::size_t count() const { return count_; }
  void write(const std::vector<T>& values, void* stream) {
    if (count_ > 0) gpu_.upload(data_, values.data(), count_ * sizeof(T), stream);
  }
  std::vector<T> read(void* stream) const {
    std::vector<T> values(count_);
    if (count_ > 0) gpu_.download(values.data(), data_, count_ * sizeof(T), stream);
    return values;
  }

 private:
  Gpu& gpu_;
  std::size_t count_;
  void* data_ = nullptr;
};

}  // namespace ddp::test
