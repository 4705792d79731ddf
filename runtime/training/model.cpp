// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training/model.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace ddp::runtime {
namespace {

using rendezvous::Error;
using rendezvous::ErrorCode;

constexpr ProcessGroup::Milliseconds kGroupsOwnTimeout{0};
constexpr std::size_t kMebibyte = std::size_t{1} << 20;

ddp_buffer bytes_of(void* data, std::size_t size) { return {data, size, DDP_UINT8, {DDP_CPU, 0}}; }

std::string numbered(std::size_t i, const std::string& name) {
  return "parameter " + std::to_string(i) + (name.empty() ? "" : " (" + name + ")");
}

// What ranks compare of a parameter.
struct Shape {
  std::int64_t count;
  std::int64_t dtype;
  bool operator==(const Shape&) const = default;
};

std::string describe(const Shape& shape) {
  return std::to_string(shape.count) + " " + dtype_name(static_cast<std::int32_t>(shape.dtype)) + " elements";
}

// The first parameter in which a rank differs from rank 0, or -1, and what the rank has there.
struct Difference {
  std::int64_t index = -1;
  Shape have{0, 0};
};

template <typename T>
std::vector<T> gather(ProcessGroup& group, const T& mine) {
  std::vector<T> all(static_cast<std::size_t>(group.size()));
  T copy = mine;
  group.run(make_all_gather(bytes_of(&copy, sizeof(T)), bytes_of(all.data(), all.size() * sizeof(T)), group.place()),
            kGroupsOwnTimeout);
  return all;
}

}  // namespace

Model::Model(ProcessGroup& group, const ddp_parameter* parameters, std::size_t count, std::size_t first_bucket_bytes,
             std::size_t bucket_bytes)
    : group_(group),
      parameters_(checked(parameters, count)),
      plan_(plan(parameters_, first_bucket_bytes, bucket_bytes)),
      core_(names(parameters_), plan_),
      buckets_(plan_.size()) {
  compare_across_ranks();
  for (std::size_t b = 0; b < plan_.size(); ++b) {
    Bucket& bucket = buckets_[b];
    bucket.dtype = parameters_[plan_[b].front()].dtype;
    for (const std::size_t i : plan_[b]) bucket.count += parameters_[i].count;
    bucket.memory.resize(bucket.count * dtype_size(bucket.dtype));
    std::byte* next = bucket.memory.data();
    for (const std::size_t i : plan_[b]) {
      parameters_[i].in_bucket = next;
      next += parameters_[i].bytes();
    }
  }
  broadcast_values();
}

Model::~Model() {
  if (in_flight_.empty()) return;
  group_.abort("DistributedDataParallel was destroyed in the middle of a step");
  group_.drain();
}

std::vector<Model::Parameter> Model::checked(const ddp_parameter* parameters, std::size_t count) {
  if (parameters == nullptr && count > 0) throw Error(ErrorCode::InvalidArgument, "a model's parameters are null");
  std::vector<Parameter> result;
  for (std::size_t i = 0; i < count; ++i) {
    const ddp_parameter& p = parameters[i];
    const std::string name = p.name != nullptr ? p.name : "";
    check_buffer(numbered(i, name).c_str(), p.value, p.count, p.dtype, p.device);
    if (p.dtype != DDP_FLOAT32 && p.dtype != DDP_FLOAT64) {
      throw Error(ErrorCode::InvalidArgument,
                  numbered(i, name) + " is " + dtype_name(p.dtype) +
                      ": only float32 and float64 parameters have gradients that this version averages");
    }
    result.push_back({p.value, p.grad, p.count, p.dtype, name, nullptr});
  }
  return result;
}

std::vector<PlannedBucket> Model::plan(const std::vector<Parameter>& parameters, std::size_t first_bucket_bytes,
                                       std::size_t bucket_bytes) {
  std::vector<PlannedParameter> planned;
  for (const Parameter& p : parameters) planned.push_back({p.bytes(), p.dtype});
  return plan_buckets(planned, first_bucket_bytes > 0 ? first_bucket_bytes : kMebibyte,
                      bucket_bytes > 0 ? bucket_bytes : 25 * kMebibyte);
}

std::vector<std::string> Model::names(const std::vector<Parameter>& parameters) {
  std::vector<std::string> result;
  for (const Parameter& p : parameters) result.push_back(p.name);
  return result;
}

