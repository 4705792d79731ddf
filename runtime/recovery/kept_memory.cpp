// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/recovery/kept_memory.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <utility>

#include "rendezvous/base/error.hpp"
#include "runtime/base/buffer.hpp"
#include "runtime/base/own_agent.hpp"
#include "runtime/collective/make_operation.hpp"

namespace ddp::runtime {

using rendezvous::Error;
using rendezvous::ErrorCode;
using rendezvous::GoOn;
using rendezvous::KeptHeader;
using rendezvous::kNoStep;

namespace {

std::size_t bytes_of_buffer(const ddp_buffer& buffer) { return buffer.count * dtype_size(buffer.dtype); }

std::size_t record_bytes(const std::vector<ddp_buffer>& record) {
  std::size_t sum = 0;
  for (const ddp_buffer& part : record) sum += bytes_of_buffer(part);
  return sum;
}

// Returns the options, or throws if they are impossible.
KeptMemory::Options checked(KeptMemory::Options options) {
  constexpr std::size_t kMost = std::size_t{1} << 46;  // 64 TiB; a larger number is a mistake, and no sum overflows
  for (const ddp_buffer& part : options.record) {
    check_buffer("ddp_keep: the record", part.data, part.count, part.dtype, part.device);
  }
  if (options.bytes >= kMost || record_bytes(options.record) >= kMost) {
    throw Error(ErrorCode::InvalidArgument, "ddp_keep: " + std::to_string(options.bytes) + " bytes is too much");
  }
  return options;
}

}  // namespace

KeptMemory::KeptMemory(ProcessGroup& world, Options options)
    : marks_in_(world.awaits_successors() ? &world : nullptr),
      options_(checked(std::move(options))),
      shadow_(Shadow::of_rank(world.rank())),
      places_(options_.bytes, record_bytes(options_.record), shadow_.parts) {
  if (!world.reaches_host_memory()) {
    throw Error(ErrorCode::InvalidArgument, "ddp_keep: the session needs a backend for the CPU's memory");
  }
  const auto began = std::chrono::steady_clock::now();
  offer_ = ask_for_kept_memory(options_.name, places_.all);
  const std::string why = why_unusable(world);
  if (world.is_successor()) {
    if (!has_own_memory(world)) {
      throw Error(ErrorCode::System, "kept memory \"" + options_.name +
                                         "\": taking the place of a process that died: what that one kept cannot be "
                                         "used (has the program changed?)");
    }
    recover();
    recovered_ = "takes the place of a process that died, and " + recovered_;
    offer_.memory.make_private(offer_.file.get());
  } else if (why.empty()) {
    recover();
  } else {
    make(world);
    const bool had_some = offer_.go_on != GoOn::Nowhere;
    recovered_ = !offer_.outlives_process ? "memory is not kept (ddprun --keep-memory)"
                 : had_some               ? "what was found is not used: " + why
                                          : "nothing was found, memory is kept from now on";
  }
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - began);
  if (found_) recovered_ += " (" + std::to_string(took.count()) + " ms)";
  if (!world.is_successor()) offer_.file.close();
}

bool KeptMemory::has_own_memory(const ProcessGroup& world) const {
  const KeptHeader& h = header();
  return offer_.go_on != GoOn::Nowhere && h.version == rendezvous::kKeptVersion && h.layout == options_.layout &&
         h.tensor_bytes == options_.bytes && h.record_bytes == record_bytes(options_.record) &&
         h.rank == world.rank() && h.world_size == world.size() &&
         h.shadow_part == static_cast<std::int64_t>(shadow_.part) &&
         h.shadow_parts == static_cast<std::int64_t>(shadow_.parts);
}

// Returns what ranks must have in common to go on.
std::vector<std::int64_t> KeptMemory::facts(const ProcessGroup& world) const {
  return {has_own_memory(world) ? static_cast<std::int64_t>(offer_.go_on) : 0, offer_.step,
          static_cast<std::int64_t>(options_.layout), static_cast<std::int64_t>(options_.bytes)};
}

