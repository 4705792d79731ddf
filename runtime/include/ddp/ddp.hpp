// SPDX-License-Identifier: BSD-3-Clause
// libddp for C++17: process groups, collectives and DistributedDataParallel on plain buffers, in PyTorch's words.
// Header-only over ddp/ddp.h; link ddprun::ddp.
//
//     ddp::Session session = ddp::init_process_group();                // environment as ddprun sets it
//     ddp::DistributedDataParallel model(session.world(), parameters); // rank 0's values go to everyone
//     for (int step = 0; step < steps; ++step) {
//       backward();             // calls model.mark_ready(i) as gradient i is done; buckets reduce meanwhile
//       model.synchronize();    // gradients are now the average
//       optimizer_step();
//     }
//
// Every failure throws ddp::Error. Threads: one thread at a time per group.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ddp/ddp.h"
#include "ddp/error.hpp"
#include "ddp/store.hpp"

namespace ddp {

namespace detail {
struct Deleter {
  void operator()(ddp_session* p) const { ddp_session_destroy(p); }
  void operator()(ddp_model* p) const { ddp_model_destroy(p); }
  void operator()(ddp_checkpoint* p) const { ddp_checkpoint_close(p); }
};
}  // namespace detail

enum class DType : std::int32_t {
  Float32 = DDP_FLOAT32,
  Float64 = DDP_FLOAT64,
  Int32 = DDP_INT32,
  Int64 = DDP_INT64,
  UInt8 = DDP_UINT8,
  Int8 = DDP_INT8,
  Int16 = DDP_INT16,
  UInt16 = DDP_UINT16,
  UInt32 = DDP_UINT32,
  UInt64 = DDP_UINT64,
  Float16 = DDP_FLOAT16,   // reduced in 32 bits, rounded once
  BFloat16 = DDP_BFLOAT16  // likewise
};

enum class ReduceOp : std::int32_t {
  Sum = DDP_SUM,
  Avg = DDP_AVG,  // each contribution times 1/N, then summed; floating point only
  Product = DDP_PRODUCT,
  Min = DDP_MIN,
  Max = DDP_MAX,
  BitAnd = DDP_BAND,  // integers only
  BitOr = DDP_BOR,
  BitXor = DDP_BXOR,
  PremulSum = DDP_PREMUL_SUM  // see premul_sum
};

// What becomes of the contributions: an operation, and for one of them a factor.
struct Reduction {
  ReduceOp op = ReduceOp::Sum;
  double factor = 1;

  Reduction() = default;
  Reduction(ReduceOp op_) : op(op_) {}  // NOLINT: an operation is a reduction
  Reduction(ReduceOp op_, double factor_) : op(op_), factor(factor_) {}
  ddp_reduction c() const { return {static_cast<std::int32_t>(op), factor}; }
};

// This rank's contribution times factor, summed with the others' times theirs; floating point only.
inline Reduction premul_sum(double factor) { return {ReduceOp::PremulSum, factor}; }

// DType of a C++ element type: dtype_of<float>() is DType::Float32. 16-bit floating point has none: name its DType.
template <typename T>
constexpr DType dtype_of() {
  using U = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<U, float>) {
    return DType::Float32;
  } else if constexpr (std::is_same_v<U, double>) {
    return DType::Float64;
  } else {
    static_assert(std::is_integral_v<U> && !std::is_same_v<U, bool>, "libddp has no element type for this C++ type");
    constexpr bool is_signed = std::is_signed_v<U>;
    if constexpr (sizeof(U) == 1) return is_signed ? DType::Int8 : DType::UInt8;
    if constexpr (sizeof(U) == 2) return is_signed ? DType::Int16 : DType::UInt16;
    if constexpr (sizeof(U) == 4) return is_signed ? DType::Int32 : DType::UInt32;
    if constexpr (sizeof(U) == 8) return is_signed ? DType::Int64 : DType::UInt64;
  }
}

struct Device {
  ddp_device_kind kind = DDP_CPU;
  int index = 0;
};

