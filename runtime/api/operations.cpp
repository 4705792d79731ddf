// SPDX-License-Identifier: BSD-3-Clause
// Exported functions that issue operations of groups and wait for them, and memory for their buffers.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>

#include "ddp/ddp.h"
#include "rendezvous/base/error.hpp"
#include "runtime/api/arguments.hpp"
#include "runtime/api/c_guard.hpp"
#include "runtime/api/live_sessions.hpp"
#include "runtime/collective/describe_operation.hpp"
#include "runtime/collective/make_operation.hpp"
#include "runtime/collective/object_collectives.hpp"
#include "runtime/group/process_group.hpp"

namespace {

using ddp::runtime::group_of;
using ddp::runtime::guard;
using ddp::runtime::not_null;
using ddp::runtime::ObjectExchange;
using ddp::runtime::Operation;
using ddp::runtime::OperationKind;
using ddp::runtime::ProcessGroup;
using Milliseconds = std::chrono::milliseconds;

void exchange_objects(ProcessGroup& group, const ddp_operation& given) {
  ObjectExchange exchange;
  const Operation operation = make_operation(given, group.place(), &exchange);
  if (operation.kind != OperationKind::GatherObject || operation.root == group.rank()) {
    not_null(given.sink.deliver, "the sink's function");
  }
  group.run(operation, Milliseconds(given.timeout_ms));
  for (const ddp_bytes& object : exchange.received()) given.sink.deliver(given.sink.context, object);
}

}  // namespace

ddp_status ddp_issue(ddp_group* handle, const ddp_operation* operation, ddp_work* work) {
  return guard([&] {
    ProcessGroup& group = group_of(handle);
    const ddp_operation& given = not_null(operation, "the operation");
    const auto kind = static_cast<OperationKind>(given.kind);
    const bool on_objects = ddp::runtime::is_on_objects(kind);
    if (work != nullptr && (on_objects || kind == OperationKind::MonitoredBarrier)) {
      ddp::rendezvous::invalid_argument(std::string(operation_name(kind)) + ": it ends within its call; give no work");
    }
    if (on_objects) return exchange_objects(group, given);
    const Operation made = make_operation(given, group.place());
    if (work != nullptr) {
      *work = {handle, group.issue(made, Milliseconds(given.timeout_ms))};
      return;
    }
    const int peer = group.run(made, Milliseconds(given.timeout_ms));
    if (kind == OperationKind::Receive && given.sender != nullptr) *given.sender = peer;
  });
}

ddp_status ddp_allocate(ddp_group* group, size_t bytes, int64_t timeout_ms, void** memory) {
  return guard([&] {
    ProcessGroup& g = group_of(group);
    not_null(memory, "the pointer to fill in");
    *memory = g.allocate(bytes, Milliseconds(timeout_ms));
  });
}

void ddp_free(ddp_group* group, void* memory) {
  guard([&] {
    if (memory != nullptr) group_of(group).free(memory);
  });
}

ddp_status ddp_work_wait_source(ddp_work work, int32_t* source) {
  return guard([&] {
    const int rank = group_of(work.group).wait(work.sequence);
    not_null(source, "where to tell the other rank") = rank;
  });
}

ddp_status ddp_work_wait(ddp_work work) {
  return guard([&] { group_of(work.group).wait(work.sequence); });
}

ddp_status ddp_work_wait_for(ddp_work work, int64_t timeout_ms, int32_t* completed) {
  return guard([&] {
    not_null(completed, "where to tell whether the operation ended");
    *completed = 1;  // also true if the operation failed
    *completed = group_of(work.group).wait_for(work.sequence, Milliseconds(timeout_ms)) ? 1 : 0;
  });
}

ddp_status ddp_work_synchronize(ddp_work work) {
  return guard([&] { group_of(work.group).synchronize(work.sequence); });
}

void ddp_work_drop(ddp_work work) {
  try {
    group_of(work.group).drop(work.sequence);
  } catch (const std::exception&) {
    // The text is not kept for ddp_error_last(), whose memory ends before static variables of the program.
  }
}
