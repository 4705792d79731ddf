// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/gpu/nccl_group.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "collectives/backend_error.hpp"
#include "collectives/element_types.hpp"
#include "collectives/float16.hpp"
#include "collectives/gpu/nccl_abort.hpp"
#include "rendezvous/base/error.hpp"

namespace ddp::collectives {
namespace {

using rendezvous::Error;
using rendezvous::ErrorCode;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr char kIdKey[] = "nccl_id";
// How long an orderly departure may take (finalize).
constexpr milliseconds kLeavePatience = std::chrono::seconds(10);
// Polling of a call that is in progress. Most calls are done within microseconds, so the first polls have no pause
// between them. Only a communicator's first call waits for the other ranks.
constexpr int kPollsWithoutPause = 100;
constexpr std::chrono::microseconds kPollInterval{50};
constexpr milliseconds kBetweenLooks{1};  // whether the GPU has ended what was aborted

std::optional<NcclType> nccl_type(std::int32_t dtype) {
  switch (static_cast<ElementType>(dtype)) {
    case ElementType::Float32:
      return NcclType::Float32;
    case ElementType::Float64:
      return NcclType::Float64;
    case ElementType::Int32:
      return NcclType::Int32;
    case ElementType::Int64:
      return NcclType::Int64;
    case ElementType::UInt8:
      return NcclType::UInt8;
    case ElementType::Int8:
      return NcclType::Int8;
    case ElementType::UInt32:
      return NcclType::UInt32;
    case ElementType::UInt64:
      return NcclType::UInt64;
    case ElementType::Float16:
      return NcclType::Float16;
    case ElementType::BFloat16:
      return NcclType::BFloat16;
    case ElementType::Int16:
    case ElementType::UInt16:
      break;
  }
  return std::nullopt;
}

std::optional<NcclReduction> nccl_reduction(ReduceOp op) {
  switch (op) {
    case ReduceOp::Sum:
      return NcclReduction::Sum;
    case ReduceOp::Average:
      return NcclReduction::Average;
    case ReduceOp::Product:
      return NcclReduction::Product;
    case ReduceOp::Min:
      return NcclReduction::Min;
    case ReduceOp::Max:
      return NcclReduction::Max;
    case ReduceOp::And:
    case ReduceOp::Or:
    case ReduceOp::ExclusiveOr:
    case ReduceOp::WeightedSum:  // created for each call
      break;
  }
  return std::nullopt;
}

// Sizes in bytes: operations that only move elements treat them as bytes.
struct Bytes {
  explicit Bytes(std::int32_t dtype) : size(element_size(dtype)) {}
  std::size_t size;
  std::size_t of(std::size_t count) const { return count * size; }
};

const unsigned char* part(const void* data, std::size_t at) { return static_cast<const unsigned char*>(data) + at; }
unsigned char* part(void* data, std::size_t at) { return static_cast<unsigned char*>(data) + at; }

// A factor as NCCL reads it: one element of the type.
struct Scalar {
  Scalar(std::int32_t dtype, double factor) {
    const auto narrow_factor = static_cast<float>(factor);
    const std::uint16_t half = dtype == static_cast<std::int32_t>(ElementType::BFloat16)
                                   ? float_to_bfloat16(narrow_factor)
                                   : float_to_float16(narrow_factor);
    if (dtype == static_cast<std::int32_t>(ElementType::Float64)) {
      std::memcpy(bytes, &factor, sizeof(factor));
    } else if (dtype == static_cast<std::int32_t>(ElementType::Float32)) {
      std::memcpy(bytes, &narrow_factor, sizeof(narrow_factor));
    } else {
      std::memcpy(bytes, &half, sizeof(half));
    }
  }
  unsigned char bytes[8] = {};
};

[[noreturn]] void throw_status(ddp_backend_status status, const std::string& text) {
  switch (status) {
    case DDP_BACKEND_TIMEOUT:
      throw Error(ErrorCode::Timeout, text);
    case DDP_BACKEND_PEER_LOST:
      throw Error(ErrorCode::PeerLost, text);
    case DDP_BACKEND_ABORTED:
      throw Error(ErrorCode::Aborted, text);
    default:
      throw Error(ErrorCode::System, text);
  }
}

std::int64_t milliseconds_until(NcclGroup::Deadline deadline) {
  return std::max<std::int64_t>(1, std::chrono::duration_cast<milliseconds>(deadline - Clock::now()).count());
}

}  // namespace

NcclGroup::NcclGroup(const NcclApi& api, CudaDevice& device, Place place)
    : api_(api), device_(device), place_(place), word_(std::make_unique<DeviceMemory>(device, sizeof(float))) {}

NcclGroup::NcclGroup(const NcclApi& api, CudaDevice& device, Place place, const Joining& joining)
    : NcclGroup(api, device, place) {
  join(joining);  // the constructor above is done: if this throws, the destructor runs and cleans up
}

NcclGroup::~NcclGroup() {
  if (!aborted_) leave();
  if (left_behind()) word_.release();  // freeing it would wait for an operation that never ends
}

void NcclGroup::join(const Joining& joining) {
  NcclUniqueId id = {};
  if (place_.size > 1) {
    id = agree_on_id(*joining.store, joining.deadline);
  } else if (const NcclResult result = api_.get_unique_id(&id); result != NcclResult::Success) {
    throw Error(ErrorCode::System, std::string("ncclGetUniqueId: ") + api_.get_error_string(result));
  }
  NcclConfig config;
  config.blocking = 0;
  BackendError error;
  const CurrentDevice current(device_);
  NcclAbort::wait_for_all();
  const NcclResult result = api_.comm_init_rank_config(&comm_, place_.size, id, place_.rank, &config);
  const ddp_backend_status status = wait_until_ready(result, joining.deadline, &error, joining.ended);
  if (status == DDP_BACKEND_OK) return;
  abort();
  throw_status(status, error.text);
}

// Rank 0 makes the id and puts it into the store. If it cannot, the other ranks find the reason there instead.
NcclUniqueId NcclGroup::agree_on_id(const ddp_backend_store& store, Deadline deadline) {
  NcclUniqueId id = {};
  BackendError error;
  if (place_.rank == 0) {
    const NcclResult result = api_.get_unique_id(&id);
    const std::string failure =
        result == NcclResult::Success ? "" : std::string("ncclGetUniqueId on rank 0: ") + api_.get_error_string(result);
    const bool well = failure.empty();
    if (store.set(store.context, kIdKey, well ? id.bytes : failure.data(), well ? sizeof(id.bytes) : failure.size(),
                  &error) != 0) {
      throw Error(ErrorCode::System, error.text);
    }
    if (!well) throw Error(ErrorCode::System, failure);
    return id;
  }
  std::string value;
  const auto deliver = [](void* sink, const void* bytes, std::size_t size) {
    static_cast<std::string*>(sink)->assign(static_cast<const char*>(bytes), size);
  };
  if (store.get(store.context, kIdKey, milliseconds_until(deadline), &value, deliver, &error) != 0) {
    const bool too_late = std::strstr(error.text, "timed out") != nullptr;
    throw Error(too_late ? ErrorCode::Timeout : ErrorCode::System, error.text);
  }
  if (value.size() != sizeof(id.bytes)) throw Error(ErrorCode::System, value);
  std::memcpy(id.bytes, value.data(), sizeof(id.bytes));
  return id;
}

std::unique_ptr<NcclGroup> NcclGroup::split(int color, int key, Place place, Deadline deadline) {
  NcclCommunicator*& child = children_.emplace_back(nullptr);
  NcclConfig config;
  config.blocking = 0;
  BackendError error;
  const Call call = {nullptr, deadline, &error};
  // NCCL returns success although the split has only begun. The child is ready once the parent is not in progress.
  ddp_backend_status status = enqueue(call, [&](NcclCommunicator* comm) {
    const NcclResult result = api_.comm_split(comm, color < 0 ? kNcclNoColor : color, key, &child, &config);
    return result == NcclResult::Success ? NcclResult::InProgress : result;
  });
  if (status == DDP_BACKEND_OK && child == nullptr) return nullptr;
  if (status == DDP_BACKEND_OK) {
    std::unique_ptr<NcclGroup> group(new NcclGroup(api_, device_, place));
    group->comm_ = child;
    status = group->wait_until_ready(NcclResult::InProgress, deadline, &error);
    if (status == DDP_BACKEND_OK) return group;
    group->abort();
  }
  throw_status(status, error.text);
}

// Makes this thread the one inside NCCL. Returns false if the group was aborted.
bool NcclGroup::enter() {
  std::unique_lock lock(mutex_);
  left_.wait(lock, [&] { return aborted_ || !inside_; });
  if (aborted_) return false;
  inside_ = true;
  return true;
}

void NcclGroup::exit() {
  {
    const std::lock_guard lock(mutex_);
    inside_ = false;
  }
  left_.notify_all();
}

ddp_backend_status NcclGroup::to_status(NcclResult result, ddp_backend_error* error) const {
  if (result == NcclResult::Success) return DDP_BACKEND_OK;
  const char* last = api_.get_last_error(nullptr);
  std::string text = std::string("NCCL: ") + api_.get_error_string(result);
  if (last != nullptr && *last != '\0') text += std::string(": ") + last;
  set_text(error, text);
  return result == NcclResult::RemoteError ? DDP_BACKEND_PEER_LOST : DDP_BACKEND_ERROR;
}

// Blocks until the call that returned `result` is done.
ddp_backend_status NcclGroup::wait_until_ready(NcclResult result, Deadline deadline, ddp_backend_error* error,
                                               const std::atomic<bool>* ended) {
  for (int polls = 0; result == NcclResult::InProgress; ++polls) {
    if (Clock::now() >= deadline) {
      set_text(error, "NCCL did not hear from all ranks in time");
      return DDP_BACKEND_TIMEOUT;
    }
    if (polls < kPollsWithoutPause) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kPollInterval);
    }
    if ((ended != nullptr && *ended) || !enter()) {
      set_text(error, "the group was aborted");
      return DDP_BACKEND_ABORTED;
    }
    const NcclResult polled = api_.comm_get_async_error(comm_, &result);
    exit();
    if (polled != NcclResult::Success) result = polled;
  }
  return to_status(result, error);
}

