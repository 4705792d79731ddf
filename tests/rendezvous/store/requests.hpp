// SPDX-License-Identifier: BSD-3-Clause
// Converts between a client's Request and a server's RequestView, for tests.
#pragma once

#include <string>

#include "rendezvous/store/c10d_protocol.hpp"
#include "rendezvous/store/store_core.hpp"

namespace ddp::rendezvous {

// Returns a copy that outlives the view.
inline Request copy_of(const RequestView& view) {
  Request request{.op = view.op, .generation = view.generation};
  Fields fields(view.fields);
  const auto keys = [&](int values_each) {
    for (auto count = fields.number(); count > 0; --count) {
      request.keys.emplace_back(fields.text());
      for (int i = 0; i < values_each; ++i) request.values.emplace_back(fields.text());
    }
  };
  switch (view.op) {
    case Op::Check:
    case Op::Wait:
    case Op::MultiGet:
      keys(0);
      break;
    case Op::MultiSet:
      keys(1);
      break;
    case Op::Ping:
      request.number = fields.nonce();
      break;
    case Op::GetNumKeys:
    case Op::CancelWait:
    case Op::ListKeys:
      break;
    default:
      request.keys.emplace_back(fields.text());
      if (view.op == Op::Add || view.op == Op::Barrier) request.number = fields.number();
      if (view.op == Op::Set || view.op == Op::Append || view.op == Op::QueuePush) {
        request.values.emplace_back(fields.text());
      }
      if (view.op == Op::CompareSet) {
        request.values.emplace_back(fields.text());
        request.values.emplace_back(fields.text());
      }
  }
  return request;
}

// Applies the request as if this client had sent it.
inline void apply(StoreCore& core, ConnectionId from, const Request& request, Replies& out) {
  std::string bytes;
  append_request(bytes, request);
  out.from = from;
  core.apply({request.op, request.generation, std::string_view(bytes).substr(1)}, out);
}

}  // namespace ddp::rendezvous
