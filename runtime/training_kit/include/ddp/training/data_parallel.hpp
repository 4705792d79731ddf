// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// DataParallel: one process works on a batch with several replicas of a model, each on a thread of its own, for
/// several devices or several cores. Header-only; no process group is needed.
///
///     ddp::DataParallel parallel(4);
///     parallel.replicate(models);                        // replica 0's values to the others
///     const auto chunks = parallel.chunks(rows);
///     parallel.parallel_apply(chunks, [&](std::size_t replica, ddp::Chunk chunk) {
///       forward_backward(models[replica], chunk.first, chunk.rows);
///     });
///     parallel.reduce_gradients(models, chunks.size());  // onto replica 0
///
/// Between processes, also of one machine, DistributedDataParallel is the faster way, as in PyTorch.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ddp/buffer.hpp"
#include "ddp/ddp.h"
#include "ddp/error.hpp"
#include "ddp/parameter.hpp"

namespace ddp {

/// Consecutive rows of a batch.
struct Chunk {
  std::size_t first = 0;  ///< index of the first row
  std::size_t rows = 0;   ///< number of rows
};

/// Splits rows as evenly as torch.chunk does: all chunks but the last have the same number, rounded
/// up. So there may be fewer chunks than asked for (5 rows in 4 chunks: 2, 2, 1). Without rows
/// there are as many as asked for, all empty.
inline std::vector<Chunk> chunk(std::size_t rows, std::size_t chunks) {
  if (chunks == 0) throw Error(Status::InvalidArgument, "chunk: rows cannot be split into no chunks");
  if (rows == 0) return std::vector<Chunk>(chunks);
  const std::size_t each = rows / chunks + (rows % chunks != 0 ? 1 : 0);
  std::vector<Chunk> result;
  for (std::size_t first = 0; first < rows; first += each) result.push_back({first, std::min(each, rows - first)});
  return result;
}

/// Functions that move elements from one memory to another. Empty ones handle the host's memory
/// only. For devices give both, such as cudaMemcpyPeer and a kernel; they return when the data is
/// there.
struct MemoryOperations {
  /// Copies `from` into `to`, of the same count and type.
  std::function<void(const Buffer& to, const Buffer& from)> copy;
  /// Adds `from` to `to`, of the same count and type, element by element.
  std::function<void(const Buffer& to, const Buffer& from)> add;
};

/// Exception of a replica, as DataParallel::parallel_apply() throws it; std::rethrow_if_nested()
/// gives the original. status() is the status of the original if it is an Error, else
/// Status::System.
class ReplicaError : public Error {
 public:
  /// Makes the error; `what` is the text of the replica's exception.
  ReplicaError(Status status, std::size_t replica, const std::string& what)
      : Error(status, "DataParallel: replica " + std::to_string(replica) + ": " + what), replica_(replica) {}
  /// Returns the replica that failed; the first if several did.
  std::size_t replica() const noexcept { return replica_; }

 private:
  std::size_t replica_;
};

namespace detail {

// A thread for each replica, asleep between two calls of run().
class ReplicaThreads {
 public:
  explicit ReplicaThreads(std::size_t count) : errors_(count) {
    threads_.reserve(count);
    try {
      for (std::size_t i = 0; i < count; ++i) threads_.emplace_back([this, i] { serve(i); });
    } catch (...) {
      end();
      throw;
    }
  }
  ~ReplicaThreads() { end(); }
  ReplicaThreads(const ReplicaThreads&) = delete;
  ReplicaThreads& operator=(const ReplicaThreads&) = delete;

  std::size_t count() const { return threads_.size(); }

  // Runs body(i) on each of the first `active` threads, waits for all, and throws the first one's exception.
  void run(std::size_t active, const std::function<void(std::size_t)>& body) {
    std::unique_lock<std::mutex> lock(mutex_);
    body_ = &body;
    active_ = busy_ = active;
    ++round_;
    begun_.notify_all();
    ended_.wait(lock, [this] { return busy_ == 0; });
    std::exception_ptr first;
    std::size_t replica = 0;
    for (std::size_t i = active; i-- > 0;) {
      if (!errors_[i]) continue;
      replica = i;
      first = std::exchange(errors_[i], nullptr);
    }
    lock.unlock();
    if (first) tell(replica, std::move(first));
  }

 private:
  void serve(std::size_t i) {
    std::uint64_t seen = 0;
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      begun_.wait(lock, [this, &seen] { return ending_ || round_ != seen; });
      if (ending_) return;
      seen = round_;
      if (i >= active_) continue;
      const std::function<void(std::size_t)>& body = *body_;
      lock.unlock();
      std::exception_ptr error;
      try {
        body(i);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      errors_[i] = std::move(error);
      if (--busy_ == 0) ended_.notify_one();
    }
  }

