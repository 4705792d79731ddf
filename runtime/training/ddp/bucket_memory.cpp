// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training/ddp/bucket_memory.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "collectives/backend_error.hpp"
#include "collectives/gpu/nccl_api.hpp"
#include "rendezvous/base/error.hpp"
#include "rendezvous/worker_contract.hpp"
#include "runtime/base/environment.hpp"

namespace ddp::runtime {
namespace {

using collectives::NcclGroup;
using collectives::NcclMemory;
using rendezvous::Error;
using rendezvous::ErrorCode;
using rendezvous::contract::kNcclRegister;
using Registration = NcclGroup::Registration;
using Pieces = std::vector<std::unique_ptr<NcclMemory>>;  // null for a size of 0

// Returns every rank's number.
std::vector<std::uint64_t> numbers_of_all(HostExchange& exchange, std::uint64_t mine) {
  std::vector<std::uint64_t> all(static_cast<std::size_t>(exchange.ranks()));
  exchange.all_gather(&mine, sizeof(mine), all.data());
  return all;
}

bool all_equal(const std::vector<std::uint64_t>& numbers) {
  return std::all_of(numbers.begin(), numbers.end(), [&](std::uint64_t n) { return n == numbers.front(); });
}

// Returns what all ranks can do. Windows are at the same place only if all ranks have made and freed the same ones.
Registration agreed_registration(ProcessGroup& group, HostExchange& exchange) {
  const auto all = numbers_of_all(exchange, static_cast<std::uint64_t>(group.nccl()->best_registration()));
  const auto least = static_cast<Registration>(*std::min_element(all.begin(), all.end()));
  if (least == Registration::None) return least;
  return all_equal(numbers_of_all(exchange, group.nccl()->registration_history())) ? least : Registration::None;
}

// Returns nothing if this rank has no such memory.
Pieces allocate(const TensorPlace& place, const std::vector<std::size_t>& sizes, ProcessGroup& group) {
  Pieces pieces;
  try {
    for (const std::size_t size : sizes) {
      pieces.push_back(size == 0
                           ? nullptr
                           : std::make_unique<NcclMemory>(collectives::nccl_api(), place.gpu(), *group.nccl(), size));
    }
  } catch (const Error&) {
    pieces.clear();
  }
  return pieces;
}

void register_all(Pieces& pieces, Registration wanted, ProcessGroup& group) {
  for (const auto& piece : pieces) {
    if (piece == nullptr) continue;
    collectives::BackendError error;
    const NcclGroup::Call call = {nullptr, group.deadline(), &error};
    if (piece->register_with_group(wanted, call) == DDP_BACKEND_OK) continue;
    const std::string why = std::string("registering a bucket with NCCL: ") + error.text;
    group.abort(why);
    throw Error(ErrorCode::System, group.name() + ": " + why + " (" + kNcclRegister + "=0 does without)");
  }
}

// Returns a number that is equal on all ranks if the same pieces were registered in the same way.
std::uint64_t outcome(const Pieces& pieces) {
  std::uint64_t number = 1;
  for (const auto& piece : pieces) {
    if (piece != nullptr) number = number * 3 + static_cast<std::uint64_t>(piece->registration());
  }
  return number;
}

// Returns nothing if the ranks cannot all have registered memory.
Pieces registered_pieces(const TensorPlace& place, const std::vector<std::size_t>& sizes, ProcessGroup& group,
                         HostExchange& exchange) {
  const Registration registration = agreed_registration(group, exchange);
  if (registration == Registration::None) return {};
  Pieces pieces = allocate(place, sizes, group);
  const auto ready = numbers_of_all(exchange, pieces.size() == sizes.size() ? 1 : 0);
  if (std::find(ready.begin(), ready.end(), 0) != ready.end()) return {};
  register_all(pieces, registration, group);
  if (!all_equal(numbers_of_all(exchange, outcome(pieces)))) return {};
  return pieces;
}

}  // namespace

bool wants_registered_buckets() {
  const std::string value = process_environment(kNcclRegister).value_or("0");
  if (value == "0" || value == "1") return value == "1";
  throw Error(ErrorCode::InvalidArgument, std::string(kNcclRegister) + " is \"" + value + "\": expected 0 or 1");
}

std::vector<TensorMemory> make_bucket_memory(const TensorPlace& place, const std::vector<std::size_t>& sizes,
                                             ProcessGroup& group, HostExchange& exchange, bool registered) {
  Pieces pieces;
  if (place.is_gpu() && registered) pieces = registered_pieces(place, sizes, group, exchange);
  std::vector<TensorMemory> memory;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (!pieces.empty() && pieces[i] != nullptr) {
      memory.emplace_back(place, sizes[i], std::move(pieces[i]));
    } else {
      memory.emplace_back(place, sizes[i], &group);
    }
  }
  return memory;
}

}  // namespace ddp::runtime
