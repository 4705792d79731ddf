// SPDX-License-Identifier: BSD-3-Clause
// The Gloo backend, a module of its own (libddp_gloo.so): ddp_backend_table over Debian's libgloo, TCP transport.
//
// Limitations of Gloo that this file works around (measured on the 2022-05-18 snapshot):
//  * Gloo reports failures by exceptions of unrelated types. None of them leaves this file.
//  * Gloo has no abort. close_connections() makes a receive time out, which closes every connection of the context;
//    Gloo's closeConnections() does not do that cleanly. context.hpp then wakes the threads that wait.
//  * Timeouts apply to each internal wait, not end to end. libddp aborts the group when a deadline passes.
//  * An allreduce of 0 elements or of the wrong size trips an assertion. libddp does not pass those on.
//  * Gloo has no reduce_scatter. ring_reduce_scatter() is ours.
#include <gloo/allgather.h>
#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/alltoallv.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/common/error.h>
#include <gloo/gather.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/store.h>
#include <gloo/scatter.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <numeric>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "collectives/backend_error.hpp"
#include "collectives/gloo/context.hpp"
#include "collectives/gloo/device.hpp"
#include "collectives/reduce_kernels.hpp"
#include "ddp/backend.h"

struct ddp_backend_group {
  std::unique_ptr<ddp::collectives::GlooDevice> device;  // outlives the connections made through it
  std::shared_ptr<ddp::collectives::GlooContext> context;
  int rank = 0;
  int size = 1;
  std::vector<std::int32_t> job_ranks;
  std::atomic<bool> aborted{false};
  std::vector<std::uint8_t> scratch;  // for the running collective; grows to the largest need and stays
};

struct ddp_backend_message {
  std::unique_ptr<gloo::transport::UnboundBuffer> buffer;
  bool sends = false;
  char nothing = 0;  // sent in place of 0 bytes
};

namespace {

using ddp::collectives::BackendError;
using ddp::collectives::set_text;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// Gloo addresses messages by slot numbers: 8 bits for the kind of operation, 32 for the tag, 8 within the operation.
// Its own kinds are small numbers. No rank ever sends to the first of these slots.
constexpr std::uint64_t kPoisonSlot = std::uint64_t{0x40} << 56;
constexpr std::uint64_t kProbeSlot = kPoisonSlot + 1;
constexpr std::uint64_t kReduceScatterSlot = std::uint64_t{0x41} << 56;
constexpr std::uint64_t kMessageSlot = std::uint64_t{0x42} << 56;

// Removes the "[source file:line] " that Gloo's error texts begin with.
std::string without_source_position(const std::string& text) {
  const std::size_t end = text.find("] ");
  return text.starts_with('[') && end != std::string::npos ? text.substr(end + 2) : text;
}

struct StoreFailure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Gloo's store interface over libddp's callbacks. Every wait ends at one common deadline.
class CallbackStore : public gloo::rendezvous::Store {
 public:
  CallbackStore(const ddp_backend_store& store, Clock::time_point deadline) : store_(store), deadline_(deadline) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    BackendError error;
    if (store_.set(store_.context, key.c_str(), data.data(), data.size(), &error) != 0) throw StoreFailure(error.text);
  }
  std::vector<char> get(const std::string& key) override {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline_ - Clock::now());
    return get_within(key, left);
  }
  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) get(key);
  }
  void wait(const std::vector<std::string>& keys, const milliseconds& timeout) override {
    const Clock::time_point until = std::min(deadline_, Clock::now() + timeout);
    for (const std::string& key : keys) {
      get_within(key, std::chrono::duration_cast<milliseconds>(until - Clock::now()));
    }
  }

 private:
  std::vector<char> get_within(const std::string& key, milliseconds left) {
    std::vector<char> value;
    BackendError error;
    const auto deliver = [](void* sink, const void* bytes, std::size_t size) {
      const char* begin = static_cast<const char*>(bytes);
      static_cast<std::vector<char>*>(sink)->assign(begin, begin + size);
    };
    const std::int64_t wait_ms = std::max<std::int64_t>(1, left.count());
    if (store_.get(store_.context, key.c_str(), wait_ms, &value, deliver, &error) != 0) throw StoreFailure(error.text);
    return value;
  }

  ddp_backend_store store_;
  Clock::time_point deadline_;
};

ddp_backend_status classify(const std::string& text) {
  if (text.find("Timed out") != std::string::npos || text.find("timed out") != std::string::npos) {
    return DDP_BACKEND_TIMEOUT;
  }
  // Another operation of this process timed out and closed the connections.
  if (text.find("Application timeout caused pair closure") != std::string::npos) return DDP_BACKEND_ABORTED;
  return DDP_BACKEND_PEER_LOST;
}