template <typename Function>
ddp_backend_status NcclGroup::enqueue(const Call& call, Function&& function) {
  const std::lock_guard issuing(device_.issuing());
  const CurrentDevice current(device_);
  if (!enter()) {
    set_text(call.error, "the group was aborted");
    return DDP_BACKEND_ABORTED;
  }
  const NcclResult result = function(comm_);
  exit();
  return wait_until_ready(result, call.deadline, call.error);
}

// Runs several calls as one NCCL group, so that its sends and receives run at the same time.
template <typename Function>
ddp_backend_status NcclGroup::in_one_group(const Call& call, Function&& function) {
  return enqueue(call, [&](NcclCommunicator* comm) {
    NcclResult result = api_.group_start();
    if (result != NcclResult::Success) return result;
    const auto add = [&](NcclResult added) {
      const bool well = added == NcclResult::Success || added == NcclResult::InProgress;
      if (!well && result == NcclResult::Success) result = added;
    };
    function(comm, add);
    const NcclResult ended = api_.group_end();
    return result == NcclResult::Success ? ended : result;
  });
}

std::string NcclGroup::why_no_reduction(std::int32_t dtype, ReduceOp op) {
  if (is_bitwise(op)) {
    return "NCCL has no bitwise reductions: use memory of the CPU for and, or, xor";
  }
  if (nccl_type(dtype)) return "";
  return std::string("NCCL has no reductions of ") + element_facts(dtype)->name +
         ": use a 32-bit integer, or memory of the CPU";
}