  [[noreturn]] static void tell(std::size_t replica, std::exception_ptr error) {
    try {
      std::rethrow_exception(std::move(error));
    } catch (const Error& e) {
      std::throw_with_nested(ReplicaError(e.status(), replica, e.what()));
    } catch (const std::exception& e) {
      std::throw_with_nested(ReplicaError(Status::System, replica, e.what()));
    } catch (...) {
      std::throw_with_nested(ReplicaError(Status::System, replica, "an exception of an unknown kind"));
    }
  }

  void end() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ending_ = true;
    }
    begun_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  std::mutex mutex_;
  std::condition_variable begun_;
  std::condition_variable ended_;
  const std::function<void(std::size_t)>* body_ = nullptr;  // the caller's body, during run()
  std::size_t active_ = 0;
  std::size_t busy_ = 0;
  std::uint64_t round_ = 0;
  bool ending_ = false;
  std::vector<std::exception_ptr> errors_;
  std::vector<std::thread> threads_;
};

inline void check_on_host(const char* what, const Buffer& buffer) {
  if (buffer.device.kind == DeviceKind::Cpu) return;
  throw Error(Status::InvalidArgument, std::string("DataParallel: cannot ") + what +
                                           " the memory of a device by itself: give it MemoryOperations that do");
}

inline void copy_on_host(const Buffer& to, const Buffer& from) {
  check_on_host("copy", to);
  check_on_host("copy", from);
  if (to.count > 0) std::memcpy(to.data, from.data, to.bytes());
}

template <typename T>
void add_elements(void* to, const void* from, std::size_t count) {
  T* sum = static_cast<T*>(to);
  const T* term = static_cast<const T*>(from);
  for (std::size_t i = 0; i < count; ++i) sum[i] += term[i];
}

inline void add_on_host(const Buffer& to, const Buffer& from) {
  check_on_host("add up", to);
  check_on_host("add up", from);
  if (to.dtype == DType::Float32) return add_elements<float>(to.data, from.data, to.count);
  if (to.dtype == DType::Float64) return add_elements<double>(to.data, from.data, to.count);
  throw Error(Status::InvalidArgument, "DataParallel: only float32 and float64 gradients are added up");
}

}  // namespace detail

/// Distributes a batch's rows over several replicas of a model. It splits, copies and adds up plain
/// memory of the caller; one caller at a time. Source: torch.nn.DataParallel.
class DataParallel {
 public:
  /// The replicas of a model: the parameters of each, in the same order.
  using Replicas = std::vector<std::vector<Parameter>>;

  /// Starts a thread for each replica, of which there is at least one. parallel_apply() always runs a
  /// replica on its thread: what that has set up for its device, such as cudaSetDevice(), stays.
  explicit DataParallel(std::size_t replicas, MemoryOperations memory = {})
      : memory_(std::move(memory)), threads_(checked(replicas)) {
    if (!memory_.copy) memory_.copy = detail::copy_on_host;
    if (!memory_.add) memory_.add = detail::add_on_host;
  }

  /// Returns the number of replicas.
  std::size_t replicas() const { return threads_.count(); }
  /// Returns the rows of each replica. A replica without rows has no chunk, unless there are no rows
  /// at all.
  std::vector<Chunk> chunks(std::size_t rows) const { return chunk(rows, replicas()); }

