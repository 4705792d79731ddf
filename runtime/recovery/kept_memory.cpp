// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/recovery/kept_memory.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <new>
#include <utility>

#include "rendezvous/base/error.hpp"
#include "runtime/base/buffer.hpp"
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
  if (options.own_bytes > options.bytes) {
    throw Error(ErrorCode::InvalidArgument, "ddp_keep: " + std::to_string(options.own_bytes) +
                                                " bytes are the rank's own, of " + std::to_string(options.bytes));
  }
  return options;
}

// Says what the user should know from the start.
void warn_of_shards(const ProcessGroup& world, const std::string& name) {
  if (world.rank() != 0) return;
  std::fprintf(
      stderr,
      "libddp: kept memory \"%s\": ranks have tensors that no other rank has. If one is killed while an update "
      "is under way, the job starts from its checkpoint (ddprun --keep-memory=shadow keeps a copy of them)\n",
      name.c_str());
}

}  // namespace

KeptMemory::KeptMemory(ProcessGroup& world, Options options)
    : options_(checked(std::move(options))),
      shadow_(Shadow::of_rank(world.rank())),
      places_(shared_bytes(), record_bytes(options_.record), shadow_.parts, options_.own_bytes) {
  if (!world.reaches_host_memory()) {
    throw Error(ErrorCode::InvalidArgument, "ddp_keep: the session needs a backend for the CPU's memory");
  }
  const auto began = std::chrono::steady_clock::now();
  offer_ = ask_for_kept_memory(options_.name, places_.all);
  parts_ = facts_of_parts(offer_.parts);
  const bool had_some = header().version == rendezvous::kKeptVersion;
  const KeptAgreement agreement = agree_on_kept(world, found_memory());
  if (agreement.plan.usable()) {
    recover_with(world, agreement);
  } else {
    make(world, agreement.is_sharded);
    recovered_ = !offer_.outlives_process ? "memory is not kept (ddprun --keep-memory)"
                 : had_some               ? "what was found is not used: " + agreement.plan.reason
                                          : "nothing was found, memory is kept from now on";
  }
  if (agreement.is_sharded && offer_.outlives_process && shadow_.parts == 0) warn_of_shards(world, options_.name);
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - began);
  if (found_) recovered_ += " (" + std::to_string(took.count()) + " ms)";
}

// Returns whether the memory is this program's. Whose ranks they were the plan compares.
bool KeptMemory::has_own_memory() const {
  const KeptHeader& h = header();
  return offer_.outlives_process && h.version == rendezvous::kKeptVersion && h.layout == options_.layout &&
         h.tensor_bytes == shared_bytes() && h.own_bytes == options_.own_bytes && h.own_layout == options_.own_layout &&
         h.record_bytes == record_bytes(options_.record) && h.shadow_part == static_cast<std::int64_t>(shadow_.part) &&
         h.shadow_parts == static_cast<std::int64_t>(shadow_.parts);
}

