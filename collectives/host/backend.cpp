// SPDX-License-Identifier: BSD-3-Clause
// The table of the backend "ddp". No exception leaves this file.
#include "collectives/host/backend.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "collectives/backend_error.hpp"
#include "collectives/element_types.hpp"
#include "collectives/host/failure.hpp"
#include "collectives/host/host_group.hpp"
#include "collectives/host/nodes/own_place.hpp"
#include "collectives/reduce_op.hpp"
#include "rendezvous/worker_contract.hpp"

struct ddp_backend_message {
  std::unique_ptr<ddp::collectives::Message> message;
};

namespace ddp::collectives {
namespace {

enum class Kind : std::uint32_t {
  AllReduce = 1,
  Reduce,
  Broadcast,
  AllGather,
  Gather,
  Scatter,
  ReduceScatter,
  AllToAll,
  Barrier,
  AllGatherV,
  Allocate
};

// Returns a number that tells most calls from each other.
std::uint32_t fingerprint(Kind kind, std::uint64_t a = 0, std::uint64_t b = 0, std::uint64_t c = 0) {
  std::uint64_t mixed = 0;
  for (const std::uint64_t part : {static_cast<std::uint64_t>(kind), a, b, c}) {
    mixed = (mixed ^ part) * 0x9e3779b97f4a7c15U;
    mixed ^= mixed >> 32;
  }
  return static_cast<std::uint32_t>(mixed);
}

template <typename Body>
ddp_backend_status guarded(ddp_backend_error* error, Body&& body) noexcept {
  try {
    body();
    return DDP_BACKEND_OK;
  } catch (const Failure& e) {
    set_text(error, e.what());
    return e.status();
  } catch (const std::exception& e) {
    set_text(error, e.what());
  }
  return DDP_BACKEND_ERROR;
}

// Runs a collective.
template <typename Body>
ddp_backend_status perform(ddp_backend_group* group, std::uint32_t what, std::int64_t timeout_ms,
                           ddp_backend_error* error, Body&& body) noexcept {
  return guarded(error, [&] {
    group->start(what, timeout_ms);
    try {
      body();
    } catch (...) {
      group->collectives->abandon();
      throw;
    }
  });
}

// Sets `bytes` to the sizes of as many counts of elements.
void to_bytes(std::vector<std::size_t>& bytes, const std::size_t* counts, std::uint32_t ranks,
              ddp_backend_dtype dtype) {
  bytes.assign(counts, counts + ranks);
  for (std::size_t& size : bytes) size *= element_size(dtype);
}

std::uint64_t type(ddp_backend_dtype dtype) { return static_cast<std::uint64_t>(dtype); }
const unsigned char* bytes_of(const void* data) { return static_cast<const unsigned char*>(data); }
unsigned char* bytes_of(void* data) { return static_cast<unsigned char*>(data); }

std::uint32_t local_world_size() {
  const char* text = std::getenv(rendezvous::contract::kLocalWorldSize);
  return text != nullptr ? static_cast<std::uint32_t>(std::strtoul(text, nullptr, 10)) : 0;
}

ddp_backend_status group_create(const ddp_backend_group_config* config, ddp_backend_group** out,
                                ddp_backend_error* error) {
  return guarded(error, [&] { *out = make_host_group(*config, own_place()); });
}

void group_destroy(ddp_backend_group* group) {
  guarded(nullptr, [&] { delete group; });
}

void group_abort(ddp_backend_group* group) {
  guarded(nullptr, [&] { group->abort(); });
}

ddp_backend_status no_reduction(ddp_backend_dtype dtype, ddp_backend_reduce_op op, ddp_backend_error* error) {
  const ElementFacts* facts = element_facts(dtype);
  const auto known = to_reduce_op(op);
  set_text(error, std::string("there is no reduction ") + (known ? reduce_op_name(*known) : "of this number") + " of " +
                      (facts != nullptr ? facts->name : "this type"));
  return DDP_BACKEND_UNSUPPORTED;
}

ddp_backend_status all_reduce(ddp_backend_group* group, void* data, std::size_t count, ddp_backend_dtype dtype,
                              ddp_backend_reduce_op op, std::uint32_t, std::int64_t timeout_ms,
                              ddp_backend_error* error) {
  const Reduction reduction(dtype, op);
  if (!reduction.exists()) return no_reduction(dtype, op, error);
  const std::uint32_t what = fingerprint(Kind::AllReduce, count, type(dtype) << 8 | static_cast<std::uint64_t>(op));
  return perform(group, what, timeout_ms, error, [&] {
    group->collectives->reduce(bytes_of(data), count, element_size(dtype), reduction, std::nullopt);
  });
}

ddp_backend_status reduce(ddp_backend_group* group, void* data, std::size_t count, ddp_backend_dtype dtype,
                          ddp_backend_reduce_op op, std::int32_t root, std::uint32_t, std::int64_t timeout_ms,
                          ddp_backend_error* error) {
  const Reduction reduction(dtype, op);
  if (!reduction.exists()) return no_reduction(dtype, op, error);
  const auto to = static_cast<std::uint32_t>(root);
  const std::uint32_t what = fingerprint(Kind::Reduce, count, type(dtype) << 8 | static_cast<std::uint64_t>(op), to);
  return perform(group, what, timeout_ms, error,
                 [&] { group->collectives->reduce(bytes_of(data), count, element_size(dtype), reduction, to); });
}

ddp_backend_status broadcast(ddp_backend_group* group, void* data, std::size_t count, ddp_backend_dtype dtype,
                             std::int32_t root, std::uint32_t, std::int64_t timeout_ms, ddp_backend_error* error) {
  const std::size_t bytes = count * element_size(dtype);
  const auto from = static_cast<std::uint32_t>(root);
  return perform(group, fingerprint(Kind::Broadcast, bytes, from, type(dtype)), timeout_ms, error,
                 [&] { group->collectives->broadcast(bytes_of(data), bytes, from); });
}

ddp_backend_status all_gather(ddp_backend_group* group, const void* input, void* output, std::size_t count,
                              ddp_backend_dtype dtype, std::uint32_t, std::int64_t timeout_ms,
                              ddp_backend_error* error) {
  const std::size_t bytes = count * element_size(dtype);
  return perform(group, fingerprint(Kind::AllGather, bytes, type(dtype)), timeout_ms, error, [&] {
    group->output_bytes.assign(group->size(), bytes);
    group->collectives->all_gather(bytes_of(input), bytes_of(output), group->output_bytes);
  });
}

ddp_backend_status all_gatherv(ddp_backend_group* group, const void* input, void* output, const std::size_t* counts,
                               ddp_backend_dtype dtype, std::uint32_t, std::int64_t timeout_ms,
                               ddp_backend_error* error) {
  std::uint64_t all = 0;
  for (std::uint32_t r = 0; r < group->size(); ++r) all = all * 31 + counts[r] * element_size(dtype);
  return perform(group, fingerprint(Kind::AllGatherV, all, type(dtype)), timeout_ms, error, [&] {
    to_bytes(group->output_bytes, counts, group->size(), dtype);
    group->collectives->all_gather(bytes_of(input), bytes_of(output), group->output_bytes);
  });
}

ddp_backend_status gather(ddp_backend_group* group, const void* input, void* output, std::size_t count,
                          ddp_backend_dtype dtype, std::int32_t root, std::uint32_t, std::int64_t timeout_ms,
                          ddp_backend_error* error) {
  const std::size_t bytes = count * element_size(dtype);
  const auto to = static_cast<std::uint32_t>(root);
  return perform(group, fingerprint(Kind::Gather, bytes, to, type(dtype)), timeout_ms, error,
                 [&] { group->collectives->gather(bytes_of(input), bytes_of(output), bytes, to); });
}

ddp_backend_status scatter(ddp_backend_group* group, const void* input, void* output, std::size_t count,
                           ddp_backend_dtype dtype, std::int32_t root, std::uint32_t, std::int64_t timeout_ms,
                           ddp_backend_error* error) {
  const std::size_t bytes = count * element_size(dtype);
  const auto from = static_cast<std::uint32_t>(root);
  return perform(group, fingerprint(Kind::Scatter, bytes, from, type(dtype)), timeout_ms, error,
                 [&] { group->collectives->scatter(bytes_of(input), bytes_of(output), bytes, from); });
}

ddp_backend_status reduce_scatter(ddp_backend_group* group, const void* input, void* output, std::size_t count,
                                  ddp_backend_dtype dtype, ddp_backend_reduce_op op, std::uint32_t,
                                  std::int64_t timeout_ms, ddp_backend_error* error) {
  const Reduction reduction(dtype, op);
  if (!reduction.exists()) return no_reduction(dtype, op, error);
  const std::uint32_t what = fingerprint(Kind::ReduceScatter, count, type(dtype) << 8 | static_cast<std::uint64_t>(op));
  return perform(group, what, timeout_ms, error, [&] {
    group->collectives->reduce_scatter(bytes_of(input), bytes_of(output), count, element_size(dtype), reduction);
  });
}

ddp_backend_status all_to_all(ddp_backend_group* group, const void* input, const std::size_t* input_counts,
                              void* output, const std::size_t* output_counts, ddp_backend_dtype dtype, std::uint32_t,
                              std::int64_t timeout_ms, ddp_backend_error* error) {
  return perform(group, fingerprint(Kind::AllToAll, type(dtype)), timeout_ms, error, [&] {
    to_bytes(group->input_bytes, input_counts, group->size(), dtype);
    to_bytes(group->output_bytes, output_counts, group->size(), dtype);
    group->collectives->all_to_all(bytes_of(input), group->input_bytes, bytes_of(output), group->output_bytes);
  });
}

ddp_backend_status barrier(ddp_backend_group* group, std::uint32_t, std::int64_t timeout_ms, ddp_backend_error* error) {
  return perform(group, fingerprint(Kind::Barrier), timeout_ms, error, [&] { group->collectives->barrier(); });
}

ddp_backend_status send(ddp_backend_group* group, const void* data, std::size_t bytes, std::int32_t peer,
                        std::uint64_t tag, ddp_backend_message** out, ddp_backend_error* error) {
  return guarded(error, [&] {
    *out = new ddp_backend_message{group->messages.send(data, bytes, static_cast<std::uint32_t>(peer), tag)};
  });
}

ddp_backend_status receive(ddp_backend_group* group, void* data, std::size_t bytes, std::int32_t peer,
                           std::uint64_t tag, ddp_backend_message** out, ddp_backend_error* error) {
  return guarded(error, [&] {
    std::optional<std::uint32_t> from;
    if (peer != DDP_BACKEND_ANY_RANK) from = static_cast<std::uint32_t>(peer);
    *out = new ddp_backend_message{group->messages.receive(data, bytes, from, tag)};
  });
}

ddp_backend_status message_wait(ddp_backend_group* group, ddp_backend_message* message, std::int64_t timeout_ms,
                                std::int32_t* peer, ddp_backend_error* error) {
  return guarded(error, [&] {
    group->messages.wait(*message->message, timeout_ms, timeout_ms > 0 ? group->most_looks() : 0);
    *peer = message->message->peer;
  });
}

void message_free(ddp_backend_message* message) {
  guarded(nullptr, [&] {
    message->message->owner->forget(*message->message);
    delete message;
  });
}

// Returns the numbers in the job of the group's ranks.
std::vector<std::int32_t> numbers_of_ranks(const ddp_backend_group_config& config) {
  std::vector<std::int32_t> numbers(static_cast<std::size_t>(config.size));
  std::iota(numbers.begin(), numbers.end(), 0);
  if (config.job_ranks != nullptr) numbers.assign(config.job_ranks, config.job_ranks + config.size);
  return numbers;
}

// Returns zeros for std::free().
void* ordinary_memory(std::size_t bytes) {
  const std::size_t whole_lines = (bytes / kLine + 1) * kLine;
  void* const memory = std::aligned_alloc(kLine, whole_lines);
  if (memory == nullptr) throw std::bad_alloc();
  return std::memset(memory, 0, whole_lines);
}

ddp_backend_status allocate(ddp_backend_group* group, std::size_t bytes, std::uint32_t, std::int64_t timeout_ms,
                            void** out, ddp_backend_error* error) {
  return guarded(error, [&] {
    group->start(fingerprint(Kind::Allocate, bytes), timeout_ms);
    void* const shared = group->collectives->allocate(bytes);
    *out = shared != nullptr ? shared : ordinary_memory(bytes);
  });
}

void release(ddp_backend_group* group, void* memory) {
  guarded(nullptr, [&] {
    if (!group->collectives->free(memory)) std::free(memory);
  });
}

constexpr ddp_backend_table kTable = {
    .abi_version = DDP_BACKEND_ABI_VERSION,
    .struct_size = sizeof(ddp_backend_table),
    .name = "ddp",
    .group_create = &group_create,
    .group_destroy = &group_destroy,
    .group_abort = &group_abort,
    .all_reduce = &all_reduce,
    .reduce = &reduce,
    .broadcast = &broadcast,
    .all_gather = &all_gather,
    .gather = &gather,
    .scatter = &scatter,
    .reduce_scatter = &reduce_scatter,
    .all_to_all = &all_to_all,
    .barrier = &barrier,
    .all_gatherv = &all_gatherv,
    .send = &send,
    .receive = &receive,
    .message_wait = &message_wait,
    .message_free = &message_free,
    .features = DDP_BACKEND_REDUCES_16_BIT | DDP_BACKEND_POLLS_MESSAGES,
    .allocate = &allocate,
    .release = &release,
};

}  // namespace

const ddp_backend_table& host_backend() { return kTable; }

ddp_backend_group* make_host_group(const ddp_backend_group_config& config, const OwnPlace& place) {
  const auto size = static_cast<std::uint32_t>(config.size);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(config.init_timeout_ms);
  const SegmentPlan plan = plan_segment(size, usual_ring_bytes(), ddp_backend_group::live_groups());
  Formation formed = form(config, place, plan, deadline);
  Met& met = formed.met;
  const auto own = std::find(met.ranks.begin(), met.ranks.end(), static_cast<std::uint32_t>(config.rank));
  const auto own_place = static_cast<std::uint32_t>(own - met.ranks.begin());
  auto group = std::make_unique<ddp_backend_group>(
      std::move(met.segment), own_place, std::move(met.ranks), numbers_of_ranks(config), local_world_size(),
      std::move(formed.others), std::move(met.alarm), std::move(formed.numa));
  group->watch(std::move(met.lifelines), std::move(met.own_lifeline));
  group->link(Notes(config.store, deadline));
  return group.release();
}

void move_to(ddp_backend_message& receive, void* memory) { receive.message->owner->move_to(*receive.message, memory); }

}  // namespace ddp::collectives
