// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/device_collectives.hpp"

#include <utility>

#include "collectives/backend_error.hpp"
#include "rendezvous/base/error.hpp"
#include "runtime/collective/describe_operation.hpp"

namespace ddp::runtime {
namespace {

using collectives::CudaResult;
using collectives::CurrentDevice;
using collectives::NcclGroup;
using rendezvous::invalid_argument;

}  // namespace

DeviceCollectives::DeviceCollectives(std::shared_ptr<collectives::CudaDevice> device,
                                     std::unique_ptr<collectives::NcclGroup> nccl, GroupPlace place)
    : device_(std::move(device)),
      side_(std::make_unique<collectives::SideStream>(*device_)),
      nccl_(std::move(nccl)),
      made_(*device_),
      place_(place),
      even_counts_(static_cast<std::size_t>(place.size)) {}

DeviceCollectives::~DeviceCollectives() {
  const bool is_leaked = nccl_->left_behind();
  nccl_.reset();
  if (!is_leaked) return;
  side_.release();  // NOLINT(bugprone-unused-return-value): destroying what a kernel still uses would wait for it
  new std::shared_ptr<collectives::CudaDevice>(device_);
}

void DeviceCollectives::check(const Operation& o) const {
  const std::string name = operation_name(o.kind);
  if (o.device != kNoDevice && o.device != device()) {
    invalid_argument(name + ": memory of cuda:" + std::to_string(o.device) + " in a process that works on cuda:" +
                     std::to_string(device()) + " (from its LOCAL_RANK or its options)");
  }
  if (o.kind == OperationKind::Receive && o.root == kAnyRank) {
    invalid_argument(name + ": NCCL receives from one rank; name it");
  }
  const std::string refusal = o.reduces() ? NcclGroup::why_no_reduction(o.dtype, o.reduce_op) : "";
  if (!refusal.empty()) invalid_argument(name + ": " + refusal);
}

ddp_backend_status DeviceCollectives::start(const Operation& operation, collectives::CudaStream* caller,
                                            Deadline deadline, Event& done, ddp_backend_error* error) {
  const collectives::CudaApi& cuda = device_->api();
  const CurrentDevice current(*device_);
  if (done == nullptr) done = std::make_unique<collectives::DeviceEvent>(*device_);
  CudaResult result = cuda.event_record(made_.get(), caller);
  if (result == CudaResult::Success) result = cuda.stream_wait_event(side_->get(), made_.get(), 0);
  if (result == CudaResult::Success) {
    const ddp_backend_status status = enqueue(operation, {side_->get(), deadline, error});
    if (status != DDP_BACKEND_OK) return status;
    result = cuda.event_record(done->get(), side_->get());
  }
  if (result == CudaResult::Success) return DDP_BACKEND_OK;
  collectives::set_text(error,
                        collectives::cuda_failure(cuda, result, "putting an operation behind the current stream"));
  return DDP_BACKEND_ERROR;
}

ddp_backend_status DeviceCollectives::enqueue(const Operation& o, const NcclGroup::Call& call) {
  const NcclGroup::Reduction reduction = {o.reduce_op, o.factor};
  if (o.kind == OperationKind::Barrier) return nccl_->barrier(call);
  if (o.bytes() == 0 && o.kind != OperationKind::AllToAll) return DDP_BACKEND_OK;
  switch (o.kind) {
    case OperationKind::AllReduce:
      return nccl_->all_reduce(o.data, o.count, o.dtype, reduction, call);
    case OperationKind::Reduce:
      return nccl_->reduce(o.data, o.count, o.dtype, reduction, o.root, call);
    case OperationKind::Broadcast:
      return nccl_->broadcast(o.data, o.count, o.dtype, o.root, call);
    case OperationKind::AllGather:
      return nccl_->all_gather(o.input, o.data, o.count, o.dtype, call);
    case OperationKind::Gather:
      return nccl_->gather(o.input, o.data, o.count, o.dtype, o.root, call);
    case OperationKind::Scatter:
      return nccl_->scatter(o.input, o.data, o.count, o.dtype, o.root, call);
    case OperationKind::ReduceScatter:
      return nccl_->reduce_scatter(o.input, o.data, o.count, o.dtype, reduction, call);
    case OperationKind::Send:
      return nccl_->send(o.input, o.count, o.dtype, o.root, call);
    case OperationKind::Receive:
      return nccl_->receive(o.data, o.count, o.dtype, o.root, call);
    case OperationKind::AllToAll:
      break;
    case OperationKind::Barrier:  // handled above
    case OperationKind::MonitoredBarrier:
    case OperationKind::BroadcastObject:
    case OperationKind::AllGatherObject:
    case OperationKind::GatherObject:
    case OperationKind::ScatterObject:
    case OperationKind::Allocate:
      return DDP_BACKEND_UNSUPPORTED;  // not on the memory of a device
  }
  if (o.input_counts.empty()) {
    even_counts_.assign(static_cast<std::size_t>(place_.size), o.count);
    return nccl_->all_to_all(o.input, even_counts_.data(), o.data, even_counts_.data(), o.dtype, call);
  }
  return nccl_->all_to_all(o.input, o.input_counts.data(), o.data, o.output_counts.data(), o.dtype, call);
}

bool DeviceCollectives::has_ended(const Event& done) const {
  if (done == nullptr) return true;
  const collectives::BesideCaptures beside(device_->api());
  return device_->api().event_query(done->get()) != CudaResult::NotReady;
}

ddp_backend_status DeviceCollectives::follow(collectives::CudaStream* stream, const Event& done,
                                             ddp_backend_error* error) const {
  const CurrentDevice current(*device_);
  const CudaResult result = device_->api().stream_wait_event(stream, done->get(), 0);
  if (result == CudaResult::Success) return DDP_BACKEND_OK;
  collectives::set_text(error, collectives::cuda_failure(device_->api(), result, "making the current stream wait"));
  return DDP_BACKEND_ERROR;
}

std::unique_ptr<DeviceCollectives> DeviceCollectives::split(int color, GroupPlace place, Deadline deadline) {
  if (!nccl_->can_split()) return nullptr;
  auto part = nccl_->split(color, place.rank, {place.rank, place.size}, deadline);
  return part != nullptr ? std::make_unique<DeviceCollectives>(device_, std::move(part), place) : nullptr;
}

void DeviceCollectives::abort() {
  if (!nccl_->abort([this] { return side_->is_idle(); })) left_behind_ = true;
}

}  // namespace ddp::runtime