FoundMemory KeptMemory::found_memory() const {
  FoundMemory found = {options_.layout, shared_bytes(), record_bytes(options_.record), options_.own_bytes};
  if (has_own_memory()) found.memory = facts_of(header());
  if (!found.memory.is_sharded) {
    if (offer_.source || !offer_.parts.empty()) found.offered_step = offer_.step;
    return found;
  }
  if (parts_.empty()) return found;
  const auto [first, last] =
      std::minmax_element(parts_.begin(), parts_.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
  found.first_offered = first->rank;
  found.last_offered = last->rank;
  const auto is_of_step = [&](const rendezvous::KeptFacts& part) { return part.shadow == parts_.front().shadow; };
  const bool is_whole = parts_.size() == shadow_.parts && std::all_of(parts_.begin(), parts_.end(), is_of_step);
  if (is_whole) found.offered_step = parts_.front().shadow;
  return found;
}

// Makes the memory, which nobody can use before the first done().
void KeptMemory::make(const ProcessGroup& world, bool is_sharded) {
  KeptHeader& h = header();
  h.version = 0;
  for (rendezvous::KeptMark* mark : {&h.done, &h.begun, &h.updated, &h.begun_records[0], &h.begun_records[1],
                                     &h.done_records[0], &h.done_records[1], &h.shadow}) {
    mark->store(kNoStep, std::memory_order_release);
  }
  h.layout = options_.layout;
  h.tensor_bytes = shared_bytes();
  h.own_layout = options_.own_layout;
  h.own_bytes = options_.own_bytes;
  h.is_sharded = is_sharded ? 1 : 0;
  h.record_bytes = record_bytes(options_.record);
  h.rank = world.rank();
  h.world_size = world.size();
  h.shadow_part = static_cast<std::int64_t>(shadow_.part);
  h.shadow_parts = static_cast<std::int64_t>(shadow_.parts);
  std::memset(memory(), 0, options_.bytes);
  std::atomic_thread_fence(std::memory_order_release);
  h.version = rendezvous::kKeptVersion;
}

void KeptMemory::recover(GoOn go_on, std::int64_t step) {
  found_ = true;
  tensors_step_ = step;
  is_in_tensors_ = go_on == GoOn::WithinStep;
  step_ = step - (is_in_tensors_ ? 1 : 0);
  state_ = State::Between;
  recovered_ = is_in_tensors_ ? "does step " + std::to_string(step) + " again, with its update in place"
                              : "goes on after step " + std::to_string(step_);
}

// Carries out what the ranks have agreed on.
void KeptMemory::recover_with(ProcessGroup& world, const KeptAgreement& agreement) {
  const auto own = static_cast<std::size_t>(world.rank());
  const rendezvous::KeptPlan& plan = agreement.plan;
  recover(plan.go_on, plan.step);
  is_filled_ = !plan.fills.empty() && plan.fills[own];
  if (is_filled_) {
    make(world, agreement.is_sharded);
    header().version = 0;  // until all is there
  }
  const bool is_over_network = agreement.over_network[own];
  if (plan.copies[own]) mark_taking();
  if (plan.copies[own] && plan.restores_own) {
    put_back_own(offer_.memory.at(0), places_);
    recovered_ += ", with its own tensors from the shadow";
  }
  if (plan.copies[own] && !is_over_network) take_offered(plan);
  if (agreement.takes_any_over_network()) share_tensors(world, agreement);
  if (plan.copies[own] && !is_filled_) mark_taken();
  if (agreement.fills_any()) share_records(world, agreement);
  offer_.source.close();
  offer_.parts.clear();
  restore_record(places_.done_record(step_));
}

// Has the ranks that lack them get the tensors of one that is whole. The others get what they have.
void KeptMemory::share_tensors(ProcessGroup& world, const KeptAgreement& agreement) {
  const bool takes = agreement.over_network[static_cast<std::size_t>(world.rank())];
  const ddp_buffer all = {tensors(), shared_bytes(), DDP_UINT8, {}};
  if (shared_bytes() > 0) world.run(make_broadcast(all, agreement.plan.source, world.place()));
  if (!takes) return;
  recovered_ += ", with the tensors " + std::string(is_filled_ ? "and the record " : "") + "of rank " +
                std::to_string(agreement.plan.source) + " on another node";
}

// Has the ranks that have kept nothing get the records, too.
void KeptMemory::share_records(ProcessGroup& world, const KeptAgreement& agreement) {
  std::vector<std::uint8_t> others(is_filled_ ? 0 : 4 * places_.record_bytes);
  auto* const own = reinterpret_cast<std::uint8_t*>(offer_.memory.at(rendezvous::kKeptPage));
  const bool is_source = world.rank() == agreement.plan.source;
  const ddp_buffer records = {is_filled_ || is_source ? own : others.data(), 4 * places_.record_bytes, DDP_UINT8, {}};
  if (records.count > 0) world.run(make_broadcast(records, agreement.plan.source, world.place()));
  if (!is_filled_) return;
  KeptHeader& h = header();
  for (std::size_t i = 0; i < 2; ++i) {
    h.begun_records[i].store(agreement.source.begun_records[i], std::memory_order_release);
    h.done_records[i].store(agreement.source.done_records[i], std::memory_order_release);
  }
  h.done.store(step_, std::memory_order_seq_cst);
  mark_taken();
  std::atomic_thread_fence(std::memory_order_release);
  h.version = rendezvous::kKeptVersion;
}

// Marks that the tensors are not whole, since they are being replaced.
void KeptMemory::mark_taking() { header().updated.store(kNoStep, std::memory_order_seq_cst); }

// Replaces the tensors by another rank's, or by the shadow of all ranks, as the agent has offered.
void KeptMemory::take_tensors() {
  recovered_ += offer_.source ? ", with the tensors of another rank" : ", with tensors put together from the shadow";
  if (offer_.source) {
    read_kept(offer_.source.get(), static_cast<std::byte*>(tensors()), shared_bytes(), places_.tensors);
  } else {
    put_together(offer_.memory.at(0), places_, offer_.parts);
  }
}

// Replaces what is equal on all ranks by what the agent has offered and the plan says.
void KeptMemory::take_offered(const rendezvous::KeptPlan& plan) {
  if (!plan.restores_own) return take_tensors();
  if (shared_bytes() == 0) return;
  const bool is_in_parts = found_memory().offered_step == plan.step;
  for (std::size_t i = 0; i < parts_.size() && !is_in_parts; ++i) {
    if (parts_[i].rank != plan.source) continue;
    const rendezvous::KeptPlaces its(shared_bytes(), record_bytes(options_.record), shadow_.parts, parts_[i].own_bytes);
    recovered_ += ", and all others of another rank";
    return read_kept(offer_.parts[i].get(), static_cast<std::byte*>(tensors()), shared_bytes(), its.tensors);
  }
  recovered_ += ", and all others put together from it";
  put_together(offer_.memory.at(0), places_, offer_.parts);
}

// Marks that the tensors are whole. Nothing said so while they were replaced.
void KeptMemory::mark_taken() {
  KeptHeader& h = header();
  if (!is_in_tensors_) h.done.store(tensors_step_, std::memory_order_seq_cst);
  h.begun.store(tensors_step_, std::memory_order_seq_cst);
  h.updated.store(tensors_step_, std::memory_order_seq_cst);
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

bool KeptMemory::begun() {
  if (state_ != State::Between) {
    const char* what = state_ == State::NotStarted ? "the start" : "the step before";
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
  if (state_ == State::Between) return;
  KeptHeader& h = header();
  const std::int64_t step = state_ == State::NotStarted ? 0 : step_ + 1;
  save_record(places_.done_record(step), h.done_records[rendezvous::KeptPlaces::slot(step)], step);
  if (state_ == State::NotStarted) {
    h.begun.store(0, std::memory_order_release);
    h.updated.store(0, std::memory_order_release);
  }
  h.done.store(step, std::memory_order_release);
  is_in_tensors_ = false;
  step_ = step;
  state_ = State::Between;
}

}  // namespace ddp::runtime