// Posts a receive that no rank answers: a broken connection refuses it at once, an intact one lets it wait.
bool has_broken(const ddp_backend_group& group, int peer) {
  char byte = 0;
  try {
    group.context->createUnboundBuffer(&byte, 1)->recv(peer, kProbeSlot);
    return false;
  } catch (const std::exception&) {
    return true;
  }
}

// Returns "its connections to ranks 1, 3 broke: ", since Gloo's texts name addresses only. The list includes the dead
// rank, and perhaps ranks that gave up because of it.
std::string describe_broken_connections(const ddp_backend_group& group) noexcept {
  try {
    std::string ranks;
    bool several = false;
    for (int peer = 0; peer < group.size; ++peer) {
      if (peer == group.rank || !has_broken(group, peer)) continue;
      several = !ranks.empty();
      ranks += (several ? ", " : "") + std::to_string(group.job_ranks[static_cast<std::size_t>(peer)]);
    }
    if (ranks.empty()) return "";
    return (several ? "its connections to ranks " : "its connection to rank ") + ranks + " broke: ";
  } catch (const std::exception&) {
    return "";
  }
}

// Runs body and turns any exception into a status and a text.
template <typename Body>
ddp_backend_status guarded(const ddp_backend_group* group, ddp_backend_error* error, Body&& body) noexcept {
  try {
    body();
    return DDP_BACKEND_OK;
  } catch (const gloo::IoException& e) {
    const bool is_ours = group != nullptr && group->aborted;
    const ddp_backend_status status = is_ours ? DDP_BACKEND_ABORTED : classify(e.what());
    const bool is_loss = group != nullptr && status == DDP_BACKEND_PEER_LOST;
    set_text(error, (is_loss ? describe_broken_connections(*group) : "") + without_source_position(e.what()));
    return status;
  } catch (const StoreFailure& e) {
    set_text(error, e.what());
    return classify(e.what()) == DDP_BACKEND_TIMEOUT ? DDP_BACKEND_TIMEOUT : DDP_BACKEND_ERROR;
  } catch (const std::exception& e) {
    set_text(error, without_source_position(e.what()));
  } catch (...) {
    set_text(error, "Gloo failed without a message");
  }
  return group != nullptr && group->aborted ? DDP_BACKEND_ABORTED : DDP_BACKEND_ERROR;
}

ddp_backend_status group_create(const ddp_backend_group_config* config, ddp_backend_group** out,
                                ddp_backend_error* error) {
  return guarded(nullptr, error, [&] {
    auto group = std::make_unique<ddp_backend_group>();
    group->rank = config->rank;
    group->size = config->size;
    for (int rank = 0; rank < config->size; ++rank) {
      group->job_ranks.push_back(config->job_ranks != nullptr ? config->job_ranks[rank] : rank);
    }
    if (config->size > 1) {
      group->device = std::make_unique<ddp::collectives::GlooDevice>(config->local_address);
      group->context = std::make_shared<ddp::collectives::GlooContext>(config->rank, config->size);
      const milliseconds timeout(config->init_timeout_ms);
      group->context->setTimeout(timeout);
      CallbackStore store(config->store, Clock::now() + timeout);
      group->context->connect(store, group->device->device());
    }
    *out = group.release();
  });
}

void group_destroy(ddp_backend_group* group) {
  guarded(group, nullptr, [&] { delete group; });
}

// Posts a receive that no rank answers and lets it time out after 1 ms. The timeout closes every connection of the
// context, which the other ranks notice. A peer whose connection is closed already throws at once and closes nothing,
// so the next peer is tried.
void close_connections(ddp_backend_group& group) {
  for (int step = 1; step < group.size; ++step) {
    const int peer = (group.rank + step) % group.size;
    BackendError error;
    guarded(nullptr, &error, [&] {
      char byte = 0;
      const auto buffer = group.context->createUnboundBuffer(&byte, 1);
      buffer->recv(peer, kPoisonSlot);
      buffer->waitRecv(milliseconds(1));
    });
    if (std::strstr(error.text, "Timed out") != nullptr) return;
  }
}

void group_abort(ddp_backend_group* group) {
  if (group->aborted.exchange(true) || group->size == 1) return;
  close_connections(*group);
  group->context->end_all_waits();
}

using ddp::collectives::element_size;
using ddp::collectives::reduce_function;
using ddp::collectives::ReduceFunction;