// count elements at data. Never owns.
struct Buffer {
  void* data = nullptr;
  std::size_t count = 0;
  DType dtype = DType::Float32;
  Device device = {};

  Buffer() = default;
  Buffer(void* data_, std::size_t count_, DType dtype_, Device device_ = {})
      : data(data_), count(count_), dtype(dtype_), device(device_) {}
  template <typename T>
  Buffer(T* data_, std::size_t count_) : Buffer(data_, count_, dtype_of<T>()) {}
  template <typename T>
  Buffer(std::vector<T>& v) : Buffer(v.data(), v.size()) {}  // NOLINT: a vector is a buffer

  ddp_buffer c() const { return {data, count, static_cast<std::int32_t>(dtype), {device.kind, device.index}}; }
};

// One asynchronous operation. Dropping it neither waits nor cancels; its buffers must stay valid until it ended.
class Work {
 public:
  Work() = default;
  explicit Work(ddp_work work) : work_(work) {}
  // Blocks until the operation ended; throws if it failed. The deadline was set when it was issued.
  void wait() const { detail::check(ddp_work_wait(work_)); }
  // A look of at most `timeout`: true once the operation ended. Throws if it failed.
  bool wait_for(Milliseconds timeout) const {
    std::int32_t completed = 0;
    detail::check(ddp_work_wait_for(work_, timeout.count(), &completed));
    return completed != 0;
  }
  bool is_completed() const { return wait_for(Milliseconds(0)); }

 private:
  ddp_work work_ = {nullptr, 0};
};

// The ranks that talk to each other. A view: the session owns the group. Single-use after an error.
class ProcessGroup {
 public:
  explicit ProcessGroup(ddp_group* group) : group_(group) {}
  int rank() const { return ddp_group_rank(group_); }
  int size() const { return ddp_group_size(group_); }
  std::string name() const { return ddp_group_name(group_); }

  // In place: every rank's buffer becomes the reduction over all ranks, bitwise equal on all of them.
  void all_reduce(Buffer buffer, const Reduction& reduction = {}, Milliseconds timeout = kDefaultTimeout) const {
    detail::check(ddp_all_reduce(group_, buffer.c(), reduction.c(), timeout.count()));
  }
  // In place on root; what is in the others' buffers afterwards is unspecified.
  void reduce(Buffer buffer, const Reduction& reduction = {}, int root = 0,
              Milliseconds timeout = kDefaultTimeout) const {
    detail::check(ddp_reduce(group_, buffer.c(), reduction.c(), root, timeout.count()));
  }
  // Every rank's buffer becomes root's.
  void broadcast(Buffer buffer, int root = 0, Milliseconds timeout = kDefaultTimeout) const {
    detail::check(ddp_broadcast(group_, buffer.c(), root, timeout.count()));
  }
  // output: size() * input.count elements, rank r's input at r * input.count.
  void all_gather(Buffer input, Buffer output, Milliseconds timeout = kDefaultTimeout) const {
    detail::check(ddp_all_gather(group_, input.c(), output.c(), timeout.count()));
  }
  // The same on root; output is not looked at on the others.
  void gather(Buffer input, Buffer output, int root = 0, Milliseconds timeout = kDefaultTimeout) const {
    detail::check(ddp_gather(group_, input.c(), output.c(), root, timeout.count()));
  }
  // Rank r's output becomes output.count elements of root's input, from r * output.count on.
  void scatter(Buffer input, Buffer output, int root = 0, Milliseconds timeout = kDefaultTimeout) const {
    detail::check(ddp_scatter(group_, input.c(), output.c(), root, timeout.count()));
  }
  // input: size() * output.count elements; rank r's output becomes the reduction of those from r * output.count on.
  void reduce_scatter(Buffer input, Buffer output, const Reduction& reduction = {},
                      Milliseconds timeout = kDefaultTimeout) const {
    detail::check(ddp_reduce_scatter(group_, input.c(), output.c(), reduction.c(), timeout.count()));
  }
  // Each rank sends an equal part of its input to every rank, and gets one from each, in the order of ranks.
  void all_to_all(Buffer input, Buffer output, Milliseconds timeout = kDefaultTimeout) const {
    detail::check(ddp_all_to_all(group_, input.c(), nullptr, output.c(), nullptr, timeout.count()));
  }
  // The same with parts of any size: input_counts[r] elements go to rank r, output_counts[r] come from it.
  void all_to_all(Buffer input, const std::vector<std::size_t>& input_counts, Buffer output,
                  const std::vector<std::size_t>& output_counts, Milliseconds timeout = kDefaultTimeout) const {
    check_counts(input_counts, output_counts);
    detail::check(
        ddp_all_to_all(group_, input.c(), input_counts.data(), output.c(), output_counts.data(), timeout.count()));
  }
  // Returns once every rank has called it.
  void barrier(Milliseconds timeout = kDefaultTimeout) const { detail::check(ddp_barrier(group_, timeout.count())); }

