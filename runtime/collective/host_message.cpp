// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/collective/host_message.hpp"

#include <algorithm>
#include <utility>

#include "collectives/backend_loader.hpp"
#include "collectives/host/backend.hpp"
#include "runtime/base/buffer.hpp"
#include "runtime/base/deadline_watch.hpp"

namespace ddp::runtime {
namespace {

// A backend's message tags have 34 bits, of which the user's tags take 32. These bits mark labels and labelled data.
constexpr std::uint64_t kLabels = std::uint64_t{1} << 32;
constexpr std::uint64_t kLabelled = std::uint64_t{2} << 32;

}  // namespace

ddp_backend_status HostMessage::start(const Channel& channel, const Operation& o, std::uint64_t number,
                                      ddp_backend_error* error) {
  if (channel.labelled) return start_labelled(channel, o, number, error);
  const ddp_backend_table& backend = *channel.backend;
  if (o.kind == OperationKind::Send) {
    return backend.send(channel.group, o.input, o.bytes(), o.root, o.tag, &handle_, error);
  }
  return backend.receive(channel.group, o.data, o.bytes(), o.root, o.tag, &handle_, error);
}

ddp_backend_status HostMessage::start_labelled(const Channel& channel, const Operation& o, std::uint64_t number,
                                               ddp_backend_error* error) {
  const ddp_backend_table& backend = *channel.backend;
  const std::uint64_t tag = kLabels | o.tag;
  if (o.kind == OperationKind::Receive) {
    return backend.receive(channel.group, &label_, sizeof(Label), o.root, tag, &label_handle_, error);
  }
  label_ = {o.dtype, static_cast<std::int64_t>(o.count), static_cast<std::uint32_t>(number)};
  const auto status = backend.send(channel.group, &label_, sizeof(Label), o.root, tag, &label_handle_, error);
  if (status != DDP_BACKEND_OK) return status;
  return backend.send(channel.group, o.input, o.bytes(), o.root, kLabelled | number % kLabels, &handle_, error);
}

ddp_backend_status HostMessage::wait(const Channel& channel, const Operation& o, Deadline deadline, std::int32_t* peer,
                                     std::string* disagreement, ddp_backend_error* error) {
  const ddp_backend_table& backend = *channel.backend;
  const std::int64_t timeout_ms = backend_timeout_ms(deadline);
  if (channel.labelled) {
    auto status = backend.message_wait(channel.group, label_handle_, timeout_ms, peer, error);
    if (status != DDP_BACKEND_OK) return status;
    if (o.kind == OperationKind::Receive) {
      *disagreement = why_not_expected(o, *peer, channel.own_rank);
      if (!disagreement->empty()) return DDP_BACKEND_OK;
      const std::uint64_t tag = kLabelled | static_cast<std::uint32_t>(label_.number);
      status = backend.receive(channel.group, o.data, o.bytes(), *peer, tag, &handle_, error);
      if (status != DDP_BACKEND_OK) return status;
    }
  }
  return backend.message_wait(channel.group, handle_, timeout_ms, peer, error);
}

bool HostMessage::can_poll(const Channel& channel) {
  return !channel.labelled && (collectives::features_of(*channel.backend) & DDP_BACKEND_POLLS_MESSAGES) != 0;
}

ddp_backend_status HostMessage::poll(const Channel& channel, Deadline until, std::int32_t* peer,
                                     ddp_backend_error* error) {
  using std::chrono::milliseconds;
  const auto left = std::chrono::ceil<milliseconds>(until - Deadline::clock::now());
  return channel.backend->message_wait(channel.group, handle_, std::max<std::int64_t>(left.count(), 0), peer, error);
}

std::string HostMessage::why_not_expected(const Operation& o, int sender, int own_rank) const {
  if (label_.dtype == o.dtype && label_.count == static_cast<std::int64_t>(o.count)) return "";
  return "ranks disagree: rank " + std::to_string(sender) + " sends " + std::to_string(label_.count) + " " +
         dtype_name(static_cast<std::int32_t>(label_.dtype)) + ", rank " + std::to_string(own_rank) + " expects " +
         std::to_string(o.count) + " " + dtype_name(o.dtype);
}

void HostMessage::move_to(void* memory) {
  if (handle_ != nullptr) collectives::move_to(*handle_, memory);
}

void HostMessage::free(const Channel& channel) {
  for (ddp_backend_message** handle : {&handle_, &label_handle_}) {
    if (*handle != nullptr) channel.backend->message_free(std::exchange(*handle, nullptr));
  }
}

}  // namespace ddp::runtime
