// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/collective/object_collectives.hpp"

#include <cstring>
#include <new>

#include "collectives/backend_error.hpp"

namespace ddp::runtime {
namespace {

// Other ranks announce these sizes: a sum that wrapped around would allocate less than they send.
std::size_t sum(const std::vector<std::size_t>& sizes) {
  std::size_t total = 0;
  for (const std::size_t size : sizes) {
    if (__builtin_add_overflow(total, size, &total)) throw std::bad_array_new_length();
  }
  return total;
}

// The plain operations that a collective on objects is made of. Bytes are gathered and scattered by an all_to_all in
// which most ranks send nothing, since every backend has all_to_all with parts of different sizes.
struct Step {
  const Operation& operation;
  GroupPlace place;
  const PerformPlain& perform;

  ObjectExchange& exchange() const { return *operation.objects; }
  const ddp_bytes& mine() const { return exchange().given().front(); }
  bool is_root() const { return place.rank == operation.root; }
  std::size_t root() const { return static_cast<std::size_t>(operation.root); }
  std::vector<std::size_t> nothing() const { return std::vector<std::size_t>(static_cast<std::size_t>(place.size)); }

  ddp_backend_status gather_sizes(std::vector<std::size_t>& sizes) const {
    sizes = nothing();
    const std::size_t size = mine().size;
    return perform(
        {.kind = OperationKind::AllGather, .data = sizes.data(), .input = &size, .count = 1, .dtype = DDP_UINT64});
  }

  ddp_backend_status move_parts(const void* input, const std::vector<std::size_t>& input_sizes, void* output,
                                const std::vector<std::size_t>& output_sizes) const {
    return perform({.kind = OperationKind::AllToAll,
                    .data = output,
                    .input = input,
                    .dtype = DDP_UINT8,
                    .input_counts = input_sizes,
                    .output_counts = output_sizes});
  }
};

ddp_backend_status broadcast(const Step& step) {
  std::size_t size = step.is_root() ? step.mine().size : 0;
  Operation part = {
      .kind = OperationKind::Broadcast, .data = &size, .count = 1, .dtype = DDP_UINT64, .root = step.operation.root};
  if (const auto status = step.perform(part); status != DDP_BACKEND_OK) return status;
  if (step.is_root()) {
    step.exchange().receive_own(0);
    part.data = const_cast<void*>(step.mine().data);  // the root's memory is only read
  } else {
    part.data = step.exchange().allocate({size});
  }
  part.count = size;
  part.dtype = DDP_UINT8;
  return size > 0 ? step.perform(part) : DDP_BACKEND_OK;
}

ddp_backend_status all_gather(const Step& step) {
  std::vector<std::size_t> sizes;
  if (const auto status = step.gather_sizes(sizes); status != DDP_BACKEND_OK) return status;
  std::uint8_t* const received = step.exchange().allocate(sizes);
  if (sum(sizes) == 0) return DDP_BACKEND_OK;
  return step.perform({.kind = OperationKind::AllGather,
                       .data = received,
                       .input = step.mine().data,
                       .count = step.mine().size,
                       .dtype = DDP_UINT8,
                       .output_counts = sizes});
}

// All ranks learn the sizes, so that all know whether there is anything to send.
ddp_backend_status gather(const Step& step) {
  std::vector<std::size_t> sizes;
  if (const auto status = step.gather_sizes(sizes); status != DDP_BACKEND_OK) return status;
  std::vector<std::size_t> to = step.nothing();
  to[step.root()] = step.mine().size;
  std::uint8_t* const received = step.is_root() ? step.exchange().allocate(sizes) : nullptr;
  if (sum(sizes) == 0) return DDP_BACKEND_OK;
  return step.move_parts(step.mine().data, to, received, step.is_root() ? sizes : step.nothing());
}

ddp_backend_status scatter(const Step& step) {
  std::vector<std::size_t> sizes;
  for (const ddp_bytes& object : step.exchange().given()) sizes.push_back(object.size);
  std::size_t size = 0;
  const auto status = step.perform({.kind = OperationKind::Scatter,
                                    .data = &size,
                                    .input = sizes.data(),
                                    .count = 1,
                                    .dtype = DDP_UINT64,
                                    .root = step.operation.root});
  if (status != DDP_BACKEND_OK) return status;
  std::vector<std::size_t> from = step.nothing();
  from[step.root()] = size;
  std::unique_ptr<std::uint8_t[]> all;
  if (step.is_root()) {
    all = std::make_unique_for_overwrite<std::uint8_t[]>(sum(sizes));
    std::uint8_t* end = all.get();
    for (const ddp_bytes& object : step.exchange().given()) {
      if (object.size > 0) memcpy(end, object.data, object.size);
      end += object.size;
    }
  }
  std::uint8_t* const received = step.exchange().allocate({size});
  return step.move_parts(all.get(), step.is_root() ? sizes : step.nothing(), received, from);
}

}  // namespace

std::size_t ObjectExchange::given_bytes() const {
  std::size_t bytes = 0;
  for (const ddp_bytes& object : given_) bytes += object.size;
  return bytes;
}

std::uint8_t* ObjectExchange::allocate(const std::vector<std::size_t>& sizes) {
  memory_ = std::make_unique_for_overwrite<std::uint8_t[]>(sum(sizes));
  received_.clear();
  const std::uint8_t* end = memory_.get();
  for (const std::size_t size : sizes) {
    received_.push_back({end, size});
    end += size;
  }
  return memory_.get();
}

ddp_backend_status perform_object(const Operation& operation, GroupPlace place, const PerformPlain& perform,
                                  ddp_backend_error* error) {
  const Step step = {operation, place, perform};
  try {
    switch (operation.kind) {
      case OperationKind::BroadcastObject:
        return broadcast(step);
      case OperationKind::AllGatherObject:
        return all_gather(step);
      case OperationKind::GatherObject:
        return gather(step);
      case OperationKind::ScatterObject:
        return scatter(step);
      default:
        return DDP_BACKEND_UNSUPPORTED;
    }
  } catch (const std::bad_alloc&) {
    collectives::set_text(error, "no memory for as many bytes as the other ranks announce");
    return DDP_BACKEND_ERROR;
  }
}

void perform_object_alone(const Operation& operation) { operation.objects->receive_own(0); }

}  // namespace ddp::runtime