// Every rank compares itself with rank 0 and tells all others what it found, so that all of them throw the same error.
void Model::compare_across_ranks() {
  // The options are compared too: other bucket sizes mean other buckets, and Gloo would end the process.
  struct Totals {
    std::int64_t parameters;
    std::int64_t buckets;
  };
  const std::vector<Totals> totals =
      gather(group_, Totals{static_cast<std::int64_t>(parameters_.size()), static_cast<std::int64_t>(plan_.size())});
  const auto different = [&](auto member) {
    return static_cast<std::size_t>(
        std::find_if(totals.begin(), totals.end(), [&](const Totals& t) { return t.*member != totals[0].*member; }) -
        totals.begin());
  };
  if (const std::size_t r = different(&Totals::parameters); r < totals.size()) {
    throw Error(ErrorCode::Mismatch, "the model has " + std::to_string(totals[0].parameters) +
                                         " parameters on rank 0 but " + std::to_string(totals[r].parameters) +
                                         " on rank " + std::to_string(r) + ": every rank must build the same model");
  }
  std::vector<Shape> shapes;
  for (const Parameter& p : parameters_) shapes.push_back({static_cast<std::int64_t>(p.count), p.dtype});
  std::vector<Shape> reference = shapes;
  group_.run(make_broadcast(bytes_of(reference.data(), reference.size() * sizeof(Shape)), 0, group_.place()),
             kGroupsOwnTimeout);
  Difference mine;
  for (std::size_t i = 0; i < shapes.size() && mine.index < 0; ++i) {
    if (shapes[i] != reference[i]) mine = {static_cast<std::int64_t>(i), shapes[i]};
  }
  const std::vector<Difference> all = gather(group_, mine);
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r].index < 0) continue;
    const std::size_t i = static_cast<std::size_t>(all[r].index);
    throw Error(ErrorCode::Mismatch, numbered(i, parameters_[i].name) + " has " + describe(reference[i]) +
                                         " on rank 0 but " + describe(all[r].have) + " on rank " + std::to_string(r) +
                                         ": every rank must build the same model");
  }
  if (const std::size_t r = different(&Totals::buckets); r < totals.size()) {
    throw Error(ErrorCode::Mismatch, "the gradients make " + std::to_string(totals[0].buckets) +
                                         " buckets on rank 0 but " + std::to_string(totals[r].buckets) + " on rank " +
                                         std::to_string(r) + ": every rank must set the same bucket sizes");
  }
}

// Rank 0's values to everyone; small parameters travel together.
void Model::broadcast_values() {
  std::vector<std::byte> packed;
  std::vector<Parameter*> members;
  const auto send = [&](void* data, std::size_t size) {
    group_.run(make_broadcast(bytes_of(data, size), 0, group_.place()), kGroupsOwnTimeout);
  };
  const auto send_packed = [&] {
    std::size_t size = 0;
    for (const Parameter* p : members) size += p->bytes();
    if (size == 0) return;
    packed.resize(size);
    std::byte* at = packed.data();
    for (const Parameter* p : members) at = std::copy_n(static_cast<const std::byte*>(p->value), p->bytes(), at);
    send(packed.data(), size);
    const std::byte* from = packed.data();
    for (Parameter* p : members) {
      std::copy_n(from, p->bytes(), static_cast<std::byte*>(p->value));
      from += p->bytes();
    }
    members.clear();
  };
  std::size_t waiting = 0;
  for (Parameter& p : parameters_) {
    if (p.bytes() >= kMebibyte) {
      send(p.value, p.bytes());
      continue;
    }
    members.push_back(&p);
    waiting += p.bytes();
    if (waiting < 4 * kMebibyte) continue;
    send_packed();
    waiting = 0;
  }
  send_packed();
}

void* Model::gradient(std::size_t i) {
  if (i >= parameters_.size()) {
    throw Error(ErrorCode::InvalidArgument,
                "there is no parameter " + std::to_string(i) + ": the model has " + std::to_string(parameters_.size()));
  }
  const Parameter& p = parameters_[i];
  return p.grad != nullptr ? p.grad : p.in_bucket;
}

void Model::mark_ready(std::size_t i) {
  to_launch_.clear();
  if (!core_.mark_ready(i, to_launch_)) return;
  const Parameter& p = parameters_[i];
  const void* from = p.grad != nullptr ? p.grad : p.in_bucket;
  scale(p.in_bucket, from, p.count, p.dtype, share_of(group_.size(), p.dtype));
  for (const std::size_t bucket : to_launch_) launch(bucket);
}

void Model::launch(std::size_t b) {
  Bucket& bucket = buckets_[b];
  const ddp_buffer buffer = {bucket.memory.data(), bucket.count, bucket.dtype, {DDP_CPU, 0}};
  in_flight_.push_back(group_.issue(make_all_reduce(buffer, {DDP_SUM, 1}), kGroupsOwnTimeout));
}

void Model::synchronize() {
  if (!core_.synchronize()) return;
  for (const std::uint64_t sequence : in_flight_) group_.wait(sequence);
  in_flight_.clear();
  for (const Parameter& p : parameters_) {
    if (p.grad != nullptr) std::copy_n(p.in_bucket, p.bytes(), static_cast<std::byte*>(p.grad));
  }
}

}  // namespace ddp::runtime