  // The same, in order, on a thread of the session's; the buffers must stay until the operation ended.
  Work all_reduce_async(Buffer buffer, const Reduction& reduction = {}, Milliseconds timeout = kDefaultTimeout) const {
    ddp_work work;
    detail::check(ddp_all_reduce_async(group_, buffer.c(), reduction.c(), timeout.count(), &work));
    return Work(work);
  }
  Work reduce_async(Buffer buffer, const Reduction& reduction = {}, int root = 0,
                    Milliseconds timeout = kDefaultTimeout) const {
    ddp_work work;
    detail::check(ddp_reduce_async(group_, buffer.c(), reduction.c(), root, timeout.count(), &work));
    return Work(work);
  }
  Work broadcast_async(Buffer buffer, int root = 0, Milliseconds timeout = kDefaultTimeout) const {
    ddp_work work;
    detail::check(ddp_broadcast_async(group_, buffer.c(), root, timeout.count(), &work));
    return Work(work);
  }
  Work all_gather_async(Buffer input, Buffer output, Milliseconds timeout = kDefaultTimeout) const {
    ddp_work work;
    detail::check(ddp_all_gather_async(group_, input.c(), output.c(), timeout.count(), &work));
    return Work(work);
  }
  Work gather_async(Buffer input, Buffer output, int root = 0, Milliseconds timeout = kDefaultTimeout) const {
    ddp_work work;
    detail::check(ddp_gather_async(group_, input.c(), output.c(), root, timeout.count(), &work));
    return Work(work);
  }
  Work scatter_async(Buffer input, Buffer output, int root = 0, Milliseconds timeout = kDefaultTimeout) const {
    ddp_work work;
    detail::check(ddp_scatter_async(group_, input.c(), output.c(), root, timeout.count(), &work));
    return Work(work);
  }
  Work reduce_scatter_async(Buffer input, Buffer output, const Reduction& reduction = {},
                            Milliseconds timeout = kDefaultTimeout) const {
    ddp_work work;
    detail::check(ddp_reduce_scatter_async(group_, input.c(), output.c(), reduction.c(), timeout.count(), &work));
    return Work(work);
  }
  Work all_to_all_async(Buffer input, Buffer output, Milliseconds timeout = kDefaultTimeout) const {
    ddp_work work;
    detail::check(ddp_all_to_all_async(group_, input.c(), nullptr, output.c(), nullptr, timeout.count(), &work));
    return Work(work);
  }
  Work all_to_all_async(Buffer input, const std::vector<std::size_t>& input_counts, Buffer output,
                        const std::vector<std::size_t>& output_counts, Milliseconds timeout = kDefaultTimeout) const {
    check_counts(input_counts, output_counts);
    ddp_work work;
    detail::check(ddp_all_to_all_async(group_, input.c(), input_counts.data(), output.c(), output_counts.data(),
                                       timeout.count(), &work));
    return Work(work);
  }
  Work barrier_async(Milliseconds timeout = kDefaultTimeout) const {
    ddp_work work;
    detail::check(ddp_barrier_async(group_, timeout.count(), &work));
    return Work(work);
  }

