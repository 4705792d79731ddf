// SPDX-License-Identifier: BSD-3-Clause
// Memory of a worker that its next process finds: tensors, and a record of whatever else a step needs. It writes the
// marks of a step (rendezvous/kept/arena.hpp), and in a new process carries out what the agent has planned from those
// of the process before (rendezvous/kept/kept_core.hpp).
//
//     begun() ──▶ the update writes to the tensors ──▶ updated() ──▶ done() ──▶ begun() ...
//
// One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ddp/ddp.h"
#include "rendezvous/kept/arena.hpp"
#include "runtime/group/process_group.hpp"
#include "runtime/recovery/kept_agreement.hpp"
#include "runtime/recovery/kept_offer.hpp"
#include "runtime/recovery/shadow.hpp"

namespace ddp::runtime {

class KeptMemory {
 public:
  struct Options {
    std::string name;
    std::size_t bytes = 0;         // size of the tensors
    std::uint64_t layout = 0;      // any number that says how the bytes are used
    std::size_t own_bytes = 0;     // the first bytes, which only this rank has
    std::uint64_t own_layout = 0;  // any number that says how those are used
    std::vector<ddp_buffer>
        record;  // this rank's memory that a step needs: copied at marks, and back in the next process
  };

  // Every rank of `world` calls it: they compare what they have found, and use it only if it is the same step.
  // If something is found, the tensors and the record are filled. Throws rendezvous::Error.
  KeptMemory(ProcessGroup& world, Options options);

  // Returns the tensors, this rank's own first.
  void* memory() const { return offer_.memory.at(places_.own); }
  // Whether this memory was filled by an earlier process.
  bool found() const { return found_; }
  // Whether it has another rank's tensors and record, since this rank had nothing.
  bool is_filled() const { return is_filled_; }
  // Number of steps that are done, since the memory was made.
  std::int64_t step() const { return step_; }
  // What happened, as a sentence.
  const std::string& recovered() const { return recovered_; }

  // Marks that the update of the next step begins; the start must be marked. Returns false if the tensors have it
  // already: then the caller must not write, and the record has been filled with what it was at this place.
  bool begun();
  // Marks that the update is complete.
  void updated();
  // Marks that the step is over. The first call marks the start. Another call without an update between changes
  // nothing.
  void done();

 private:
  enum class State { NotStarted, Between, Updating, Updated };

  rendezvous::KeptHeader& header() const { return *reinterpret_cast<rendezvous::KeptHeader*>(offer_.memory.at(0)); }
  bool has_own_memory() const;
  FoundMemory found_memory() const;
  void make(const ProcessGroup& world, bool is_sharded);
  void recover(rendezvous::GoOn go_on, std::int64_t step);
  void recover_with(ProcessGroup& world, const KeptAgreement& agreement);
  void share_tensors(ProcessGroup& world, const KeptAgreement& agreement);
  void share_records(ProcessGroup& world, const KeptAgreement& agreement);
  void mark_taking();
  void take_tensors();
  void take_offered(const rendezvous::KeptPlan& plan);
  void mark_taken();
  std::size_t shared_bytes() const { return options_.bytes - options_.own_bytes; }
  void* tensors() const { return offer_.memory.at(places_.tensors); }
  void save_record(std::size_t place, rendezvous::KeptMark& mark, std::int64_t step);
  void restore_record(std::size_t place);

  const Options options_;
  const Shadow shadow_;
  const rendezvous::KeptPlaces places_;
  KeptOffer offer_;
  std::vector<rendezvous::KeptFacts> parts_ = {};  // what the memories that the agent offers say
  bool found_ = false;
  bool is_filled_ = false;                           // with what another rank has, since this one had nothing
  std::int64_t tensors_step_ = rendezvous::kNoStep;  // the step whose update was in the tensors that were found
  bool is_in_tensors_ = false;                       // the update of the step that is under way
  State state_ = State::NotStarted;
  std::int64_t step_ = 0;
  std::string recovered_;
};

}  // namespace ddp::runtime