// Compares with all other ranks. Returns why what they have found cannot be used; empty: it can. To a successor the
// answers are those of the start that it repeats.
std::string KeptMemory::why_unusable(ProcessGroup& world) const {
  std::vector<std::int64_t> mine = facts(world);
  std::vector<std::int64_t> all(mine.size() * static_cast<std::size_t>(world.size()));
  world.run(make_all_gather({mine.data(), mine.size(), DDP_INT64, {}}, {all.data(), all.size(), DDP_INT64, {}},
                            world.place()));
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(world.size()); ++rank) {
    const auto theirs = all.begin() + static_cast<std::ptrdiff_t>(rank * mine.size());
    const std::string who = "rank " + std::to_string(rank);
    if (theirs[0] == 0) return who + " found nothing that it can use";
    if (!std::equal(mine.begin(), mine.end(), theirs)) return who + " found another step, or keeps other tensors";
  }
  return "";
}

// Makes the memory, which nobody can use before the first done().
void KeptMemory::make(const ProcessGroup& world) {
  KeptHeader& h = header();
  h.version = 0;
  for (rendezvous::KeptMark* mark : {&h.done, &h.begun, &h.updated, &h.begun_records[0], &h.begun_records[1],
                                     &h.done_records[0], &h.done_records[1], &h.shadow}) {
    mark->store(kNoStep, std::memory_order_release);
  }
  for (rendezvous::KeptPosition& position : h.positions) position.step.store(kNoStep, std::memory_order_release);
  h.layout = options_.layout;
  h.tensor_bytes = options_.bytes;
  h.record_bytes = record_bytes(options_.record);
  h.rank = world.rank();
  h.world_size = world.size();
  h.shadow_part = static_cast<std::int64_t>(shadow_.part);
  h.shadow_parts = static_cast<std::int64_t>(shadow_.parts);
  std::memset(tensors(), 0, options_.bytes);
  std::atomic_thread_fence(std::memory_order_release);
  h.version = rendezvous::kKeptVersion;
}

void KeptMemory::recover() {
  found_ = true;
  is_in_tensors_ = offer_.go_on == GoOn::WithinStep;
  step_ = offer_.step - (is_in_tensors_ ? 1 : 0);
  state_ = State::Between;
  recovered_ = is_in_tensors_ ? "does step " + std::to_string(offer_.step) + " again, with its update in place"
                              : "goes on after step " + std::to_string(step_);
  if (offer_.source || !offer_.parts.empty()) {
    recovered_ += offer_.source ? ", with the tensors of another rank" : ", with tensors put together from the shadow";
    take_tensors();
  }
  restore_record(places_.done_record(step_));
}

// Replaces the tensors by another rank's, or by the shadow of all ranks. Nothing says that they are whole until they
// are.
void KeptMemory::take_tensors() {
  KeptHeader& h = header();
  h.updated.store(kNoStep, std::memory_order_seq_cst);
  if (offer_.source) {
    const Mapping source(offer_.source.get(), places_.all, false);
    std::memcpy(tensors(), source.at(places_.tensors), options_.bytes);
  } else {
    put_together(offer_.memory.at(0), places_, offer_.parts);
  }
  offer_.source.close();
  offer_.parts.clear();
  if (!is_in_tensors_) h.done.store(offer_.step, std::memory_order_seq_cst);
  h.begun.store(offer_.step, std::memory_order_seq_cst);
  h.updated.store(offer_.step, std::memory_order_seq_cst);
}

void KeptMemory::save_record(std::size_t place, rendezvous::KeptMark& mark, std::int64_t step) {
  mark.store(kNoStep, std::memory_order_seq_cst);
  for (const ddp_buffer& part : options_.record) {
    if (part.count > 0) std::memcpy(offer_.memory.at(place), part.data, bytes_of_buffer(part));
    place += bytes_of_buffer(part);
  }
  mark.store(step, std::memory_order_release);
}

void KeptMemory::restore_record(std::size_t place) {
  for (const ddp_buffer& part : options_.record) {
    if (part.count > 0) std::memcpy(part.data, offer_.memory.at(place), bytes_of_buffer(part));
    place += bytes_of_buffer(part);
  }
}

