// SPDX-License-Identifier: BSD-3-Clause
// The memory that an agent keeps for its workers while their processes come and go (--keep-memory): a memfd for each
// worker and name (rendezvous/kept/arena.hpp). Each new process of a worker gets its descriptors; the agent maps the
// headers alone. The kernel frees the memory when the last descriptor and mapping are gone, however the job ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/kept/kept_core.hpp"

namespace ddp::launcher {

class KeptMemories {
 public:
  static constexpr std::size_t kMostNames = 16;  // for each worker
  static constexpr std::size_t kLongestName = 64;

  // `files_of_round`: descriptors that starting the next round takes, which are left to it.
  explicit KeptMemories(int workers, std::size_t files_of_round = 0)
      : workers_(workers), files_of_round_(files_of_round) {}

  // Decides what the workers of a new round do with what is kept; none of the last round may run any more. Returns a
  // line for the log for each name.
  std::vector<std::string> begin_round(int base_rank, int world_size);

  // What a worker gets.
  struct Handed {
    int own = -1;     // descriptor of its memory
    int source = -1;  // descriptor of memory whose tensors it takes first, for reading; -1: it takes none
    // Descriptors of the memories that have the parts of the shadow, for reading; it takes its tensors from them first.
    // Where ranks have tensors of their own, it gets all of them with each plan, and the ranks decide what to take.
    std::vector<int> parts = {};
    bool is_new = false;
    rendezvous::GoOn go_on = rendezvous::GoOn::Nowhere;
    std::int64_t step = rendezvous::kNoStep;
  };
  // Returns the worker's memory of this name, made if there is none of this size, or why there is none.
  std::variant<Handed, std::string> hand_out(int local_rank, const std::string& name, std::int64_t bytes);

  // Returns a descriptor for reading of what a worker's processes have kept under this name; -1: nothing.
  int find(int local_rank, const std::string& name) const;

  // Returns whether the worker is within an update of its tensors, which it had better get through before it is
  // stopped.
  bool is_updating(int local_rank) const;

  // Returns the bytes that are kept for all workers together.
  std::size_t bytes() const;

 private:
  class Memory {
   public:
    explicit Memory(std::size_t bytes);  // throws rendezvous::Error
    ~Memory();
    Memory(Memory&& other) noexcept;
    Memory& operator=(Memory&&) = delete;

    int descriptor() const { return descriptor_.get(); }
    int for_reading() const { return for_reading_.get(); }
    std::size_t bytes() const { return bytes_; }
    std::size_t not_allocated() const;
    const rendezvous::KeptHeader& header() const { return *header_; }

   private:
    std::size_t bytes_;
    rendezvous::Descriptor descriptor_, for_reading_;
    const rendezvous::KeptHeader* header_ = nullptr;
  };
  struct Slot {
    std::optional<Memory> memory;
    bool is_handed_out = false;  // to the worker's process
    bool is_new = false;         // made in this round
  };
  struct Kept {
    std::vector<Slot> slots;  // by local rank
    rendezvous::KeptPlan plan;
  };

  static void hand_plan(const Kept& kept, std::size_t local_rank, Handed& handed);
  static bool is_sharded(const Slot& slot);
  static std::vector<int> holders_of_parts(const Kept& kept);
  std::string why_not(int local_rank, const std::string& name, std::int64_t bytes) const;
  std::string why_no_room(std::size_t bytes) const;
  std::string why_no_files() const;

  const int workers_;
  const std::size_t files_of_round_;
  std::map<std::string, Kept> kept_;  // by name
};

}  // namespace ddp::launcher
