// SPDX-License-Identifier: BSD-3-Clause
// With DDP_DEBUG=detail: what this process last called in each of its groups, kept in the store for the other ranks,
// who read it when they have waited for this one in vain. Two messages to the store an operation, none of them
// answered.
//
//     <prefix><rank in the job>   a line for each group: its id, what was called, and when it began or ended
//
// Ages are told by comparing two nodes' clocks: they are for people to read, nothing is decided by them.
//
// Threads: any. Never throws but in the constructor: a store that is gone costs the words, not the operation.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace ddp::rendezvous {
class Store;
}

namespace ddp::runtime {

// One group's last call. Sequence numbers count collectives; messages have none, and 0 is before the first.
struct LastCall {
  enum class State { Running, Ended, Left };
  std::string group;  // its id
  std::uint64_t sequence = 0;
  State state = State::Running;
  std::chrono::system_clock::time_point since;
  std::string call;  // "all_reduce #412 (33.0 MB)"; empty: none yet
};

// As a rank's value in the store.
std::string encode(const std::map<std::string, LastCall>& calls);
std::vector<LastCall> decode(const std::string& text);

// "its last call was barrier #4, ended 31 s ago", and what it does in other groups meanwhile.
std::string describe(const std::vector<LastCall>& calls, const std::string& group,
                     std::chrono::system_clock::time_point now);

class CallLog {
 public:
  // store: a connection of its own. prefix: of the keys, equal on all ranks of the job. rank: in it.
  CallLog(std::unique_ptr<rendezvous::Store> store, std::string prefix, int rank);
  ~CallLog();
  CallLog(const CallLog&) = delete;
  CallLog& operator=(const CallLog&) = delete;

  // One group's part of it.
  class Group {
   public:
    // id: equal on all members, no other group's. members: ranks of the job, in the order of the group's.
    Group(CallLog& log, std::string id, std::vector<int> members)
        : log_(&log), id_(std::move(id)), members_(std::move(members)) {}

    void began(std::uint64_t sequence, const std::string& call) { log_->began(id_, sequence, call); }
    void ended() { log_->ended(id_); }
    void left() { log_->left(id_); }
    // A message that this rank waits for, beside the collectives.
    void message_began(const std::string& call) { log_->began(id_ + kMessages, 0, call); }
    void message_ended() { log_->ended(id_ + kMessages); }

    // Which ranks have not called an operation, and what they did instead: "rank 2 did not call all_reduce #5; its last
    // call was barrier #4, ended 31 s ago". call: "all_reduce #5". Empty: all have, or the store is gone.
    std::string describe_missing_callers(std::uint64_t sequence, const std::string& call) {
      return log_->describe_missing_callers(id_, members_, sequence, call);
    }
    // Of one rank: "rank 2: its last call was ...".
    std::string last_call_of(int rank) { return log_->last_call_of(id_, members_, rank); }

   private:
    static constexpr char kMessages[] = ", messages";
    CallLog* log_;
    std::string id_;
    std::vector<int> members_;
  };

 private:
  template <typename Change>
  void change(const std::string& group, Change&& how);
  void began(const std::string& group, std::uint64_t sequence, const std::string& call);
  void ended(const std::string& group);
  void left(const std::string& group);
  std::vector<LastCall> read(int rank);
  std::string describe_missing_callers(const std::string& group, const std::vector<int>& members,
                                       std::uint64_t sequence, const std::string& call);
  std::string last_call_of(const std::string& group, const std::vector<int>& members, int rank);

  std::mutex mutex_;
  std::unique_ptr<rendezvous::Store> store_;
  const std::string prefix_;
  const int rank_;
  std::map<std::string, LastCall> calls_;  // by group
};

}  // namespace ddp::runtime