template <typename Function>
ddp_backend_status NcclGroup::with_reduction(std::int32_t dtype, Reduction reduction, const Call& call,
                                             Function&& function) {
  if (const std::string refusal = why_no_reduction(dtype, reduction.op); !refusal.empty()) {
    set_text(call.error, refusal);
    return DDP_BACKEND_UNSUPPORTED;
  }
  const std::optional<NcclType> type = nccl_type(dtype);
  if (reduction.op == ReduceOp::WeightedSum) {
    Scalar scalar(dtype, reduction.factor);
    NcclReduction made = {};
    const ddp_backend_status status = enqueue(call, [&](NcclCommunicator* comm) {
      return api_.red_op_create_pre_mul_sum(&made, scalar.bytes, *type, NcclScalarResidence::HostImmediate, comm);
    });
    if (status != DDP_BACKEND_OK) return status;
    const ddp_backend_status reduced =
        enqueue(call, [&](NcclCommunicator* comm) { return function(comm, *type, made); });
    // NCCL has copied the reduction by now. After a failure it is freed with the communicator.
    if (reduced != DDP_BACKEND_OK) return reduced;
    return enqueue(call, [&](NcclCommunicator* comm) { return api_.red_op_destroy(made, comm); });
  }
  const std::optional<NcclReduction> known = nccl_reduction(reduction.op);
  return enqueue(call, [&](NcclCommunicator* comm) { return function(comm, *type, *known); });
}

