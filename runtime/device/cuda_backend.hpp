// SPDX-License-Identifier: BSD-3-Clause
// Chooses and opens the GPU of a process, and joins the NCCL communicator of a group.
#pragma once

#include <memory>
#include <string>

#include "collectives/gpu/cuda_device.hpp"
#include "collectives/gpu/nccl_group.hpp"
#include "runtime/collective/operation.hpp"
#include "runtime/device/device_collectives.hpp"

namespace ddp::runtime {

// Returns the CUDA device that a process works on: `given` ("cuda:1"), or if that is empty, the device with the number
// of its local rank among the `count` that it may use. Throws rendezvous::Error{InvalidArgument}.
int choose_device(const std::string& given, int local_rank, int count);

// Opens the library of the backend ("nccl") and the driver, and returns how many devices this process may use. Throws
// rendezvous::Error.
int count_devices(const std::string& backend);

// Opens the library of the backend, the driver and the device. Throws rendezvous::Error.
std::shared_ptr<collectives::CudaDevice> open_device(const std::string& backend, const std::string& given,
                                                     int local_rank);

// Joins the group's communicator; blocks until every rank has. Throws rendezvous::Error.
std::unique_ptr<DeviceCollectives> join_nccl(std::shared_ptr<collectives::CudaDevice> device, GroupPlace place,
                                             const collectives::NcclGroup::Joining& joining);

}  // namespace ddp::runtime