// Notes where this rank is in the world, which it marks next.
void KeptMemory::save_position(std::int64_t step) {
  const collectives::Position position = marks_in_->position();
  rendezvous::KeptPosition& saved = header().positions[rendezvous::KeptPlaces::slot(step)];
  saved.step.store(kNoStep, std::memory_order_seq_cst);
  saved.group = marks_in_->memory_number();
  saved.calls = position.calls;
  saved.chunks = position.chunks;
  saved.window = position.window;
  saved.step.store(step, std::memory_order_release);
}

// Goes on where the process before this one was. What the start has written is forgotten.
void KeptMemory::take_place() {
  offer_.memory.share(offer_.file.get());
  offer_.file.close();
  restore_record(places_.done_record(step_));
  const rendezvous::KeptPosition& saved = header().positions[rendezvous::KeptPlaces::slot(step_)];
  if (saved.step.load(std::memory_order_acquire) != step_ || saved.group != marks_in_->memory_number()) {
    throw Error(ErrorCode::System, "kept memory \"" + options_.name + "\": taking the place of a process that died: " +
                                       "it has not noted where it was in this group");
  }
  marks_in_->catch_up({saved.calls, saved.chunks, saved.window});
}

// Ends the start with the first mark of this process. From now on it can have a successor.
void KeptMemory::end_start() {
  has_ended_start_ = true;
  if (marks_in_ == nullptr) return;
  marks_in_->mark();
  if (marks_in_->is_successor()) {
    ask_own_agent("arrived");
  } else if (marks_in_->rank() == 0 && marks_in_->keeps_start()) {
    ask_own_agent("await", "", {marks_in_->memory_descriptor()});
  }
}

bool KeptMemory::begun() {
  const bool lacks_mark = marks_in_ != nullptr && !has_ended_start_;
  if (state_ != State::Between || lacks_mark) {
    const char* what = state_ == State::NotStarted || lacks_mark ? "the start" : "the step before";
    throw Error(ErrorCode::InvalidArgument, "kept memory \"" + options_.name + "\": an update began, and " + what +
                                                " is not marked as done (ddp_kept_done, ddp::Kept::step)");
  }
  const std::int64_t step = step_ + 1;
  state_ = State::Updating;
  if (is_in_tensors_) {
    restore_record(places_.begun_record(step));
    return false;
  }
  save_record(places_.begun_record(step), header().begun_records[rendezvous::KeptPlaces::slot(step)], step);
  if (shadow_.parts > 0 && offer_.outlives_process) shadow_.save(offer_.memory.at(0), places_, step_);
  header().begun.store(step, std::memory_order_seq_cst);  // no write of the update may come before it
  return true;
}

void KeptMemory::updated() {
  if (state_ != State::Updating) {
    throw Error(ErrorCode::InvalidArgument, "kept memory \"" + options_.name + "\": no update has begun");
  }
  state_ = State::Updated;
  if (!is_in_tensors_) header().updated.store(step_ + 1, std::memory_order_release);
}

void KeptMemory::done() {
  if (state_ == State::Updating) {
    throw Error(ErrorCode::InvalidArgument,
                "kept memory \"" + options_.name + "\": the step is over, and its update is not complete");
  }
  if (state_ == State::Between && has_ended_start_) return;
  KeptHeader& h = header();
  const bool takes_place = marks_in_ != nullptr && marks_in_->is_successor() && !has_ended_start_;
  const std::int64_t step = state_ == State::Between ? step_ : state_ == State::NotStarted ? 0 : step_ + 1;
  if (state_ != State::Between)
    save_record(places_.done_record(step), h.done_records[rendezvous::KeptPlaces::slot(step)], step);
  if (takes_place) {
    take_place();
  } else if (marks_in_ != nullptr) {
    save_position(step);
  }
  if (state_ == State::NotStarted) {
    h.begun.store(0, std::memory_order_release);
    h.updated.store(0, std::memory_order_release);
  }
  if (state_ != State::Between) {
    h.done.store(step, std::memory_order_release);
    is_in_tensors_ = false;
  }
  step_ = step;
  state_ = State::Between;
  if (!has_ended_start_) return end_start();
  if (marks_in_ != nullptr) marks_in_->mark();
}

}  // namespace ddp::runtime
