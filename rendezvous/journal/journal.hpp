// SPDX-License-Identifier: BSD-3-Clause
// Keeps what another life of the coordinator would have to know, so that a decision that was sent to an agent is never
// forgotten. It has several homes: memory (memory_journal.hpp), a file on this machine (file_journal.hpp), and etcd
// (etcd/etcd_journal.hpp), which outlives the machine. The coordinator knows only this interface.
//
//     life 1:  claim ──▶ claimed {epoch A, nothing}   write 1 ──▶ kept 1   write 2 ──▶ kept 2     (killed)
//     life 2:  claim ──▶ claimed {epoch A, what 2 wrote}                   write 3 ──▶ kept 3
//
// The contract of every home:
//   * claim() makes its caller the one life that may write. It is answered by on_claimed or on_lost, however late.
//   * The content is the coordinator's whole record: a later one replaces those before it. It holds no secret. Each
//     home has a limit to its length, most_content_bytes(). A longer one is refused by on_lost(), which names both.
//   * write() returns at once. on_kept(n) says that the content of write n would be found by the next life, and no
//     older one; so the contents with lower numbers need no answer of their own and may never be stored. A caller that
//     waits for several numbers takes one answer for all up to it. An answer may take seconds.
//   * A write whose answer never comes may have been stored or not: the next life finds it, or the one before it. So
//     its caller tells nobody what depends on it until on_kept() came.
//   * on_lost() is the last callback. Another life has taken over, or the home cannot keep anything any more. From then
//     on the caller must tell nobody anything, and end. What it told them before is kept.
//   * The epoch names the claims that continue one another and may serve the same agents. A home that only one process
//     of one machine can claim at a time gives all lives the same epoch. One that several machines can claim gives each
//     claim an epoch of its own, which fences the one before; it is a decimal number, greater than all before. Then
//     the record says which epochs its agents may have (JobRecord::instance).
//   * While may_tell() is false another life may have begun, or be about to, and this one cannot know yet. Its caller
//     asks before each word to an agent, the answer to a heartbeat included, and keeps the word back meanwhile.
//     Records are still written: a home that can be claimed by others compares the epoch with each.
//   * release() says that the job is over, so that nothing of it is left for a claim that comes later.
//   * Callbacks come on the thread that runs the io_context that the journal was made with, and never from within a
//     call of claim() or write(). After the destructor none comes.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace ddp::rendezvous {

// What a life of the coordinator begins with.
struct JournalClaim {
  std::string epoch;                 // names this life, or all lives that the home cannot tell apart
  std::string content;               // what the newest kept write had; empty: nothing was ever written
  std::chrono::milliseconds age{0};  // at least this much time has passed since then
  bool epoch_is_number = false;      // each claim has an epoch of its own
};

class Journal {
 public:
  struct Callbacks {
    std::function<void(JournalClaim)> on_claimed;
    std::function<void(std::uint64_t number)> on_kept;
    // `why` is a sentence for the user: "the coordinator's journal /run/...: cannot write it: No space left on device".
    std::function<void(const std::string& why)> on_lost;
    std::function<void()> on_may_tell = {};  // may_tell() is true again; only of homes where it can be false
  };

  Journal() = default;
  virtual ~Journal() = default;
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  // Call it once, before anything else.
  virtual void claim(Callbacks callbacks) = 0;
  // Call it after on_claimed, with numbers that grow by one, from 1.
  virtual void write(std::uint64_t number, std::string content) = 0;
  // Call it after on_claimed. The answer is true for this moment only.
  virtual bool may_tell() const { return true; }
  // Call it after on_claimed, once. `on_released` is the last callback; it comes after some seconds at most, and says
  // whether nothing is left. A file stays, since its folder goes with the job, and another life there must know that
  // the job is over.
  virtual void release(std::function<void(bool is_gone)> on_released) = 0;
  virtual std::size_t most_content_bytes() const = 0;
};

// What a file and memory take: a job of 10,000 nodes has a tenth of this.
inline constexpr std::size_t kMaxJournalContent = std::size_t{64} << 20;

}  // namespace ddp::rendezvous
