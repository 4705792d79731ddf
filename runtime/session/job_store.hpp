// SPDX-License-Identifier: BSD-3-Clause
// The store that all ranks of the job share: hosts it on rank 0 where nobody else does, connects to it or opens it, and
// says in it who has joined, who gave up and why. In a world of one there is none but the user's.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/session/group_members.hpp"
#include "runtime/session/worker_info.hpp"

namespace ddp::rendezvous {
class Store;
class StoreServer;
}  // namespace ddp::rendezvous

namespace ddp::runtime {

class JobStore {
 public:
  struct Timeouts {
    std::chrono::milliseconds init;   // until all ranks have joined
    std::chrono::milliseconds calls;  // of the user's store
  };

  // Joins: connects, takes this rank's place and agrees with rank 0 on the world's size. Throws rendezvous::Error.
  JobStore(const WorkerInfo& info, const Timeouts& timeouts);
  ~JobStore();
  JobStore(const JobStore&) = delete;
  JobStore& operator=(const JobStore&) = delete;

  // libddp's own connection, for what waits for nobody; only where there is more than one rank. Its keys are to be made
  // by key().
  rendezvous::Store& connection();
  // One more, for a thread that waits.
  std::unique_ptr<rendezvous::Store> connect_again() const;
  std::string key(const std::string& name) const { return key_prefix_ + name; }
  // This side's numeric address on that connection; empty where the store is a file.
  const std::string& local_address() const { return local_address_; }

  // What this rank says under a name, and what all of them say, by rank. The second waits until they have joined, and
  // throws Error{Timeout} saying who is missing.
  void publish(const std::string& name, const std::string& value);
  std::vector<std::string> gather(const std::string& name);

  // For the user's keys, which are apart from libddp's and from those of other sessions and restarts. Connects when
  // first asked for: a connection of its own, so that a user's call that waits delays none of ours.
  rendezvous::Store& for_user();

  std::chrono::milliseconds time_left() const;  // until Timeouts::init has passed; at least 1 ms
  // Leaves this rank's reason for giving up, for the other members of the group whose keys have this prefix. If one of
  // them was first, its reason is returned, else nothing. Never throws; does not wait long for the store.
  std::string publish_cause(const std::string& prefix, const std::string& why);
  // To be called before the destructor. A store that rank 0 hosts stays until all have left, but not for long.
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
  RendezvousPoint place_;  // once its port is known
  int sessions_before_ = 0;
  std::string key_prefix_;
  std::shared_ptr<rendezvous::StoreServer> hosted_;  // on rank 0, where nobody else hosts one
  std::unique_ptr<rendezvous::Store> connection_;
  std::string local_address_;
  std::once_flag for_user_once_;
  std::unique_ptr<rendezvous::Store> for_user_base_;
  std::unique_ptr<rendezvous::Store> for_user_;
};

// Which of these ranks has not said below this prefix that it joined, in words, for whoever has waited long enough.
// hint: what to look at then. Never throws.
inline constexpr char kWasItStarted[] = "was every worker started?";
std::string describe_missing(rendezvous::Store& store, const std::string& prefix, const Members& ranks,
                             const char* hint);

}  // namespace ddp::runtime
