// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/cuda_backend.hpp"

#include <utility>

#include "collectives/gpu/cuda_api.hpp"
#include "collectives/gpu/nccl_api.hpp"
#include "rendezvous/base/error.hpp"
#include "rendezvous/base/text.hpp"

namespace ddp::runtime {
namespace {

using rendezvous::invalid_argument;

}  // namespace

int choose_device(const std::string& given, int local_rank, int count) {
  const std::string visible = "this process may use " + std::to_string(count) + " (see CUDA_VISIBLE_DEVICES)";
  if (given.empty()) {
    if (local_rank < count) return local_rank;
    invalid_argument("local rank " + std::to_string(local_rank) + " has no CUDA device of its own: " + visible +
                     "; start fewer workers on this node, or give the device, such as \"cuda:0\"");
  }
  constexpr char kPrefix[] = "cuda:";
  const std::string number = given.starts_with(kPrefix) ? given.substr(sizeof(kPrefix) - 1) : "";
  const int index = rendezvous::parse_number<int>(number).value_or(-1);
  if (index < 0) {
    invalid_argument("\"" + given + "\" is no device: give \"cuda:\" and its number");
  }
  if (index >= count) invalid_argument("there is no " + given + ": " + visible);
  return index;
}

int count_devices(const std::string& backend) {
  if (backend != "nccl")
    invalid_argument("there is no backend \"" + backend + "\" for CUDA memory; this version has \"nccl\"");
  collectives::nccl_api();
  return collectives::CudaDevice::count(collectives::cuda_api());
}

std::shared_ptr<collectives::CudaDevice> open_device(const std::string& backend, const std::string& given,
                                                     int local_rank) {
  const int index = choose_device(given, local_rank, count_devices(backend));
  return std::make_shared<collectives::CudaDevice>(collectives::cuda_api(), index);
}

std::unique_ptr<DeviceCollectives> join_nccl(std::shared_ptr<collectives::CudaDevice> device, GroupPlace place,
                                             const collectives::NcclGroup::Joining& joining) {
  auto nccl = std::make_unique<collectives::NcclGroup>(collectives::nccl_api(), *device,
                                                       collectives::NcclGroup::Place{place.rank, place.size}, joining);
  return std::make_unique<DeviceCollectives>(std::move(device), std::move(nccl), place);
}

}  // namespace ddp::runtime
