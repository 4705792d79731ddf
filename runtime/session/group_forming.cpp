// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/session/group_forming.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "collectives/backend_error.hpp"
#include "collectives/backend_names.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/store/prefix_store.hpp"
#include "runtime/device/cuda_backend.hpp"
#include "runtime/session/job_store.hpp"

namespace ddp::runtime {
namespace {

using rendezvous::Error;
using rendezvous::ErrorCode;
using rendezvous::Store;
using std::chrono::milliseconds;

constexpr char kAll[] = "all";
constexpr std::string_view kDisagree = "disagree: ";
constexpr std::string_view kGaveUpBecause = "gave up: ";
constexpr milliseconds kAskAfterFailure{500};

int report(ddp_backend_error* error, const std::string& what) {
  collectives::set_text(error, what);
  return 1;
}

int backend_set(void* context, const char* key, const void* value, std::size_t size, ddp_backend_error* error) {
  try {
    static_cast<Store*>(context)->set(key, std::string_view(static_cast<const char*>(value), size));
    return 0;
  } catch (const std::exception& e) {
    return report(error, e.what());
  }
}

int backend_get(void* context, const char* key, std::int64_t timeout_ms, void* sink,
                void (*deliver)(void* sink, const void* value, std::size_t size), ddp_backend_error* error) {
  try {
    const std::string value = static_cast<Store*>(context)->get(key, milliseconds(timeout_ms));
    deliver(sink, value.data(), value.size());
    return 0;
  } catch (const Error& e) {
    // The backend recognises a passed deadline, as opposed to a broken store, by "timed out".
    return report(error, e.code() == ErrorCode::Timeout ? std::string("timed out: ") + e.what() : e.what());
  } catch (const std::exception& e) {
    return report(error, e.what());
  }
}

}  // namespace

GroupForming::GroupForming(GroupPlan plan, Store& store)
    : plan_(std::move(plan)), store_(store), deadline_(Clock::now() + plan_.init_timeout) {}

milliseconds GroupForming::time_left() const {
  return std::max(std::chrono::duration_cast<milliseconds>(deadline_ - Clock::now()), milliseconds(1));
}

void GroupForming::meet() {
  try {
    agree();
    store_.set(key("joined/" + std::to_string(own_rank())), "");
    const auto size = static_cast<std::int64_t>(plan_.members.size());
    const std::string verdict = store_.add(key("count"), 1) == size ? settle(kAll) : wait_for_go();
    if (verdict != kAll) throw_verdict(verdict);
  } catch (const Error&) {
    throw_if_ended();  // the reason for the end, not the interrupted call of the store
    throw;
  }
}

void GroupForming::agree() {
  const std::string members = to_string(plan_.members);
  const collectives::BackendNames backends = {plan_.backend != nullptr ? plan_.backend->name : "",
                                              plan_.device != nullptr ? "nccl" : ""};
  const std::string mine = members + " over " + collectives::to_string(backends);
  const std::string firsts = store_.compare_set(key("members"), "", mine);
  if (firsts == mine) return;
  const bool same_members = firsts.starts_with(members + " ");
  const std::string why = "ranks disagree: the first member to come lists " + firsts + ", rank " +
                          std::to_string(own_rank()) + " lists " + mine +
                          (same_members ? " (without a name for it, the backend is \"ddp\"; before libddp 0.2 \"gloo\")"
                                        : " (is the name in use for another group?)");
  settle(std::string(kDisagree) + why);
  throw Error(ErrorCode::Mismatch, attempt() + why);
}

// Throws why the group cannot be formed.
void GroupForming::throw_verdict(const std::string& verdict) const {
  const bool too_late = verdict.starts_with(kGaveUpBecause);
  throw Error(too_late ? ErrorCode::Timeout : ErrorCode::Mismatch,
              attempt() + verdict.substr(too_late ? kGaveUpBecause.size() : kDisagree.size()));
}

std::string GroupForming::wait_for_go() {
  try {
    return store_.get(key("go"), time_left());
  } catch (const Error& e) {
    if (e.code() != ErrorCode::Timeout) throw;
  }
  return give_up();
}

// Returns that the time is over, or what another member has said before.
std::string GroupForming::give_up() { return settle(std::string(kGaveUpBecause) + not_done()); }

// Sets the verdict, or returns the one that was set first.
std::string GroupForming::settle(const std::string& verdict) { return store_.compare_set(key("go"), "", verdict); }

std::string GroupForming::not_done() {
  return "not done in " + rendezvous::to_string(plan_.init_timeout) + ", " +
         describe_missing(store_, plan_.key_prefix, plan_.members, plan_.hint);
}

GroupConnections GroupForming::connect(const std::string& address) {
  address_ = address;
  GroupConnections connections;
  if (plan_.backend != nullptr) connections.host = connect_host();
  if (plan_.device == nullptr) return connections;
  try {
    connections.device = connect_device();
  } catch (...) {
    if (connections.host != nullptr) plan_.backend->group_destroy(connections.host);
    throw;
  }
  return connections;
}

ddp_backend_group* GroupForming::connect_host() {
  collectives::BackendError error;
  const ddp_backend_status status = open(error);
  ddp_backend_group* connection = nullptr;
  {
    const std::lock_guard lock(mutex_);
    connection = std::exchange(connection_, nullptr);  // end() must not abort it from here on
  }
  if (status == DDP_BACKEND_OK) return connection;
  if (connection != nullptr) plan_.backend->group_destroy(connection);
  throw_if_ended();
  if (status == DDP_BACKEND_TIMEOUT) {
    const std::string verdict = give_up();
    if (verdict == kAll) throw Error(ErrorCode::Timeout, attempt() + not_done());
    throw_verdict(verdict);
  }
  if (status != DDP_BACKEND_PEER_LOST) throw Error(ErrorCode::System, attempt() + error.text);
  throw Error(ErrorCode::PeerLost, attempt() + known_cause(error.text));
}

std::unique_ptr<DeviceCollectives> GroupForming::connect_device() {
  rendezvous::PrefixStore store(key("nccl"), store_);
  const ddp_backend_store shared = {static_cast<Store*>(&store), &backend_set, &backend_get};
  const GroupPlace place = {plan_.rank, static_cast<int>(plan_.members.size())};
  try {
    return join_nccl(plan_.device, place, {&shared, deadline_, &is_ended_});
  } catch (const Error& e) {
    throw_if_ended();
    const std::string what = attempt() + "joining on cuda:" + std::to_string(plan_.device->index()) + ": ";
    if (e.code() == ErrorCode::Timeout) throw Error(e.code(), what + not_done());
    throw Error(e.code(), what + (e.code() == ErrorCode::PeerLost ? known_cause(e.what()) : e.what()));
  }
}

// Returns the cause of a broken connection: the launcher's if it knows it, else the backend's text.
std::string GroupForming::known_cause(const std::string& backend_text) {
  const std::string cause = plan_.ask_for_cause ? plan_.ask_for_cause(kAskAfterFailure) : "";
  return cause.empty() ? backend_text : cause;
}

ddp_backend_status GroupForming::open(ddp_backend_error& error) {
  rendezvous::PrefixStore store(key(plan_.backend->name), store_);
  ddp_backend_group_config config = {};
  config.rank = plan_.rank;
  config.size = static_cast<std::int32_t>(plan_.members.size());
  config.job_ranks = plan_.members.data();
  config.local_address = address_.c_str();
  config.init_timeout_ms = time_left().count();
  config.store = {static_cast<Store*>(&store), &backend_set, &backend_get};
  ddp_backend_group* connection = nullptr;
  const ddp_backend_status status = plan_.backend->group_create(&config, &connection, &error);
  if (status != DDP_BACKEND_OK) return status;
  {
    const std::lock_guard lock(mutex_);
    connection_ = connection;
    if (!ended_because_.empty()) return DDP_BACKEND_ABORTED;
  }
  // A barrier, so that a rank that leaves at once does not cut off one that is still connecting.
  return plan_.backend->barrier(connection, 0, time_left().count(), &error);
}

void GroupForming::end(const std::string& why) {
  const std::lock_guard lock(mutex_);
  ended_because_ = why;
  is_ended_ = true;
  if (connection_ != nullptr) plan_.backend->group_abort(connection_);
  store_.interrupt();
}

void GroupForming::throw_if_ended() {
  const std::lock_guard lock(mutex_);
  if (!ended_because_.empty()) throw Error(ErrorCode::PeerLost, attempt() + ended_because_);
}

int GroupForming::own_rank() const { return plan_.members[static_cast<std::size_t>(plan_.rank)]; }

std::string GroupForming::attempt() const {
  return plan_.name + ": connecting rank " + std::to_string(plan_.rank) + " of " +
         std::to_string(plan_.members.size()) + (address_.empty() ? "" : " (" + address_ + ")") + " to the others: ";
}

}  // namespace ddp::runtime
