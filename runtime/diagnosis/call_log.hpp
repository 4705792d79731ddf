// SPDX-License-Identifier: BSD-3-Clause
// Records in the store what this process last called in each of its groups, with DDP_DEBUG=detail. Other ranks read it
// when they have waited for this one in vain. Costs two messages to the store per operation, neither of them answered.
//
//     <prefix><rank in the job>   one line per group: its id, what was called, and when that began or ended
//
// Ages compare the clocks of two nodes. They are for people to read; no decision depends on them.
//
// Threads: any. Only the constructor throws: without the store the log is lost, not the operation.
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

// The last call in one group. Sequence numbers count collectives; 0 stands for messages and for no call yet.
struct LastCall {
  enum class State { Running, Ended, Left };
  std::string group;  // the group's id
  std::uint64_t sequence = 0;
  State state = State::Running;
  std::chrono::system_clock::time_point since;
  std::string call;  // "all_reduce #412 (33.0 MB)"; empty before the first call
};

// Encode and decode a rank's value in the store.
std::string encode(const std::map<std::string, LastCall>& calls);
std::vector<LastCall> decode(const std::string& text);

// Returns "its last call was barrier #4, ended 31 s ago", and what the rank is doing in other groups.
std::string describe(const std::vector<LastCall>& calls, const std::string& group,
                     std::chrono::system_clock::time_point now);

class CallLog {
 public:
  // `store` is a connection for this log alone. `prefix` begins its keys and is equal on all ranks. `rank` is this
  // process's rank in the job.
  CallLog(std::unique_ptr<rendezvous::Store> store, std::string prefix, int rank);
  ~CallLog();
  CallLog(const CallLog&) = delete;
  CallLog& operator=(const CallLog&) = delete;

  // The part of the log for one group.
  class Group {
   public:
    // `id` names the group, equally on all members. `members` are ranks of the job in the order of the group's ranks.
    Group(CallLog& log, std::string id, std::vector<int> members)
        : log_(&log), id_(std::move(id)), members_(std::move(members)) {}

    void began(std::uint64_t sequence, const std::string& call) { log_->began(id_, sequence, call); }
    void ended() { log_->ended(id_); }
    void left() { log_->left(id_); }
    // Record a message that this rank waits for. Messages have a line of their own beside the collectives'.
    void message_began(const std::string& call) { log_->began(id_ + kMessages, 0, call); }
    void message_ended() { log_->ended(id_ + kMessages); }

    // Returns which ranks have not called an operation, and what they did instead: "rank 2 did not call all_reduce #5;
    // its last call was barrier #4, ended 31 s ago". `call` is "all_reduce #5". Returns "" if all have, or the store is
    // gone.
    std::string describe_missing_callers(std::uint64_t sequence, const std::string& call) {
      return log_->describe_missing_callers(id_, members_, sequence, call);
    }
    // Returns "rank 2: its last call was ...".
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
  std::map<std::string, LastCall> calls_;  // by group id
};

}  // namespace ddp::runtime
