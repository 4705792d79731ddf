// SPDX-License-Identifier: BSD-3-Clause
// Exported collectives on objects.
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "ddp/ddp.h"
#include "runtime/api/arguments.hpp"
#include "runtime/api/c_guard.hpp"
#include "runtime/api/live_sessions.hpp"
#include "runtime/collective/object_collectives.hpp"
#include "runtime/group/process_group.hpp"

namespace {

using ddp::runtime::GroupPlace;
using ddp::runtime::guard;
using ddp::runtime::not_null;
using ddp::runtime::ObjectExchange;
using ddp::runtime::Operation;
using ddp::runtime::OperationKind;
using ddp::runtime::ProcessGroup;

ddp_status exchange_objects(ddp_group* handle, std::int64_t timeout_ms, const ddp_sink& sink, auto make) {
  return guard([&] {
    ProcessGroup& group = ddp::runtime::group_of(handle);
    ObjectExchange exchange;
    const Operation operation = make(exchange, group.place());
    if (operation.kind != OperationKind::GatherObject || operation.root == group.rank())
      not_null(sink.deliver, "the sink's function");
    group.run(operation, std::chrono::milliseconds(timeout_ms));
    for (const ddp_bytes& object : exchange.received()) sink.deliver(sink.context, object);
  });
}

}  // namespace

ddp_status ddp_broadcast_object(ddp_group* group, ddp_bytes object, int32_t root, int64_t timeout_ms, ddp_sink sink) {
  return exchange_objects(group, timeout_ms, sink, [&](ObjectExchange& exchange, GroupPlace place) {
    return make_broadcast_object(exchange, object, root, place);
  });
}

ddp_status ddp_all_gather_object(ddp_group* group, ddp_bytes object, int64_t timeout_ms, ddp_sink sink) {
  return exchange_objects(group, timeout_ms, sink, [&](ObjectExchange& exchange, GroupPlace) {
    return make_all_gather_object(exchange, object);
  });
}

ddp_status ddp_gather_object(ddp_group* group, ddp_bytes object, int32_t root, int64_t timeout_ms, ddp_sink sink) {
  return exchange_objects(group, timeout_ms, sink, [&](ObjectExchange& exchange, GroupPlace place) {
    return make_gather_object(exchange, object, root, place);
  });
}

ddp_status ddp_scatter_object(ddp_group* group, const ddp_bytes* objects, size_t count, int32_t root,
                              int64_t timeout_ms, ddp_sink sink) {
  return exchange_objects(group, timeout_ms, sink, [&](ObjectExchange& exchange, GroupPlace place) {
    return make_scatter_object(exchange, {objects, count}, root, place);
  });
}