  ddp_group* c() const { return group_; }

 private:
  void check_counts(const std::vector<std::size_t>& input, const std::vector<std::size_t>& output) const {
    const auto ranks = static_cast<std::size_t>(size());
    if (input.size() == ranks && output.size() == ranks) return;
    throw Error(DDP_INVALID_ARGUMENT, "all_to_all: give a count for each of the " + std::to_string(ranks) +
                                          " ranks, of the input and of the output");
  }

  ddp_group* group_;
};

// This process's membership in a job. Moves, does not copy; ending it leaves the groups.
class Session {
 public:
  explicit Session(ddp_session* session) : session_(session) {}
  ProcessGroup world() const { return ProcessGroup(ddp_session_world(session_.get())); }
  // A store that all ranks of the job share, for keys of your own: they collide with nobody's, nor with those of an
  // earlier restart. Connects when first asked for. A view; the session's timeout is its timeout.
  Store store() const {
    ddp_store* store = nullptr;
    detail::check(ddp_session_store(session_.get(), &store));
    return Store(store);
  }
  int rank() const { return world().rank(); }
  int world_size() const { return world().size(); }
  int local_rank() const { return ddp_session_local_rank(session_.get()); }
  int local_world_size() const { return ddp_session_local_world_size(session_.get()); }
  // How often the job was restarted before this process was started.
  int restart_count() const { return ddp_session_restart_count(session_.get()); }

 private:
  std::unique_ptr<ddp_session, detail::Deleter> session_;
};

struct InitOptions {
  std::string backend = "gloo";
  Milliseconds init_timeout = std::chrono::seconds(60);
  Milliseconds timeout = std::chrono::minutes(30);  // for each collective, from issue to end
};

// Joins the job that the environment describes (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, as ddprun and torchrun set
// it) and connects to all its ranks. With none of these set, the process is a world of its own.
inline Session init_process_group(const InitOptions& options = {}) {
  const ddp_init_options c = {options.backend.c_str(), options.init_timeout.count(), options.timeout.count()};
  ddp_session* session = nullptr;
  detail::check(ddp_init_process_group(&c, &session));
  return Session(session);
}

// A trainable tensor as the optimizer and backward see it: plain memory. Never owns.
struct Parameter {
  void* value = nullptr;  // count elements
  void* grad = nullptr;   // count elements, averaged in place; null: DistributedDataParallel::gradient(i) is used
  std::size_t count = 0;
  DType dtype = DType::Float32;
  Device device = {};
  std::string name;  // for error messages

  Parameter() = default;
  template <typename T>
  Parameter(std::string name_, T* value_, T* grad_, std::size_t count_)
      : value(value_), grad(grad_), count(count_), dtype(dtype_of<T>()), name(std::move(name_)) {}
};

struct DistributedDataParallelOptions {
  std::size_t first_bucket_bytes = 1 << 20;  // small, so that communication starts early
  std::size_t bucket_bytes = 25 << 20;
};

// Averages gradients over a group's ranks, in buckets, while backward goes on.
class DistributedDataParallel {
 public:
  // Collective. Checks that all ranks have the same parameters, then copies rank 0's values to every rank.
  DistributedDataParallel(const ProcessGroup& group, const std::vector<Parameter>& parameters,
                          const DistributedDataParallelOptions& options = {}) {
    std::vector<ddp_parameter> c;
    c.reserve(parameters.size());
    for (const Parameter& p : parameters) {
      c.push_back({p.value,
                   p.grad,
                   p.count,
                   static_cast<std::int32_t>(p.dtype),
                   {p.device.kind, p.device.index},
                   p.name.c_str()});
    }
    const ddp_model_options model_options = {options.first_bucket_bytes, options.bucket_bytes};
    ddp_model* model = nullptr;
    detail::check(ddp_model_create(group.c(), c.data(), c.size(), &model_options, &model));
    model_.reset(model);
  }

