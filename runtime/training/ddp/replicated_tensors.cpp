// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training/ddp/replicated_tensors.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>

#include "runtime/collective/make_operation.hpp"

namespace ddp::runtime {
namespace {

using rendezvous::Error;
using rendezvous::ErrorCode;

constexpr std::size_t kLarge = std::size_t{1} << 20;   // bytes; a tensor this large travels alone
constexpr std::size_t kPacked = std::size_t{4} << 20;  // bytes of small tensors that travel together
constexpr char kSameModelAdvice[] = ": every rank must build the same model";

void broadcast(ProcessGroup& group, const TensorPlace& place, void* data, std::size_t size, int root) {
  group.run(make_broadcast({data, size, DDP_UINT8, place.device()}, root, group.place()));
}

// Returns what each rank has, in the order of ranks.
template <typename T>
std::vector<T> gather(HostExchange& exchange, std::span<T> mine) {
  std::vector<T> all(static_cast<std::size_t>(exchange.ranks()) * mine.size());
  exchange.all_gather(mine.data(), mine.size_bytes(), all.data());
  return all;
}

// As much of a text as fits into a message of fixed size.
using Line = std::array<char, 256>;
Line line_of(const std::string& text) {
  Line line{};
  std::memcpy(line.data(), text.data(), std::min(text.size(), line.size() - 1));
  return line;
}

// Returns what ranks compare of each tensor: type, number of dimensions, dimensions.
std::vector<std::int64_t> facts_of(const ReplicatedTensors& tensors) {
  std::vector<std::int64_t> facts;
  for (const ReplicatedTensor& t : tensors) {
    facts.push_back(t.dtype);
    facts.push_back(static_cast<std::int64_t>(t.shape.size()));
    facts.insert(facts.end(), t.shape.begin(), t.shape.end());
  }
  return facts;
}

// Returns where the facts about one tensor end.
std::size_t end_of(const std::vector<std::int64_t>& facts, std::size_t begin) {
  return begin + 2 + static_cast<std::size_t>(facts[begin + 1]);
}

std::string describe(const std::vector<std::int64_t>& facts, std::size_t begin) {
  const std::size_t end = end_of(facts, begin);
  const char* type = dtype_name(static_cast<std::int32_t>(facts[begin]));
  if (end - begin == 3) return std::to_string(facts[begin + 2]) + " " + type + " elements";
  std::string text = std::string("the ") + type + " shape [";
  for (std::size_t at = begin + 2; at < end; ++at) text += (at > begin + 2 ? ", " : "") + std::to_string(facts[at]);
  return text + "]";
}

// The index of the first tensor in which a rank differs from rank 0, or -1, and a description of
// the rank's own tensor.
struct Difference {
  std::int64_t index = -1;
  Line have{};
};

Difference find_difference(const std::vector<std::int64_t>& mine, const std::vector<std::int64_t>& reference) {
  std::size_t here = 0;
  std::size_t there = 0;
  for (std::int64_t index = 0; here < mine.size(); ++index) {
    const std::size_t mine_end = end_of(mine, here);
    const std::size_t reference_end = end_of(reference, there);
    const bool same = std::equal(mine.begin() + static_cast<std::ptrdiff_t>(here),
                                 mine.begin() + static_cast<std::ptrdiff_t>(mine_end),
                                 reference.begin() + static_cast<std::ptrdiff_t>(there),
                                 reference.begin() + static_cast<std::ptrdiff_t>(reference_end));
    if (!same) {
      return {index, line_of(describe(mine, here))};
    }
    here = mine_end;
    there = reference_end;
  }
  return {};
}

std::string describe_nth(const std::vector<std::int64_t>& facts, std::int64_t index) {
  std::size_t begin = 0;
  while (index-- > 0) begin = end_of(facts, begin);
  return describe(facts, begin);
}

TensorPlace place_of(const ProcessGroup& group, const std::string& name, ddp_device device) {
  if (device.kind == DDP_CPU) return {};
  const std::string where = name + " is on cuda:" + std::to_string(device.index);
  if (device.kind != DDP_CUDA) throw Error(ErrorCode::InvalidArgument, name + " is on a device of unknown kind");
  std::shared_ptr<collectives::CudaDevice> gpu = group.gpu();
  if (gpu == nullptr) {
    throw Error(ErrorCode::InvalidArgument,
                where + ", for which " + group.name() + " has no backend: give it \"nccl\", or \"cpu:gloo,cuda:nccl\"");
  }
  if (gpu->index() == device.index) return TensorPlace(std::move(gpu));
  throw Error(ErrorCode::InvalidArgument, where + " in a process that works on cuda:" + std::to_string(gpu->index()) +
                                              " (from its LOCAL_RANK or its options)");
}

std::vector<std::int64_t> shape_of(const std::string& name, const ddp_parameter& tensor) {
  if (tensor.shape == nullptr && tensor.rank > 0) {
    throw Error(ErrorCode::InvalidArgument, name + " has " + std::to_string(tensor.rank) + " dimensions but no shape");
  }
  if (tensor.shape == nullptr) return {static_cast<std::int64_t>(tensor.count)};
  std::vector<std::int64_t> shape(tensor.shape, tensor.shape + tensor.rank);
  std::int64_t product = 1;
  bool fits = true;
  for (const std::int64_t size : shape) fits &= size >= 0 && !__builtin_mul_overflow(product, size, &product);
  if (fits && static_cast<std::size_t>(product) == tensor.count) return shape;
  throw Error(ErrorCode::InvalidArgument,
              name + " has " + std::to_string(tensor.count) + " elements, but its shape has another number");
}

}  // namespace

ReplicatedTensors replicated(const ProcessGroup& group, const char* kind, const ddp_parameter* tensors,
                             std::size_t count) {
  if (tensors == nullptr && count > 0) {
    throw Error(ErrorCode::InvalidArgument, std::string("a model's ") + kind + "s are null");
  }
  ReplicatedTensors result;
  for (std::size_t i = 0; i < count; ++i) {
    const ddp_parameter& t = tensors[i];
    std::string name = std::string(kind) + " " + std::to_string(i);
    if (t.name != nullptr && *t.name != '\0') name += std::string(" (") + t.name + ")";
    check_elements(name.c_str(), t.value, t.count, t.dtype);
    TensorPlace place = place_of(group, name, t.device);
    std::vector<std::int64_t> shape = shape_of(name, t);
    result.push_back({std::move(name), std::move(place), t.value, t.count, t.dtype, std::move(shape)});
  }
  return result;
}

void compare_numbers(HostExchange& exchange, const std::vector<Agreed>& numbers) {
  std::vector<std::int64_t> mine;
  for (const Agreed& number : numbers) mine.push_back(number.value);
  const std::vector<std::int64_t> all = gather(exchange, std::span(mine));
  for (std::size_t k = 0; k < numbers.size(); ++k) {
    for (std::size_t at = k; at < all.size(); at += numbers.size()) {
      if (all[at] == all[k]) continue;
      throw Error(ErrorCode::Mismatch, numbers[k].before + std::to_string(all[k]) + numbers[k].after +
                                           " on rank 0 but " + std::to_string(all[at]) + " on rank " +
                                           std::to_string(at / numbers.size()) + ": " + numbers[k].advice);
    }
  }
}

// Every rank compares itself with rank 0 and sends its result to all others, so that all of them
// throw the same error.
void compare_shapes(HostExchange& exchange, const ReplicatedTensors& tensors) {
  const std::vector<std::int64_t> mine = facts_of(tensors);
  // Rank 0's facts are the reference.
  auto size = static_cast<std::int64_t>(mine.size());
  exchange.broadcast(&size, sizeof(size), 0);
  std::vector<std::int64_t> reference = mine;
  reference.resize(static_cast<std::size_t>(size));
  exchange.broadcast(reference.data(), reference.size() * sizeof(reference[0]), 0);
  // Every rank learns every rank's first difference.
  Difference found = find_difference(mine, reference);
  const std::vector<Difference> all = gather(exchange, std::span(&found, 1));
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r].index < 0) continue;
    throw Error(ErrorCode::Mismatch, tensors[static_cast<std::size_t>(all[r].index)].name + " has " +
                                         describe_nth(reference, all[r].index) + " on rank 0 but " +
                                         all[r].have.data() + " on rank " + std::to_string(r) + kSameModelAdvice);
  }
}

