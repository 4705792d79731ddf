// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/src/job_store.hpp"

#include <algorithm>
#include <atomic>
#include <vector>

#include "rendezvous/error.hpp"
#include "rendezvous/hash_store.hpp"
#include "rendezvous/prefix_store.hpp"
#include "rendezvous/store_server.hpp"
#include "rendezvous/tcp_store.hpp"
#include "rendezvous/worker_contract.hpp"

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

}  // namespace

JobStore::JobStore(const WorkerInfo& info, const Timeouts& timeouts)
    : info_(info), timeouts_(timeouts), init_deadline_(Clock::now() + timeouts.init) {
  if (info_.world_size == 1) return;
  join();
  agree_on_world_size();
}

JobStore::~JobStore() = default;

Store& JobStore::connection() { return *connection_; }

std::string JobStore::local_address() const { return connection_->local_address(); }

milliseconds JobStore::time_left() const {
  const auto left = std::chrono::duration_cast<milliseconds>(init_deadline_ - Clock::now());
  return std::max(left, milliseconds(1));
}

void JobStore::join() {
  key_prefix_ = next_key_prefix(info_.restart_count);
  if (!info_.agent_hosts_store && info_.rank == 0) {
    hosted_ = std::make_unique<rendezvous::StoreServer>(store_addresses(info_.master_address), info_.master_port);
  }
  connection_ = std::make_unique<rendezvous::TcpStore>(info_.master_address, info_.master_port, time_left());
  connection_->set(key("joined/" + std::to_string(info_.rank)), "");
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
    throw Error(ErrorCode::Timeout, std::string(kWorld) + ": rank 0 of " + mine + " did not join within " +
                                        std::to_string(timeouts_.init.count() / 1000) +
                                        " s (was it started, with the same MASTER_ADDR and MASTER_PORT?)");
  }
  if (theirs == mine) return;
  throw Error(ErrorCode::Mismatch, std::string(kWorld) + ": WORLD_SIZE is " + mine + " for rank " +
                                       std::to_string(info_.rank) + " but " + theirs +
                                       " for rank 0: these are workers of different jobs, or were started with "
                                       "different settings");
}

Store& JobStore::for_user() {
  std::call_once(for_user_once_, [this] { open_for_user(); });
  return *for_user_;
}

void JobStore::open_for_user() {
  if (info_.world_size > 1) {
    for_user_base_ = std::make_unique<rendezvous::TcpStore>(info_.master_address, info_.master_port, timeouts_.init);
    for_user_base_->set_timeout(timeouts_.calls);
  } else {
    for_user_base_ = std::make_unique<rendezvous::HashStore>(timeouts_.calls);
  }
  for_user_ = std::make_unique<rendezvous::PrefixStore>(key(kUser), *for_user_base_);
}

std::string JobStore::who_is_missing() {
  try {
    std::string missing;
    for (int rank = 0; rank < info_.world_size; ++rank) {
      if (connection_->check({key("joined/" + std::to_string(rank))})) continue;
      missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
    }
    if (missing.empty()) return "though all ranks have joined (can they reach this address?)";
    return "rank " + missing + " never joined (was every worker started?)";
  } catch (const std::exception& e) {
    return std::string("and the store is gone: ") + e.what();
  }
}

// The launcher's word first; without it, that of the first rank that gave up and closed its connections.
std::string JobStore::ask_for_cause(milliseconds timeout) {
  try {
    return connection_->get(contract::kFailureKey, timeout);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::Timeout) return "";  // the store is gone
  }
  try {
    return connection_->check({key("cause")}) ? connection_->get(key("cause"), timeout) : "";
  } catch (const std::exception&) {
    return "";
  }
}

void JobStore::tell_cause(const std::string& why) {
  try {
    connection_->compare_set(key("cause"), "", "rank " + std::to_string(info_.rank) + " gave up: " + why);
  } catch (const std::exception&) {
    // Then the others have only the broken connection to go by.
  }
}

void JobStore::leave(bool in_good_order) {
  if (connection_ == nullptr || info_.agent_hosts_store) return;
  try {
    const std::string everyone_left = key("everyone_left");
    if (connection_->add(key("left"), 1) == info_.world_size) connection_->set(everyone_left, "");
    if (hosted_ == nullptr) return;
    connection_->wait({everyone_left},
                      in_good_order ? std::min(timeouts_.init, kLeaveInGoodOrder) : kLeaveAfterFailure);
  } catch (const std::exception&) {
    // Somebody left without a word; there is nobody to wait for.
  }
}

}  // namespace ddp::runtime
