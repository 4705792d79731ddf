// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/session/job_store.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <map>
#include <utility>

#include "rendezvous/base/error.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/net/addresses/numeric_address.hpp"
#include "rendezvous/net/listen.hpp"
#include "rendezvous/store/file_store.hpp"
#include "rendezvous/store/hash_store.hpp"
#include "rendezvous/store/prefix_store.hpp"
#include "rendezvous/store/server.hpp"
#include "rendezvous/store/tcp_store.hpp"
#include "rendezvous/worker_contract.hpp"

namespace ddp::runtime {
namespace {

namespace contract = rendezvous::contract;
using rendezvous::Error;
using rendezvous::ErrorCode;
using rendezvous::Store;
using rendezvous::StoreServer;
using rendezvous::TcpStore;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr char kWorldKey[] = "world";
constexpr char kUser[] = "user";
// How long rank 0 keeps the store that it hosts for ranks that have not left yet.
constexpr milliseconds kLeaveInGoodOrder = std::chrono::seconds(10);
constexpr milliseconds kLeaveAfterFailure{500};
// Timeout of calls to the store after a failure.
constexpr milliseconds kPromptAnswer{300};

// Numbers the sessions of this process, whose keys must differ. All ranks make the same sessions, so they count alike.
int count_sessions() {
  static std::atomic<int> sessions{0};
  return sessions++;
}

std::string make_key_prefix(const WorkerInfo& info, int sessions_before) {
  return contract::kLibraryPrefix + std::to_string(info.restart_count) + "/" +
         (info.place.job.empty() ? "" : info.place.job + "/") + kWorldKey +
         (info.session_name.empty() ? "" : "/named/" + info.session_name) +
         (sessions_before > 0 ? "." + std::to_string(sessions_before + 1) : "") + "/";
}

std::vector<std::string> store_addresses(const std::string& host) {
  if (host == "localhost") return {"127.0.0.1", "::1"};
  if (rendezvous::is_loopback(host)) return {host};
  return {"0.0.0.0", "::"};
}

// Returns the options of a store that this process hosts: what it refuses, the user reads on stderr.
StoreServer::Options hosting() {
  StoreServer::Options options;
  options.other_users_hint = "start all workers of the job as one user";
  options.log = [](const std::string& line) { std::fputs(("libddp: " + line + "\n").c_str(), stderr); };
  return options;
}

// Returns the server at an address. Two sessions of one process that meet at the same address share it.
std::shared_ptr<StoreServer> server_at(const std::string& host, std::uint16_t port) {
  static std::mutex mutex;
  static std::map<std::pair<std::vector<std::string>, std::uint16_t>, std::weak_ptr<StoreServer>> servers;
  const std::vector<std::string> addresses = store_addresses(host);
  const std::lock_guard lock(mutex);
  std::weak_ptr<StoreServer>& known = servers[{addresses, port}];
  std::shared_ptr<StoreServer> server = known.lock();
  if (server == nullptr) {
    server = std::make_shared<StoreServer>(addresses, port, hosting());
    known = server;
  }
  return server;
}

std::string describe_this_process() { return "pid " + std::to_string(getpid()) + " on " + rendezvous::host_name(); }

std::string describe(const RendezvousPoint& place) {
  if (place.kind == RendezvousPoint::Kind::Given) return "the given store";
  if (place.kind == RendezvousPoint::Kind::Address) return rendezvous::endpoint(place.host, place.port);
  return "the file " + place.file;
}

}  // namespace

JobStore::JobStore(const WorkerInfo& info, const Timeouts& timeouts)
    : info_(info), timeouts_(timeouts), init_deadline_(Clock::now() + timeouts.init), place_(info.place) {
  if (info_.world_size == 1) return;
  if (info_.session_name.empty() && !info_.is_first_session) sessions_before_ = count_sessions();
  key_prefix_ = make_key_prefix(info_, sessions_before_);
  if (place_.kind == RendezvousPoint::Kind::PortInFile) {
    agree_on_port();
  } else {
    host();
  }
  try {
    join();
  } catch (const Error& e) {
    // The store may have been the previous session's, which rank 0 was about to end: try once more.
    if (e.code() != ErrorCode::System || sessions_before_ == 0) throw;
    join();
  }
}

JobStore::~JobStore() = default;

Store& JobStore::connection() { return *connection_; }

milliseconds JobStore::time_left() const {
  const auto left = std::chrono::duration_cast<milliseconds>(init_deadline_ - Clock::now());
  return std::max(left, milliseconds(1));
}

void JobStore::agree_on_port() {
  rendezvous::FileStore file(place_.file, info_.world_size, time_left());
  if (info_.rank == 0) {
    hosted_ = std::make_shared<StoreServer>(std::vector<std::string>{"127.0.0.1"}, 0, hosting());
    file.set(key("port"), std::to_string(hosted_->port()));
  }
  place_.port = static_cast<std::uint16_t>(number({"port", file.get(key("port"), time_left())}, 1, 65535));
  place_.host = "127.0.0.1";
  place_.kind = RendezvousPoint::Kind::Address;
}

void JobStore::host() {
  if (info_.rank != 0 || place_.launcher_hosts || place_.kind != RendezvousPoint::Kind::Address) return;
  try {
    hosted_ = server_at(place_.host, place_.port);
  } catch (const rendezvous::AddressInUse& e) {
    if (place_.may_be_hosted) return;
    if (!place_.port_is_derived) throw;
    throw Error(ErrorCode::System, std::string(e.what()) + " (derived from the numbers of Slurm's job and " +
                                       "step: set " + contract::kMasterPort + ", the same for all ranks)");
  }
}

std::unique_ptr<Store> JobStore::open(milliseconds timeout) const {
  if (place_.kind == RendezvousPoint::Kind::Given) {
    return (connection_ != nullptr ? *connection_ : *place_.given).clone(timeout);
  }
  if (place_.kind == RendezvousPoint::Kind::File) {
    return std::make_unique<rendezvous::FileStore>(place_.file, info_.world_size, timeout);
  }
  return std::make_unique<TcpStore>(place_.host, place_.port, timeout);
}

std::unique_ptr<Store> JobStore::connect_again() const { return open(timeouts_.init); }

void JobStore::join() {
  connection_ = open(time_left());
  if (const auto* tcp = dynamic_cast<TcpStore*>(connection_.get())) local_address_ = tcp->local_address();
  take_rank();
  agree_on_world_size();
}

void JobStore::take_rank() {
  const std::string me = describe_this_process();
  const std::string holder = connection_->compare_set(key("joined/" + std::to_string(info_.rank)), "", me);
  if (holder == me) return;
  const bool file = place_.kind == RendezvousPoint::Kind::File;
  throw Error(ErrorCode::Mismatch,
              std::string(kWorldKey) + ": rank " + std::to_string(info_.rank) + " is taken by " + holder + " at " +
                  describe(place_) + ": two processes were given the same rank, or " +
                  (file ? "the file is left over from an earlier run (remove it, and give each run one of its own)"
                        : "the store belongs to another run (give each a port of its own)"));
}

void JobStore::agree_on_world_size() {
  const std::string mine = std::to_string(info_.world_size);
  if (info_.rank == 0) {
    connection_->set(key("world_size"), mine);
    return;
  }
  std::string theirs;
  try {
    theirs = connection_->get(key("world_size"), time_left());
  } catch (const Error& e) {
    if (e.code() != ErrorCode::Timeout) throw;
    throw Error(ErrorCode::Timeout, std::string(kWorldKey) + ": rank 0 of " + mine + " did not come to " +
                                        describe(place_) + " within " + rendezvous::to_string(timeouts_.init) +
                                        " (was it started, and given the same place?)");
  }
  if (theirs == mine) return;
  throw Error(ErrorCode::Mismatch, std::string(kWorldKey) + ": the world size is " + mine + " for rank " +
                                       std::to_string(info_.rank) + " but " + theirs +
                                       " for rank 0: these are workers of different jobs, or were started with "
                                       "different settings");
}

void JobStore::publish(const std::string& name, const std::string& value) {
  connection_->set(key(name + "/" + std::to_string(info_.rank)), value);
}

std::vector<std::string> JobStore::gather(const std::string& name) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < info_.world_size; ++rank) keys.push_back(key(name + "/" + std::to_string(rank)));
  try {
    return connection_->multi_get(keys, time_left());
  } catch (const Error& e) {
    if (e.code() != ErrorCode::Timeout) throw;
    throw Error(ErrorCode::Timeout,
                std::string(kWorldKey) + ": connecting rank " + std::to_string(info_.rank) + " of " +
                    std::to_string(info_.world_size) + " to the others: not done in " +
                    rendezvous::to_string(timeouts_.init) + ", " +
                    describe_missing(*connection_, key(""), all_members(info_.world_size), kWasItStarted));
  }
}