  /// Returns views of the input's parts, one for each chunk: its first dimension is split. Nothing is
  /// copied.
  std::vector<Buffer> scatter(const Buffer& input, std::size_t rows) const {
    if (rows == 0 ? input.count != 0 : input.count % rows != 0) {
      throw Error(Status::InvalidArgument, "DataParallel: " + std::to_string(input.count) + " elements are not " +
                                               std::to_string(rows) + " equal rows");
    }
    const std::size_t row = rows > 0 ? input.count / rows : 0;
    std::vector<Buffer> parts;
    for (const Chunk& c : chunks(rows)) {
      parts.emplace_back(detail::element_at(input.data, c.first * row, input.dtype), c.rows * row, input.dtype,
                         input.device);
    }
    return parts;
  }
  /// Copies the input's parts to the replicas' devices: parts has a buffer of the right size for each
  /// chunk.
  void scatter(const Buffer& input, std::size_t rows, const std::vector<Buffer>& parts) const {
    const std::vector<Buffer> pieces = scatter(input, rows);
    if (parts.size() != pieces.size()) {
      throw Error(Status::InvalidArgument, "DataParallel: " + std::to_string(rows) + " rows make " +
                                               std::to_string(pieces.size()) + " chunks, there are " +
                                               std::to_string(parts.size()) + " buffers for them");
    }
    for (std::size_t i = 0; i < parts.size(); ++i) copy("part " + std::to_string(i), parts[i], pieces[i]);
  }
  /// Copies the parts into output, one after the other.
  void gather(const std::vector<Buffer>& parts, const Buffer& output) const {
    std::size_t count = 0;
    for (const Buffer& part : parts) count += part.count;
    if (count != output.count) {
      throw Error(Status::InvalidArgument, "DataParallel: the parts have " + std::to_string(count) +
                                               " elements together, the output " + std::to_string(output.count));
    }
    std::size_t first = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      void* const at = detail::element_at(output.data, first, output.dtype);
      copy("part " + std::to_string(i), {at, parts[i].count, output.dtype, output.device}, parts[i]);
      first += parts[i].count;
    }
  }

  /// Copies replica 0's values to all replicas. If their parameters differ it throws Error with
  /// Status::Mismatch, which names the parameter, before anything is copied.
  void replicate(const Replicas& models) const {
    compare(models);
    for (std::size_t r = 1; r < models.size(); ++r) {
      for (std::size_t i = 0; i < models[r].size(); ++i) {
        memory_.copy(detail::value_of(models[r][i]), detail::value_of(models[0][i]));
      }
    }
  }
  /// Runs body(replica, chunk) for each chunk, each on its replica's thread, and waits for all of
  /// them. If some threw, it throws ReplicaError for the first of them once all have ended. body
  /// must not call this object.
  void parallel_apply(const std::vector<Chunk>& chunks, const std::function<void(std::size_t, Chunk)>& body) {
    if (chunks.size() > replicas()) {
      throw Error(Status::InvalidArgument, "DataParallel: " + std::to_string(chunks.size()) + " chunks for " +
                                               std::to_string(replicas()) + " replicas");
    }
    threads_.run(chunks.size(), [&chunks, &body](std::size_t i) { body(i, chunks[i]); });
  }
  /// Adds the gradients of the first `active` replicas (0: of all) to replica 0's, in their order:
  /// the same bits every time. A parameter whose gradient is null is left out. Throws as
  /// replicate() does.
  void reduce_gradients(const Replicas& models, std::size_t active = 0) const {
    compare(models);
    const std::size_t count = active > 0 ? std::min(active, models.size()) : models.size();
    for (std::size_t r = 1; r < count; ++r) {
      for (std::size_t i = 0; i < models[r].size(); ++i) {
        if (models[r][i].grad == nullptr) continue;
        memory_.add(detail::gradient_of(models[0][i]), detail::gradient_of(models[r][i]));
      }
    }
  }

 private:
  static std::size_t checked(std::size_t replicas) {
    if (replicas > 0) return replicas;
    throw Error(Status::InvalidArgument, "DataParallel: there must be a replica");
  }

  void copy(const std::string& what, const Buffer& to, const Buffer& from) const {
    if (to.count != from.count || to.dtype != from.dtype) {
      throw Error(Status::InvalidArgument, "DataParallel: " + what + " has " + std::to_string(from.count) +
                                               " elements, the buffer for it " + std::to_string(to.count) +
                                               (to.dtype != from.dtype ? " of another type" : ""));
    }
    memory_.copy(to, from);
  }
  static void compare(const Replicas& models) {
    for (std::size_t r = 1; r < models.size(); ++r) {
      const std::string replica = "replica " + std::to_string(r);
      if (models[r].size() != models[0].size()) {
        throw Error(Status::Mismatch, "DataParallel: replica 0 has " + std::to_string(models[0].size()) +
                                          " parameters, " + replica + " has " + std::to_string(models[r].size()));
      }
      for (std::size_t i = 0; i < models[r].size(); ++i) {
        const Parameter& first = models[0][i];
        const Parameter& other = models[r][i];
        if (first.count == other.count && first.dtype == other.dtype &&
            (first.grad == nullptr) == (other.grad == nullptr)) {
          continue;
        }
        throw Error(Status::Mismatch, "DataParallel: parameter " + std::to_string(i) +
                                          (first.name.empty() ? "" : " (" + first.name + ")") +
                                          " is not the same on replica 0 and on " + replica +
                                          ": its size, its type, or whether it has a gradient");
      }
    }
  }

  MemoryOperations memory_;
  detail::ReplicaThreads threads_;
};

}  // namespace ddp