ddp_backend_status NcclGroup::all_reduce(void* data, std::size_t count, std::int32_t dtype, Reduction reduction,
                                         const Call& call) {
  return with_reduction(dtype, reduction, call, [&](NcclCommunicator* comm, NcclType type, NcclReduction op) {
    return api_.all_reduce(data, data, count, type, op, comm, call.stream);
  });
}

ddp_backend_status NcclGroup::reduce(void* data, std::size_t count, std::int32_t dtype, Reduction reduction, int root,
                                     const Call& call) {
  return with_reduction(dtype, reduction, call, [&](NcclCommunicator* comm, NcclType type, NcclReduction op) {
    return api_.reduce(data, data, count, type, op, root, comm, call.stream);
  });
}

ddp_backend_status NcclGroup::broadcast(void* data, std::size_t count, std::int32_t dtype, int root, const Call& call) {
  return enqueue(call, [&](NcclCommunicator* comm) {
    return api_.broadcast(data, data, Bytes(dtype).of(count), NcclType::UInt8, root, comm, call.stream);
  });
}

ddp_backend_status NcclGroup::all_gather(const void* input, void* output, std::size_t count, std::int32_t dtype,
                                         const Call& call) {
  return enqueue(call, [&](NcclCommunicator* comm) {
    return api_.all_gather(input, output, Bytes(dtype).of(count), NcclType::UInt8, comm, call.stream);
  });
}

ddp_backend_status NcclGroup::gather(const void* input, void* output, std::size_t count, std::int32_t dtype, int root,
                                     const Call& call) {
  const std::size_t bytes = Bytes(dtype).of(count);
  return in_one_group(call, [&](NcclCommunicator* comm, auto add) {
    add(api_.send(input, bytes, NcclType::UInt8, root, comm, call.stream));
    if (place_.rank != root) return;
    for (int rank = 0; rank < place_.size; ++rank) {
      void* const from_rank = part(output, bytes * static_cast<std::size_t>(rank));
      add(api_.receive(from_rank, bytes, NcclType::UInt8, rank, comm, call.stream));
    }
  });
}