Store& JobStore::for_user() {
  std::call_once(for_user_once_, [this] { open_for_user(); });
  return *for_user_;
}

void JobStore::open_for_user() {
  if (info_.world_size > 1) {
    for_user_base_ = connect_again();
    for_user_base_->set_timeout(timeouts_.calls);
  } else {
    for_user_base_ = std::make_unique<rendezvous::HashStore>(timeouts_.calls);
  }
  for_user_ = std::make_unique<rendezvous::PrefixStore>(key(kUser), *for_user_base_);
}

std::string describe_missing(Store& store, const std::string& prefix, const Members& ranks, const char* hint) {
  try {
    Members missing;
    for (const int rank : ranks) {
      if (!store.check({prefix + "joined/" + std::to_string(rank)})) missing.push_back(rank);
    }
    if (missing.empty()) return "though all ranks have joined (can they reach this address?)";
    return describe(missing) + " never joined (" + hint + ")";
  } catch (const std::exception& e) {
    return std::string("and the store is gone: ") + e.what();
  }
}

std::string JobStore::publish_cause(const std::string& prefix, const std::string& why) {
  const std::string mine = "rank " + std::to_string(info_.rank) + " gave up: " + why;
  try {
    connection_->set_timeout(kPromptAnswer);
    const std::string first = connection_->compare_set(prefix + "cause", "", mine);
    return first == mine ? "" : first;
  } catch (const Error&) {
    return "";  // the other ranks only see the broken connection
  }
}

void JobStore::leave(bool in_good_order) {
  if (connection_ == nullptr || place_.launcher_hosts || place_.kind != RendezvousPoint::Kind::Address) return;
  try {
    const std::string everyone_left = key("everyone_left");
    if (connection_->add(key("left"), 1) == info_.world_size) connection_->set(everyone_left, "");
    if (hosted_ == nullptr) return;
    connection_->wait({everyone_left},
                      in_good_order ? std::min(timeouts_.init, kLeaveInGoodOrder) : kLeaveAfterFailure);
  } catch (const std::exception&) {
    // The store is gone or a rank left without notice: there is nothing to wait for.
  }
}

}  // namespace ddp::runtime