  // Gradient i of this step is complete. May start the reduction of its bucket.
  void mark_ready(std::size_t i) { detail::check(ddp_model_mark_ready(model_.get(), i)); }
  // Waits until every gradient is the average over all ranks.
  void synchronize() { detail::check(ddp_model_synchronize(model_.get())); }
  // Parameter i's gradient: the caller's memory, or the library's if Parameter::grad was null.
  template <typename T = float>
  T* gradient(std::size_t i) {
    return static_cast<T*>(ddp_model_gradient(model_.get(), i));
  }
  std::size_t bucket_count() const { return ddp_model_bucket_count(model_.get()); }

  // While it lives, gradients stay local and may accumulate; the first backward after it reduces the sum.
  class NoSync {
   public:
    explicit NoSync(ddp_model* model) : model_(model) { detail::check(ddp_model_set_no_sync(model_, 1)); }
    ~NoSync() { ddp_model_set_no_sync(model_, 0); }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    ddp_model* model_;
  };
  [[nodiscard]] NoSync no_sync() { return NoSync(model_.get()); }

 private:
  std::unique_ptr<ddp_model, detail::Deleter> model_;
};

// A named tensor to be saved. Never owns.
struct Tensor {
  std::string name;
  const void* data = nullptr;
  DType dtype = DType::Float32;
  std::vector<std::int64_t> shape;
};

using Metadata = std::vector<std::pair<std::string, std::string>>;

// Writes one safetensors file: temporary name, fsync, rename. Call it on one rank.
inline void save_checkpoint(const std::string& path, const std::vector<Tensor>& tensors, const Metadata& metadata) {
  std::vector<ddp_tensor> c_tensors;
  std::vector<ddp_metadata_entry> c_metadata;
  for (const Tensor& t : tensors) {
    c_tensors.push_back({t.name.c_str(), t.data, static_cast<std::int32_t>(t.dtype), t.shape.data(), t.shape.size()});
  }
  for (const auto& [key, value] : metadata) c_metadata.push_back({key.c_str(), value.c_str()});
  detail::check(
      ddp_checkpoint_save(path.c_str(), c_tensors.data(), c_tensors.size(), c_metadata.data(), c_metadata.size()));
}

// A safetensors file opened for reading.
class Checkpoint {
 public:
  // Validates the header; throws Error with DDP_CORRUPT if the file is truncated or malformed.
  explicit Checkpoint(const std::string& path) {
    ddp_checkpoint* checkpoint = nullptr;
    detail::check(ddp_checkpoint_open(path.c_str(), &checkpoint));
    checkpoint_.reset(checkpoint);
  }
  std::optional<std::string> metadata(const std::string& key) const {
    const char* value = ddp_checkpoint_metadata(checkpoint_.get(), key.c_str());
    return value ? std::optional<std::string>(value) : std::nullopt;
  }
  // Copies the tensor into buffer; throws if its type or shape is not the one asked for.
  void read(const std::string& name, Buffer buffer, const std::vector<std::int64_t>& shape) const {
    detail::check(ddp_checkpoint_read(checkpoint_.get(), name.c_str(), buffer.c(), shape.data(), shape.size()));
  }

 private:
  std::unique_ptr<ddp_checkpoint, detail::Deleter> checkpoint_;
};

// Leaves `message` where the launcher's failure report finds it. Call it before exiting with an error. False if there
// is no launcher that would print it.
inline bool record_error(const std::string& message) { return ddp_record_error(message.c_str()) != 0; }

// A crash, or an exception that nobody catches, leaves its reason and a backtrace there too. init_process_group does
// this; before it, or in each further thread whose stack may overflow, call it yourself. It changes nothing about how
// the process dies, and leaves signals alone that have a handler: see ddp_install_failure_handlers in ddp.h. False if
// there is no launcher that would print it.
inline bool install_failure_handlers() { return ddp_install_failure_handlers() != 0; }

}  // namespace ddp
