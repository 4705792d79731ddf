// SPDX-License-Identifier: BSD-3-Clause
// A GPU as the user of libddp has it: streams and memory by the driver's own functions, from the library that libddp
// takes too. Whatever fails ends the process.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ddp::test {

class Gpu {
 public:
  explicit Gpu(int index);  // its context is this thread's from now on
  ~Gpu();                   // takes its streams with it
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  int index() const { return index_; }
  void* make_stream();
  void synchronize(void* stream);
  void* allocate(std::size_t size);
  void free(void* address);
  // In the stream's order. download() returns when the bytes are there.
  void upload(void* to, const void* from, std::size_t size, void* stream);
  void copy(void* to, const void* from, std::size_t size, void* stream);
  void download(void* to, const void* from, std::size_t size, void* stream);
  // What comes on the stream waits until *released is true.
  void hold(void* stream, const std::atomic<bool>* released);
  // *reached becomes true when the stream has come so far.
  void mark(void* stream, std::atomic<bool>* reached);

 private:
  int index_;
  std::vector<void*> streams_;
};

// Elements in the memory of a GPU.
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
