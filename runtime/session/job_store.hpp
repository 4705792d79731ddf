// SPDX-License-Identifier: BSD-3-Clause
// The store that all ranks of the job share. Hosts it on rank 0 if the launcher does not, connects to it or opens it,
// and records in it which ranks have joined, and which gave up and why. A world of one has only the user's store.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/session/group_members.hpp"
#include "runtime/session/identity/worker_info.hpp"

namespace ddp::rendezvous {
class Store;
class StoreServer;
}  // namespace ddp::rendezvous

namespace ddp::runtime {

class JobStore {
 public:
  struct Timeouts {
    std::chrono::milliseconds init;   // until all ranks have joined
    std::chrono::milliseconds calls;  // for calls of the user's store
  };

  // Joins: connects, takes this rank's place and agrees with rank 0 on the world's size. Throws rendezvous::Error.
  JobStore(const WorkerInfo& info, const Timeouts& timeouts);
  ~JobStore();
  JobStore(const JobStore&) = delete;
  JobStore& operator=(const JobStore&) = delete;

  // Returns libddp's own connection, for calls that do not wait. Exists only with more than one rank. Keys are to be
  // made by key().
  rendezvous::Store& connection();
  // Opens one more connection, for a thread that waits.
  std::unique_ptr<rendezvous::Store> connect_again() const;
  std::string key(const std::string& name) const { return key_prefix_ + name; }
  // Returns this side's numeric address on that connection, or "" if the store is a file.
  const std::string& local_address() const { return local_address_; }

  // publish() sets this rank's value under a name. gather() returns the values of all ranks, by rank; it waits until
  // they have joined and throws Error{Timeout} naming missing ranks.
  void publish(const std::string& name, const std::string& value);
  std::vector<std::string> gather(const std::string& name);

  // Returns the store for the user's keys, which are separate from libddp's and from those of other sessions and
  // restarts. The first call connects. It has a connection of its own, so that a user's call that waits delays none of
  // libddp's.
  rendezvous::Store& for_user();

  std::chrono::milliseconds time_left() const;  // until Timeouts::init has passed, but at least 1 ms
  // Publishes this rank's reason for giving up to the other members of the group whose keys have this prefix. If a
  // member was first, returns its reason, else "". Never throws; does not wait long for the store.
  std::string publish_cause(const std::string& prefix, const std::string& why);
  // Must be called before the destructor. Rank 0 keeps a store that it hosts until all ranks have left, up to a limit.
  void leave(bool in_good_order);

 private:
  void agree_on_port();
  void host();
  void join();
  void take_rank();
  void agree_on_world_size();
  void open_for_user();
  std::unique_ptr<rendezvous::Store> open(std::chrono::milliseconds timeout) const;

  const WorkerInfo info_;
  const Timeouts timeouts_;
  const std::chrono::steady_clock::time_point init_deadline_;
  RendezvousPoint place_;  // with its port, once that is known
  int sessions_before_ = 0;
  std::string key_prefix_;
  std::shared_ptr<rendezvous::StoreServer> hosted_;  // on rank 0, unless the launcher hosts the store
  std::unique_ptr<rendezvous::Store> connection_;
  std::string local_address_;
  std::once_flag for_user_once_;
  std::unique_ptr<rendezvous::Store> for_user_base_;
  std::unique_ptr<rendezvous::Store> for_user_;
};

// Describes which of these ranks have not recorded under this prefix that they joined, for a rank that has waited long
// enough. `hint` says what to check. Never throws.
inline constexpr char kWasItStarted[] = "was every worker started?";
std::string describe_missing(rendezvous::Store& store, const std::string& prefix, const Members& ranks,
                             const char* hint);

}  // namespace ddp::runtime
