// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/src/session.hpp"

#include <csignal>
#include <cstdio>
#include <numeric>
#include <string_view>
#include <utility>

#include "collectives/backend_loader.hpp"
#include "rendezvous/error.hpp"
#include "rendezvous/prefix_store.hpp"
#include "rendezvous/worker_contract.hpp"
#include "runtime/src/reachable_address.hpp"
#include "runtime/src/service_thread.hpp"

namespace ddp::runtime {
namespace {

namespace contract = rendezvous::contract;
using rendezvous::Error;
using rendezvous::ErrorCode;
using rendezvous::Store;
using std::chrono::milliseconds;

constexpr char kWorld[] = "world";
constexpr milliseconds kAskAfterFailure{500};

// A peer that dies while we write to it must be an error, not the end of this process; Gloo leaves that to us.
void ignore_sigpipe() {
  struct sigaction now = {};
  if (sigaction(SIGPIPE, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) return;
  struct sigaction ignore = {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, nullptr);
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
    : info_(read_worker_info(options.arguments, environment)), options_(options) {
  ProcessGroup::Config config;
  config.name = kWorld;
  config.rank = info_.rank;
  config.size = info_.world_size;
  config.timeout = options.timeout;
  const std::string& backend = options.backends.cpu.empty() ? options.backends.cuda : options.backends.cpu;
  if (info_.world_size > 1) {
    config.backend = &collectives::load_backend(backend);  // if it is not there, nobody need wait for us
    ignore_sigpipe();
  }
  store_ = std::make_unique<JobStore>(info_, JobStore::Timeouts{options.init_timeout, options.timeout});
  if (info_.world_size > 1) {
    address_ = reachable_address(*store_, environment);
    config.connection = connect(backend, *config.backend);
    config.ask_for_cause = [this](milliseconds timeout) { return store_->ask_for_cause(timeout); };
    config.tell_cause = [this](const std::string& why) { store_->tell_cause(why); };
  }
  observe(config, environment);
  world_ = std::make_unique<ProcessGroup>(std::move(config), deadlines_);
}

// What helps to find out afterwards what happened.
void Session::observe(ProcessGroup::Config& config, const Environment& environment) {
  const std::string error_file = environment(contract::kErrorFile).value_or("");
  place_flight_recorder(error_file.empty() ? "" : contract::flight_recorder_file(error_file, info_.rank), info_.rank,
                        info_.world_size);
  config.flight_recorder_size = flight_recorder_size(environment);
  const DebugLevel debug = read_debug_level(environment);
  if (info_.world_size == 1) return;
  config.open_store = [this] { return store_->connect_again(); };
  config.key_prefix = store_->key("");
  if (debug != DebugLevel::Detail) return;
  call_log_ = std::make_unique<CallLog>(store_->connect_again(), store_->key("calls/"), info_.rank);
  std::vector<int> members(static_cast<std::size_t>(info_.world_size));
  std::iota(members.begin(), members.end(), 0);
  config.call_log.emplace(*call_log_, kWorld, std::move(members));
}

Session::~Session() {
  world_->drain();
  const bool in_good_order = world_->alive();
  world_.reset();  // closes the connections: a rank that still waits for us fails now, not at its deadline
  store_->leave(in_good_order);
}

ddp_backend_group* Session::connect(const std::string& name, const ddp_backend_table& backend) {
  rendezvous::PrefixStore store(store_->key(name), store_->connection());
  ddp_backend_group_config config = {};
  config.rank = info_.rank;
  config.size = info_.world_size;
  config.local_address = address_.c_str();
  config.init_timeout_ms = store_->time_left().count();
  config.store = {static_cast<Store*>(&store), &backend_set, &backend_get};
  ddp_backend_group* connection = nullptr;
  ddp_backend_error error = {};
  ddp_backend_status status = backend.group_create(&config, &connection, &error);
  if (status == DDP_BACKEND_OK) {
    // A rank that leaves at once must not cut off one that is still connecting.
    status = backend.barrier(connection, 0, store_->time_left().count(), &error);
    if (status == DDP_BACKEND_OK) return connection;
    backend.group_destroy(connection);
  }
  const std::string attempt = std::string(kWorld) + ": connecting rank " + std::to_string(info_.rank) + " of " +
                              std::to_string(info_.world_size) + " (" + address_ + ") to the others: ";
  if (status == DDP_BACKEND_PEER_LOST) {
    const std::string cause = store_->ask_for_cause(kAskAfterFailure);
    throw Error(ErrorCode::PeerLost, attempt + (cause.empty() ? error.text : cause));
  }
  if (status == DDP_BACKEND_TIMEOUT) {
    throw Error(ErrorCode::Timeout, attempt + "not done in " + std::to_string(options_.init_timeout.count()) + " ms, " +
                                        store_->who_is_missing());
  }
  throw Error(ErrorCode::System, attempt + error.text);
}

}  // namespace ddp::runtime