bool holds_on_all_ranks(HostExchange& exchange, bool here) {
  std::uint8_t holds = here ? 1 : 0;
  exchange.all_reduce(&holds, 1, DDP_MIN);
  return holds != 0;
}

void check_on_all_ranks(HostExchange& exchange, const std::function<void()>& check) {
  std::string why;
  try {
    check();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::InvalidArgument) throw;
    why = error.what();
  }
  Line mine = line_of(why);
  const std::vector<Line> all = gather(exchange, std::span(&mine, 1));
  if (!why.empty()) throw Error(ErrorCode::InvalidArgument, why);
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r][0] != 0) throw Error(ErrorCode::InvalidArgument, "rank " + std::to_string(r) + ": " + all[r].data());
  }
}

void TensorBroadcast::run(ProcessGroup& group, const ReplicatedTensors& tensors, int root) {
  const ReplicatedTensor* const end = tensors.data() + tensors.size();
  const ReplicatedTensor* first = tensors.data();  // first of the small tensors not sent yet
  std::size_t waiting = 0;
  // Collect neighbouring small tensors in one place, and send them before a large one or when enough wait.
  for (const ReplicatedTensor* t = first; t != end; ++t) {
    if (t != first && t->place.is_gpu() != first->place.is_gpu()) {
      send_packed(group, first, t, root);
      first = t;
      waiting = 0;
    }
    if (t->bytes() < kLarge) {
      waiting += t->bytes();
      if (waiting < kPacked) continue;
      send_packed(group, first, t + 1, root);
    } else {
      send_packed(group, first, t, root);
      broadcast(group, t->place, t->data, t->bytes(), root);
    }
    first = t + 1;
    waiting = 0;
  }
  send_packed(group, first, end, root);
}

void TensorBroadcast::send_packed(ProcessGroup& group, const ReplicatedTensor* first, const ReplicatedTensor* last,
                                  int root) {
  std::size_t size = 0;
  for (const ReplicatedTensor* t = first; t != last; ++t) size += t->bytes();
  if (size == 0) return;
  const TensorPlace& place = first->place;
  if (last - first == 1) return broadcast(group, place, first->data, size, root);
  Packed& packed = packed_[place.is_gpu() ? 1 : 0];
  if (!packed.order) packed.order.emplace(place);
  packed.order->enter();
  if (packed.memory.size() < size) packed.memory = TensorMemory(place, size);
  std::byte* at = packed.memory.data();
  for (const ReplicatedTensor* t = first; t != last; at += t++->bytes()) place.copy(at, t->data, t->bytes());
  broadcast(group, place, packed.memory.data(), size, root);
  at = packed.memory.data();
  for (const ReplicatedTensor* t = first; t != last; at += t++->bytes()) place.copy(t->data, at, t->bytes());
  packed.order->leave();
}

}  // namespace ddp::runtime