// Returns nullptr, and sets the error text, if there is none.
ReduceFunction find_reduction(ddp_backend_dtype dtype, ddp_backend_reduce_op op, ddp_backend_error* error) {
  const ReduceFunction reduce = reduce_function(dtype, op);
  if (reduce == nullptr) set_text(error, "the gloo backend has no such reduction for this type");
  return reduce;
}

// Gloo takes the element type as a template argument and uses only its size.
template <typename Options>
void set_output(Options& options, void* data, std::size_t count, ddp_backend_dtype dtype) {
  switch (element_size(dtype)) {
    case 1:
      options.setOutput(static_cast<std::uint8_t*>(data), count);
      break;
    case 2:
      options.setOutput(static_cast<std::uint16_t*>(data), count);
      break;
    case 4:
      options.setOutput(static_cast<std::uint32_t*>(data), count);
      break;
    default:
      options.setOutput(static_cast<std::uint64_t*>(data), count);
      break;
  }
}

// Removes const: Gloo only reads from inputs but takes them as non-const pointers.
std::uint8_t* bytes_of(const void* input) { return static_cast<std::uint8_t*>(const_cast<void*>(input)); }

// Runs one collective of Gloo. prepare(options) sets the options that only this collective has.
template <typename Options, typename Prepare>
ddp_backend_status perform(void (*collective)(Options&), ddp_backend_group* group, std::uint32_t tag,
                           std::int64_t timeout_ms, ddp_backend_error* error, Prepare prepare) {
  return guarded(group, error, [&] {
    std::remove_const_t<Options> options(group->context);  // some collectives take const options
    prepare(options);
    options.setTag(tag);
    options.setTimeout(milliseconds(timeout_ms));
    collective(options);
  });
}

// Returns true if the group has one rank or there is nothing to send. Then the output is a copy of the input.
bool copied_alone(const ddp_backend_group* group, const void* input, void* output, std::size_t bytes) {
  if (bytes > 0 && group->size == 1) std::memmove(output, input, bytes);
  return bytes == 0 || group->size == 1;
}

ddp_backend_status all_reduce(ddp_backend_group* group, void* data, std::size_t count, ddp_backend_dtype dtype,
                              ddp_backend_reduce_op op, std::uint32_t tag, std::int64_t timeout_ms,
                              ddp_backend_error* error) {
  const ReduceFunction reduction = find_reduction(dtype, op, error);
  if (reduction == nullptr) return DDP_BACKEND_UNSUPPORTED;
  if (group->size == 1 || count == 0) return DDP_BACKEND_OK;
  return perform(&gloo::allreduce, group, tag, timeout_ms, error, [&](gloo::AllreduceOptions& options) {
    set_output(options, data, count, dtype);
    options.setReduceFunction(reduction);
    options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
  });
}

ddp_backend_status reduce(ddp_backend_group* group, void* data, std::size_t count, ddp_backend_dtype dtype,
                          ddp_backend_reduce_op op, std::int32_t root, std::uint32_t tag, std::int64_t timeout_ms,
                          ddp_backend_error* error) {
  const ReduceFunction reduction = find_reduction(dtype, op, error);
  if (reduction == nullptr) return DDP_BACKEND_UNSUPPORTED;
  if (group->size == 1 || count == 0) return DDP_BACKEND_OK;
  return perform(&gloo::reduce, group, tag, timeout_ms, error, [&](gloo::ReduceOptions& options) {
    set_output(options, data, count, dtype);
    options.setReduceFunction(reduction);
    options.setRoot(root);
  });
}

ddp_backend_status broadcast(ddp_backend_group* group, void* data, std::size_t count, ddp_backend_dtype dtype,
                             std::int32_t root, std::uint32_t tag, std::int64_t timeout_ms, ddp_backend_error* error) {
  if (group->size == 1 || count == 0) return DDP_BACKEND_OK;
  return perform(&gloo::broadcast, group, tag, timeout_ms, error, [&](gloo::BroadcastOptions& options) {
    options.setOutput(static_cast<std::uint8_t*>(data), count * element_size(dtype));
    options.setRoot(root);
  });
}

ddp_backend_status all_gather(ddp_backend_group* group, const void* input, void* output, std::size_t count,
                              ddp_backend_dtype dtype, std::uint32_t tag, std::int64_t timeout_ms,
                              ddp_backend_error* error) {
  const std::size_t bytes = count * element_size(dtype);
  if (copied_alone(group, input, output, bytes)) return DDP_BACKEND_OK;
  return perform(&gloo::allgather, group, tag, timeout_ms, error, [&](gloo::AllgatherOptions& options) {
    options.setInput(bytes_of(input), bytes);
    options.setOutput(static_cast<std::uint8_t*>(output), bytes * static_cast<std::size_t>(group->size));
  });
}

