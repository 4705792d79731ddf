// SPDX-License-Identifier: BSD-3-Clause
// How a process comes to its GPU, and a group to its NCCL communicator.
#pragma once

#include <memory>
#include <string>

#include "collectives/gpu/cuda_device.hpp"
#include "collectives/gpu/nccl_group.hpp"
#include "runtime/collective/operation.hpp"
#include "runtime/device/device_collectives.hpp"

namespace ddp::runtime {

// The CUDA device that a process works on: `given` ("cuda:1"), or if it is empty that of its local rank among the
// `count` that it may use. Throws rendezvous::Error{InvalidArgument}.
int choose_device(const std::string& given, int local_rank, int count);

// For the backend of that name ("nccl"): opens its library and the driver. Throws rendezvous::Error.
std::shared_ptr<collectives::CudaDevice> open_device(const std::string& backend, const std::string& given,
                                                     int local_rank);

// Blocks until every rank of the group has joined. Throws rendezvous::Error.
std::unique_ptr<DeviceCollectives> join_nccl(std::shared_ptr<collectives::CudaDevice> device, GroupPlace place,
                                             const collectives::NcclGroup::Joining& joining);

}  // namespace ddp::runtime