ddp_backend_status NcclGroup::scatter(const void* input, void* output, std::size_t count, std::int32_t dtype, int root,
                                      const Call& call) {
  const std::size_t bytes = Bytes(dtype).of(count);
  return in_one_group(call, [&](NcclCommunicator* comm, auto add) {
    add(api_.receive(output, bytes, NcclType::UInt8, root, comm, call.stream));
    if (place_.rank != root) return;
    for (int rank = 0; rank < place_.size; ++rank) {
      const void* const to_rank = part(input, bytes * static_cast<std::size_t>(rank));
      add(api_.send(to_rank, bytes, NcclType::UInt8, rank, comm, call.stream));
    }
  });
}

ddp_backend_status NcclGroup::reduce_scatter(const void* input, void* output, std::size_t count, std::int32_t dtype,
                                             Reduction reduction, const Call& call) {
  return with_reduction(dtype, reduction, call, [&](NcclCommunicator* comm, NcclType type, NcclReduction op) {
    return api_.reduce_scatter(input, output, count, type, op, comm, call.stream);
  });
}

ddp_backend_status NcclGroup::all_to_all(const void* input, const std::size_t* input_counts, void* output,
                                         const std::size_t* output_counts, std::int32_t dtype, const Call& call) {
  const Bytes bytes(dtype);
  return in_one_group(call, [&](NcclCommunicator* comm, auto add) {
    std::size_t sent = 0;
    std::size_t received = 0;
    for (int rank = 0; rank < place_.size; ++rank) {
      const std::size_t to_rank = bytes.of(input_counts[rank]);
      const std::size_t from_rank = bytes.of(output_counts[rank]);
      if (to_rank > 0) add(api_.send(part(input, sent), to_rank, NcclType::UInt8, rank, comm, call.stream));
      if (from_rank > 0) add(api_.receive(part(output, received), from_rank, NcclType::UInt8, rank, comm, call.stream));
      sent += to_rank;
      received += from_rank;
    }
  });
}

ddp_backend_status NcclGroup::send(const void* data, std::size_t count, std::int32_t dtype, int peer,
                                   const Call& call) {
  return enqueue(call, [&](NcclCommunicator* comm) {
    return api_.send(data, Bytes(dtype).of(count), NcclType::UInt8, peer, comm, call.stream);
  });
}

ddp_backend_status NcclGroup::receive(void* data, std::size_t count, std::int32_t dtype, int peer, const Call& call) {
  return enqueue(call, [&](NcclCommunicator* comm) {
    return api_.receive(data, Bytes(dtype).of(count), NcclType::UInt8, peer, comm, call.stream);
  });
}

ddp_backend_status NcclGroup::barrier(const Call& call) {
  return enqueue(call, [&](NcclCommunicator* comm) {
    return api_.all_reduce(word_->get(), word_->get(), 1, NcclType::Float32, NcclReduction::Max, comm, call.stream);
  });
}

NcclGroup::Registration NcclGroup::best_registration() const {
  if (api_.memory_allocate == nullptr || api_.memory_free == nullptr) return Registration::None;
  if (api_.comm_window_register != nullptr && api_.comm_window_deregister != nullptr) return Registration::Window;
  return api_.comm_register != nullptr && api_.comm_deregister != nullptr ? Registration::Buffer : Registration::None;
}