ddp_backend_status gather(ddp_backend_group* group, const void* input, void* output, std::size_t count,
                          ddp_backend_dtype dtype, std::int32_t root, std::uint32_t tag, std::int64_t timeout_ms,
                          ddp_backend_error* error) {
  const std::size_t bytes = count * element_size(dtype);
  if (copied_alone(group, input, output, bytes)) return DDP_BACKEND_OK;
  return perform(&gloo::gather, group, tag, timeout_ms, error, [&](gloo::GatherOptions& options) {
    options.setInput(bytes_of(input), bytes);
    if (group->rank == root) {
      options.setOutput(static_cast<std::uint8_t*>(output), bytes * static_cast<std::size_t>(group->size));
    }
    options.setRoot(root);
  });
}

ddp_backend_status scatter(ddp_backend_group* group, const void* input, void* output, std::size_t count,
                           ddp_backend_dtype dtype, std::int32_t root, std::uint32_t tag, std::int64_t timeout_ms,
                           ddp_backend_error* error) {
  const std::size_t bytes = count * element_size(dtype);
  if (copied_alone(group, input, output, bytes)) return DDP_BACKEND_OK;
  return perform(&gloo::scatter, group, tag, timeout_ms, error, [&](gloo::ScatterOptions& options) {
    if (group->rank == root) {
      std::vector<std::uint8_t*> parts;
      parts.reserve(static_cast<std::size_t>(group->size));
      for (int rank = 0; rank < group->size; ++rank) {
        parts.push_back(bytes_of(input) + bytes * static_cast<std::size_t>(rank));
      }
      options.setInputs(std::move(parts), bytes);
    }
    options.setOutput(static_cast<std::uint8_t*>(output), bytes);
    options.setRoot(root);
  });
}

// Reduces in a ring. The part that ends at rank r starts at rank r + 1 and passes through all other ranks, each of
// which adds its own contribution:
//
//     part 2 of three ranks:   0: input -> 1: + input -> 2: + input = output
//
// So the order of a sum depends only on the part and the number of ranks.
void ring_reduce_scatter(ddp_backend_group* group, const std::uint8_t* input, std::uint8_t* output, std::size_t count,
                         std::size_t bytes, ReduceFunction reduce, std::uint64_t slot, milliseconds timeout) {
  const int size = group->size;
  const int right = (group->rank + 1) % size;
  const int left = (group->rank + size - 1) % size;
  const auto own_part = [&](int step) {
    return input + bytes * static_cast<std::size_t>((group->rank + 2 * size - 1 - step) % size);
  };
  group->scratch.resize(2 * bytes);
  std::uint8_t* to_send = group->scratch.data();
  std::uint8_t* received = to_send + bytes;
  std::memcpy(to_send, own_part(0), bytes);
  for (int step = 1; step < size; ++step) {
    const auto out = group->context->createUnboundBuffer(to_send, bytes);
    const auto in = group->context->createUnboundBuffer(received, bytes);
    in->recv(left, slot);
    out->send(right, slot);
    in->waitRecv(timeout);
    reduce(received, received, own_part(step), count);
    out->waitSend(timeout);
    std::swap(to_send, received);
  }
  std::memcpy(output, to_send, bytes);
}

ddp_backend_status reduce_scatter(ddp_backend_group* group, const void* input, void* output, std::size_t count,
                                  ddp_backend_dtype dtype, ddp_backend_reduce_op op, std::uint32_t tag,
                                  std::int64_t timeout_ms, ddp_backend_error* error) {
  const ReduceFunction reduction = find_reduction(dtype, op, error);
  if (reduction == nullptr) return DDP_BACKEND_UNSUPPORTED;
  const std::size_t bytes = count * element_size(dtype);
  if (copied_alone(group, input, output, bytes)) return DDP_BACKEND_OK;
  return guarded(group, error, [&] {
    ring_reduce_scatter(group, bytes_of(input), static_cast<std::uint8_t*>(output), count, bytes, reduction,
                        kReduceScatterSlot | std::uint64_t{tag} << 8, milliseconds(timeout_ms));
  });
}

