// SPDX-License-Identifier: BSD-3-Clause
// The Gloo backend, a module of its own (libddp_gloo.so): ddp_backend_table over Debian's libgloo, TCP transport.
//
// What this file covers up (measured on the 2022-05-18 snapshot):
//  * Gloo reports failure by exceptions of unrelated families; none of them leaves this file.
//  * Gloo has no abort. A receive that times out closes every connection of its context, which closeConnections() would
//    not do cleanly (close_connections); who waits is woken by gloo_context.hpp.
//  * Timeouts are per internal wait, not end to end: libddp aborts the group when a deadline passes.
//  * An allreduce of 0 elements or with the wrong size trips an assertion: libddp does not let those through.
//  * There is no reduce_scatter: see there.
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

#include "collectives/backend.h"
#include "collectives/backend_error.hpp"
#include "collectives/gloo/context.hpp"
#include "collectives/gloo/device.hpp"
#include "collectives/gloo/reduce_kernels.hpp"

struct ddp_backend_group {
  std::unique_ptr<ddp::collectives::GlooDevice> device;  // outlives what is connected through it
  std::shared_ptr<ddp::collectives::GlooContext> context;
  int rank = 0;
  int size = 1;
  std::vector<std::int32_t> job_ranks;
  std::atomic<bool> aborted{false};
  std::vector<std::uint8_t> scratch;  // the running collective's; grows to what the largest needs and stays
};

struct ddp_backend_message {
  std::unique_ptr<gloo::transport::UnboundBuffer> buffer;
  bool sends = false;
  char nothing = 0;  // what goes over the wire instead of 0 bytes
};

namespace {

using ddp::collectives::BackendError;
using ddp::collectives::set_text;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// Messages go by slots: 8 bits for the kind of operation, 32 for the tag, 8 within the operation. Gloo's own kinds are
// small numbers. Nobody ever sends to the first of these.
constexpr std::uint64_t kPoisonSlot = std::uint64_t{0x40} << 56;
constexpr std::uint64_t kProbeSlot = kPoisonSlot + 1;
constexpr std::uint64_t kReduceScatterSlot = std::uint64_t{0x41} << 56;
constexpr std::uint64_t kMessageSlot = std::uint64_t{0x42} << 56;

// Gloo's messages begin with "[its source file:line] ", of no use to our readers.
std::string without_source_position(const std::string& text) {
  const std::size_t end = text.find("] ");
  return text.starts_with('[') && end != std::string::npos ? text.substr(end + 2) : text;
}

struct StoreFailure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Gloo's store interface over the callbacks; every wait ends at one common deadline.
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
  // Another operation of this process closed the connections.
  if (text.find("Application timeout caused pair closure") != std::string::npos) return DDP_BACKEND_ABORTED;
  return DDP_BACKEND_PEER_LOST;
}

// A connection that has broken refuses a receive at once; on others it waits for what never comes.
bool has_broken(const ddp_backend_group& group, int peer) {
  char byte = 0;
  try {
    group.context->createUnboundBuffer(&byte, 1)->recv(peer, kProbeSlot);
    return false;
  } catch (const std::exception&) {
    return true;
  }
}

// "its connections to ranks 1, 3 broke: ", since Gloo tells addresses only. The connection to who died is among them;
// those to who gave up for it may be too.
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

// Runs body; whatever it throws becomes a status and a text.
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
    set_text(error, "Gloo failed without saying why");
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

// A receive that nobody answers, given up after 1 ms: the timeout closes every connection of the context, which the
// other ranks see. A peer whose connection is closed already throws at once instead and closes nothing, so the next one
// is tried.
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

// nullptr, and a text, if there is none.
ReduceFunction find_reduction(ddp_backend_dtype dtype, ddp_backend_reduce_op op, ddp_backend_error* error) {
  const ReduceFunction reduce = reduce_function(dtype, op);
  if (reduce == nullptr) set_text(error, "the gloo backend has no such reduction for this type");
  return reduce;
}

// Gloo takes the element type from a template argument, for its size only.
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

// Gloo only reads from inputs, but its buffers are not const.
std::uint8_t* bytes_of(const void* input) { return static_cast<std::uint8_t*>(const_cast<void*>(input)); }

// What every collective of Gloo has in common. prepare(options) adds what is its own.
template <typename Options, typename Prepare>
ddp_backend_status perform(void (*collective)(Options&), ddp_backend_group* group, std::uint32_t tag,
                           std::int64_t timeout_ms, ddp_backend_error* error, Prepare prepare) {
  return guarded(group, error, [&] {
    std::remove_const_t<Options> options(group->context);  // some take them as const
    prepare(options);
    options.setTag(tag);
    options.setTimeout(milliseconds(timeout_ms));
    collective(options);
  });
}

// True if there is nobody to talk to, or nothing to say: then the output is the input.
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

// A ring. What becomes rank r's part starts at rank r + 1 and comes by all the others; each adds its own to it:
//
//     part 2 of three ranks:   0: input -> 1: + input -> 2: + input = output
//
// So the order of a sum depends on the part and the number of ranks only.
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