ddp_backend_status NcclGroup::register_memory(void* memory, std::size_t size, Registration wanted, Registered& result,
                                              const Call& call) {
  result = {};
  if (wanted == Registration::Window) {
    // NCCL returns success although the registration has only begun. Its threads write the window.
    NcclWindow*& window = windows_.emplace_back(nullptr);
    const ddp_backend_status status = enqueue(call, [&](NcclCommunicator* comm) {
      const NcclResult begun = api_.comm_window_register(comm, memory, size, &window, kNcclSymmetricWindow);
      return begun == NcclResult::Success ? NcclResult::InProgress : begun;
    });
    if (status != DDP_BACKEND_OK) return status;
    if (window != nullptr) result = {Registration::Window, window};
  }
  if (result.handle == nullptr && wanted != Registration::None && api_.comm_register != nullptr) {
    void* handle = nullptr;
    const ddp_backend_status status =
        enqueue(call, [&](NcclCommunicator* comm) { return api_.comm_register(comm, memory, size, &handle); });
    if (status != DDP_BACKEND_OK) return status;
    if (handle != nullptr) result = {Registration::Buffer, handle};
  }
  result.number = ++registrations_;
  note_registration(size * 4 + static_cast<std::uint64_t>(result.kind));
  return DDP_BACKEND_OK;
}

void NcclGroup::deregister(const Registered& registered) {
  if (registered.kind == Registration::None) return;
  BackendError ignored;  // an error of the communicator, which the next operation finds
  const Call call = {nullptr, Clock::now() + kLeavePatience, &ignored};
  enqueue(call, [&](NcclCommunicator* comm) {
    if (registered.kind == Registration::Buffer) return api_.comm_deregister(comm, registered.handle);
    return api_.comm_window_deregister(comm, static_cast<NcclWindow*>(registered.handle));
  });
  note_registration(registered.number * 4 + 3);
}

void NcclGroup::note_registration(std::uint64_t event) {
  const std::lock_guard lock(mutex_);
  constexpr std::uint64_t kPrime = 1099511628211U;  // the hash is FNV-1a
  registration_history_ = (registration_history_ ^ event) * kPrime + 1;
}

std::uint64_t NcclGroup::registration_history() {
  const std::lock_guard lock(mutex_);
  return registration_history_;
}

bool NcclGroup::left_behind() {
  const std::lock_guard lock(mutex_);
  if (abort_ != nullptr && !abort_->wait()) left_behind_ = true;
  return left_behind_;
}

ddp_backend_status NcclGroup::poll_error(ddp_backend_error* error) {
  {
    const std::lock_guard lock(mutex_);
    if (inside_ || aborted_) return DDP_BACKEND_OK;  // the thread that is inside, or has aborted, reports errors
    inside_ = true;
  }
  NcclResult result = NcclResult::Success;
  const NcclResult polled = api_.comm_get_async_error(comm_, &result);
  exit();
  if (polled != NcclResult::Success) result = polled;
  return result == NcclResult::InProgress ? DDP_BACKEND_OK : to_status(result, error);
}

NcclCommunicator* NcclGroup::communicator() {
  const std::lock_guard lock(mutex_);
  return comm_;
}

bool NcclGroup::abort(const std::function<bool()>& nothing_runs) {
  // Let no thread into NCCL any more, and wait for the one that is inside.
  std::unique_lock lock(mutex_);
  if (aborted_) return !left_behind_;
  aborted_ = true;
  left_.notify_all();
  left_.wait_for(lock, NcclAbort::kPatience, [&] { return !inside_; });
  NcclCommunicator* const comm = std::exchange(comm_, nullptr);
  left_behind_ = inside_;
  if (left_behind_ || comm == nullptr) return !left_behind_;
  abort_ = NcclAbort::begin(api_, device_, comm);
  while (!abort_->wait(Clock::now() + kBetweenLooks)) {
    if (nothing_runs != nullptr && nothing_runs()) return true;
    if (abort_->is_late()) {
      left_behind_ = true;
      return false;
    }
  }
  return true;
}

void NcclGroup::leave() {
  const CurrentDevice current(device_);
  if (comm_ == nullptr) return;  // it never joined
  const Deadline deadline = Clock::now() + kLeavePatience;
  BackendError error;
  if (wait_until_ready(api_.comm_finalize(comm_), deadline, &error) == DDP_BACKEND_OK) {
    api_.comm_destroy(comm_);
  } else {
    abort();
  }
}

}  // namespace ddp::collectives