ddp_backend_status all_to_all(ddp_backend_group* group, const void* input, const std::size_t* input_counts,
                              void* output, const std::size_t* output_counts, ddp_backend_dtype dtype,
                              std::uint32_t tag, std::int64_t timeout_ms, ddp_backend_error* error) {
  if (group->size == 1) {
    copied_alone(group, input, output, input_counts[0] * element_size(dtype));
    return DDP_BACKEND_OK;
  }
  const auto bytes_per_rank = [&](const std::size_t* counts) {
    std::vector<std::int64_t> bytes;
    bytes.reserve(static_cast<std::size_t>(group->size));
    for (int rank = 0; rank < group->size; ++rank) {
      bytes.push_back(static_cast<std::int64_t>(counts[rank] * element_size(dtype)));
    }
    return bytes;
  };
  return perform(&gloo::alltoallv, group, tag, timeout_ms, error, [&](gloo::AlltoallvOptions& options) {
    options.setInput(bytes_of(input), bytes_per_rank(input_counts));
    options.setOutput(static_cast<std::uint8_t*>(output), bytes_per_rank(output_counts));
  });
}

ddp_backend_status all_gatherv(ddp_backend_group* group, const void* input, void* output, const std::size_t* counts,
                               ddp_backend_dtype dtype, std::uint32_t tag, std::int64_t timeout_ms,
                               ddp_backend_error* error) {
  std::vector<std::size_t> bytes;
  for (int rank = 0; rank < group->size; ++rank) bytes.push_back(counts[rank] * element_size(dtype));
  const std::size_t mine = bytes[static_cast<std::size_t>(group->rank)];
  const std::size_t all = std::accumulate(bytes.begin(), bytes.end(), std::size_t{0});
  if (all == 0 || copied_alone(group, input, output, all)) return DDP_BACKEND_OK;
  return perform(&gloo::allgatherv, group, tag, timeout_ms, error, [&](gloo::AllgathervOptions& options) {
    options.setInput(bytes_of(input), mine);
    options.setOutput(static_cast<std::uint8_t*>(output), bytes);
  });
}

ddp_backend_status barrier(ddp_backend_group* group, std::uint32_t tag, std::int64_t timeout_ms,
                           ddp_backend_error* error) {
  if (group->size == 1) return DDP_BACKEND_OK;
  return perform(&gloo::barrier, group, tag, timeout_ms, error, [](gloo::BarrierOptions&) {});
}

std::unique_ptr<gloo::transport::UnboundBuffer> create_buffer(ddp_backend_group* group, ddp_backend_message& message,
                                                              void* data, std::size_t bytes) {
  if (bytes == 0) return group->context->createUnboundBuffer(&message.nothing, 1);
  return group->context->createUnboundBuffer(data, bytes);
}

ddp_backend_status send(ddp_backend_group* group, const void* data, std::size_t bytes, std::int32_t peer,
                        std::uint64_t tag, ddp_backend_message** out, ddp_backend_error* error) {
  return guarded(group, error, [&] {
    auto message = std::make_unique<ddp_backend_message>();
    message->buffer = create_buffer(group, *message, bytes_of(data), bytes);
    message->sends = true;
    message->buffer->send(peer, kMessageSlot | tag << 8);
    *out = message.release();
  });
}

ddp_backend_status receive(ddp_backend_group* group, void* data, std::size_t bytes, std::int32_t peer,
                           std::uint64_t tag, ddp_backend_message** out, ddp_backend_error* error) {
  return guarded(group, error, [&] {
    auto message = std::make_unique<ddp_backend_message>();
    message->buffer = create_buffer(group, *message, data, bytes);
    const std::uint64_t slot = kMessageSlot | tag << 8;
    if (peer == DDP_BACKEND_ANY_RANK) {
      std::vector<int> sources;
      for (int rank = 0; rank < group->size; ++rank) {
        if (rank != group->rank) sources.push_back(rank);
      }
      message->buffer->recv(sources, slot);
    } else {
      message->buffer->recv(peer, slot);
    }
    *out = message.release();
  });
}

ddp_backend_status message_wait(ddp_backend_group* group, ddp_backend_message* message, std::int64_t timeout_ms,
                                std::int32_t* peer, ddp_backend_error* error) {
  return guarded(group, error, [&] {
    int rank = -1;
    if (message->sends) {
      message->buffer->waitSend(&rank, milliseconds(timeout_ms));
    } else {
      message->buffer->waitRecv(&rank, milliseconds(timeout_ms));
    }
    *peer = rank;
  });
}

void message_free(ddp_backend_message* message) {
  guarded(nullptr, nullptr, [&] { delete message; });
}

constexpr ddp_backend_table kTable = {
    .abi_version = DDP_BACKEND_ABI_VERSION,
    .struct_size = sizeof(ddp_backend_table),
    .name = "gloo",
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
};

}  // namespace

extern "C" __attribute__((visibility("default"))) const ddp_backend_table* ddp_backend_open(std::uint32_t abi_version) {
  return abi_version == DDP_BACKEND_ABI_VERSION ? &kTable : nullptr;
}
