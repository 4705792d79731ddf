// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/src/session.hpp"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/backend_loader.hpp"
#include "rendezvous/error.hpp"
#include "rendezvous/hash_store.hpp"
#include "rendezvous/prefix_store.hpp"
#include "rendezvous/store_server.hpp"
#include "rendezvous/tcp_store.hpp"
#include "rendezvous/worker_contract.hpp"
#include "runtime/src/interface_address.hpp"
#include "runtime/src/service_thread.hpp"

namespace ddp::runtime {
namespace {

namespace contract = rendezvous::contract;
using rendezvous::Error;
using rendezvous::ErrorCode;
using rendezvous::Store;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr char kWorld[] = "world";
constexpr char kUser[] = "user";
// How long rank 0 keeps the store it hosts for ranks that have not left yet.
constexpr milliseconds kLeaveInGoodOrder = std::chrono::seconds(10);
constexpr milliseconds kLeaveAfterFailure{500};

// A peer that dies while we write to it must be an error, not the end of this process; Gloo leaves that to us.
void ignore_sigpipe() {
  struct sigaction now = {};
  if (sigaction(SIGPIPE, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) return;
  struct sigaction ignore = {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, nullptr);
}

// The second session of a process must not meet the first one's keys. All ranks count alike.
std::string next_key_prefix(int restart_count) {
  static std::atomic<int> sessions{0};
  const int before = sessions++;
  return contract::kLibraryPrefix + std::to_string(restart_count) + "/" + kWorld +
         (before > 0 ? "." + std::to_string(before + 1) : "") + "/";
}

bool is_loopback(const std::string& address) {
  return address == "localhost" || address == "::1" || address.starts_with("127.");
}

std::vector<std::string> store_addresses(const std::string& master_address) {
  if (!is_loopback(master_address)) return {"0.0.0.0", "::"};
  if (master_address == "localhost") return {"127.0.0.1", "::1"};
  return {master_address};
}

int report(ddp_backend_error* error, const char* what) {
  std::snprintf(error->text, sizeof(error->text), "%s", what);
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
    // "timed out" is how the backend tells a deadline from a broken store.
    return report(error, e.code() == ErrorCode::Timeout ? (std::string("timed out: ") + e.what()).c_str() : e.what());
  } catch (const std::exception& e) {
    return report(error, e.what());
  }
}

}  // namespace

Session::Session(const SessionOptions& options, const Environment& environment)
    : info_(read_worker_info(environment)),
      options_(options),
      init_deadline_(Clock::now() + options.init_timeout),
      progress_(std::make_unique<ProgressThread>()),
      deadlines_(std::make_unique<DeadlineWatch>()) {
  ProcessGroup::Config config;
  config.name = kWorld;
  config.rank = info_.rank;
  config.size = info_.world_size;
  config.timeout = options.timeout;
  config.compare_fingerprints = environment(contract::kCheckCollectives) != "0";
  if (info_.world_size > 1) {
    const ddp_backend_table& backend = collectives::load_backend(options.backend);
    ignore_sigpipe();
    join_store();
    agree_on_world_size();
    config.backend = &backend;
    config.connection = connect(backend, environment);
    config.ask_for_cause = [this](milliseconds timeout) { return ask_for_cause(timeout); };
    config.tell_cause = [this](const std::string& why) { tell_cause(why); };
  }
  world_ = std::make_unique<ProcessGroup>(std::move(config), *progress_, *deadlines_);
}

Session::~Session() {
  world_->drain();
  const bool in_good_order = world_->alive();
  progress_.reset();
  deadlines_.reset();
  world_.reset();  // closes the connections: a rank that still waits for us fails now, not at its deadline
  leave_store(in_good_order);
}

milliseconds Session::time_left() const {
  const auto left = std::chrono::duration_cast<milliseconds>(init_deadline_ - Clock::now());
  return std::max(left, milliseconds(1));
}

void Session::join_store() {
  key_prefix_ = next_key_prefix(info_.restart_count);
  if (!info_.agent_hosts_store && info_.rank == 0) {
    hosted_store_ = std::make_unique<rendezvous::StoreServer>(store_addresses(info_.master_address), info_.master_port);
  }
  store_ = std::make_unique<rendezvous::TcpStore>(info_.master_address, info_.master_port, time_left());
  store_->set(key("joined/" + std::to_string(info_.rank)), "");
}

Store& Session::store() {
  std::call_once(user_store_once_, [this] { open_user_store(); });
  return *user_store_;
}

void Session::open_user_store() {
  if (info_.world_size > 1) {
    user_store_base_ =
        std::make_unique<rendezvous::TcpStore>(info_.master_address, info_.master_port, options_.init_timeout);
    user_store_base_->set_timeout(options_.timeout);
  } else {
    user_store_base_ = std::make_unique<rendezvous::HashStore>(options_.timeout);
  }
  user_store_ = std::make_unique<rendezvous::PrefixStore>(key(kUser), *user_store_base_);
}

void Session::agree_on_world_size() {
  const std::string mine = std::to_string(info_.world_size);
  if (info_.rank == 0) {
    store_->set(key("world_size"), mine);
    return;
  }
  std::string theirs;
  try {
    theirs = store_->get(key("world_size"), time_left());
  } catch (const Error& e) {
    if (e.code() != ErrorCode::Timeout) throw;
    throw Error(ErrorCode::Timeout, std::string(kWorld) + ": rank 0 of " + mine + " did not join within " +
                                        std::to_string(options_.init_timeout.count() / 1000) +
                                        " s (was it started, with the same MASTER_ADDR and MASTER_PORT?)");
  }
  if (theirs == mine) return;
  throw Error(ErrorCode::Mismatch, std::string(kWorld) + ": WORLD_SIZE is " + mine + " for rank " +
                                       std::to_string(info_.rank) + " but " + theirs +
                                       " for rank 0: these are workers of different jobs, or were started with "
                                       "different settings");
}

ddp_backend_group* Session::connect(const ddp_backend_table& backend, const Environment& environment) {
  std::string address = store_->local_address();
  for (const char* name : {contract::kGlooSocketIfname, contract::kSocketIfname}) {  // the last one wins
    const std::optional<std::string> interface = environment(name);
    if (interface && !interface->empty()) address = interface_address(*interface, store_->local_address());
  }
  rendezvous::PrefixStore store(key(options_.backend), *store_);
  ddp_backend_group_config config = {};
  config.rank = info_.rank;
  config.size = info_.world_size;
  config.local_address = address.c_str();
  config.init_timeout_ms = time_left().count();
  config.store = {static_cast<Store*>(&store), &backend_set, &backend_get};
  ddp_backend_group* connection = nullptr;
  ddp_backend_error error = {};
  ddp_backend_status status = backend.group_create(&config, &connection, &error);
  if (status == DDP_BACKEND_OK) {
    // A rank that leaves at once must not cut off one that is still connecting.
    status = backend.barrier(connection, 0, time_left().count(), &error);
    if (status == DDP_BACKEND_OK) return connection;
    backend.group_destroy(connection);
  }
  const std::string attempt = std::string(kWorld) + ": connecting rank " + std::to_string(info_.rank) + " of " +
                              std::to_string(info_.world_size) + " (" + address + ") to the others: ";
  if (status == DDP_BACKEND_PEER_LOST) {
    const std::string cause = ask_for_cause(kLeaveAfterFailure);
    throw Error(ErrorCode::PeerLost, attempt + (cause.empty() ? error.text : cause));
  }
  if (status == DDP_BACKEND_TIMEOUT) {
    throw Error(ErrorCode::Timeout,
                attempt + "not done in " + std::to_string(options_.init_timeout.count()) + " ms, " + who_is_missing());
  }
  throw Error(ErrorCode::System, attempt + error.text);
}

std::string Session::who_is_missing() {
  try {
    std::string missing;
    for (int rank = 0; rank < info_.world_size; ++rank) {
      if (store_->check({key("joined/" + std::to_string(rank))})) continue;
      missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
    }
    if (missing.empty()) return "though all ranks have joined (can they reach this address?)";
    return "rank " + missing + " never joined (was every worker started?)";
  } catch (const std::exception& e) {
    return std::string("and the store is gone: ") + e.what();
  }
}

// The launcher's word first; without it, that of the first rank that gave up and closed its connections.
std::string Session::ask_for_cause(milliseconds timeout) {
  try {
    return store_->get(contract::kFailureKey, timeout);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::Timeout) return "";  // the store is gone
  }
  try {
    return store_->check({key("cause")}) ? store_->get(key("cause"), timeout) : "";
  } catch (const std::exception&) {
    return "";
  }
}

void Session::tell_cause(const std::string& why) {
  try {
    store_->compare_set(key("cause"), "", "rank " + std::to_string(info_.rank) + " gave up: " + why);
  } catch (const std::exception&) {
    // Then the others have only the broken connection to go by.
  }
}

// A store that rank 0 hosts must outlive the others' last question to it.
void Session::leave_store(bool in_good_order) {
  if (store_ == nullptr || info_.agent_hosts_store) return;
  try {
    const std::string everyone_left = key("everyone_left");
    if (store_->add(key("left"), 1) == info_.world_size) store_->set(everyone_left, "");
    if (hosted_store_ == nullptr) return;
    store_->wait({everyone_left},
                 in_good_order ? std::min(options_.init_timeout, kLeaveInGoodOrder) : kLeaveAfterFailure);
  } catch (const std::exception&) {
    // Somebody left without a word; there is nobody to wait for.
  }
}

}  // namespace ddp::runtime
