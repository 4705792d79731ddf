// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training/checkpoint/folder.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <utility>

#include "rendezvous/base/text.hpp"
#include "rendezvous/base/thread.hpp"
#include "runtime/training/tensor_file/durable_file.hpp"

namespace ddp::runtime {
namespace {

using rendezvous::Error;
using rendezvous::ErrorCode;

constexpr std::chrono::minutes kTimeout{30};  // the default of process groups
constexpr std::uint64_t kAlignment = 64;      // bytes, for each tensor's copy
constexpr char kNotSaved[] = "not saved (those before it are untouched)";

// Returns the name that Hugging Face's libraries look for.
std::string shard_name(std::size_t number, std::size_t count) {
  if (count == 1) return "model.safetensors";
  char name[64];
  std::snprintf(name, sizeof(name), "model-%05zu-of-%05zu.safetensors", number, count);
  return name;
}
constexpr char kIndexFile[] = "model.safetensors.index.json";

// What ranks tell each other before they start to write.
struct Intent {
  std::int64_t step = 0;
  bool writes = false;
  std::string folder = {};  // rank 0's only
};

std::string intent_text(const Intent& intent) {
  return std::to_string(intent.step) + (intent.writes ? " writes " : " idles ") + intent.folder;
}

Intent parse_intent(const std::string& text) {
  const std::size_t space = text.find(' ');
  const std::size_t second = text.find(' ', space + 1);
  return {std::stoll(text.substr(0, space)), text.substr(space + 1, second - space - 1) == "writes",
          text.substr(second + 1)};
}

// A folder that is being written. Removes it, unless it has been renamed to its final name by then.
struct TemporaryFolder {
  std::string folder;
  ~TemporaryFolder() {
    if (!folder.empty()) remove_folder(folder);
  }
};

void write_file(const std::string& path, const std::string& text) {
  NewFile file(path);
  file.write(text.data(), text.size());
  file.finish();
}

// Throws if rank 0 does not see a file that another rank has written.
void check_visible(const std::string& folder, const CheckpointRecord::File& file) {
  struct stat facts = {};
  const std::string path = folder + "/" + file.name;
  if (stat(path.c_str(), &facts) == 0 && static_cast<std::uint64_t>(facts.st_size) == file.bytes) return;
  throw Error(ErrorCode::System, path +
                                     " was written by another rank, but is not there for rank 0: the folder must be "
                                     "on a file system that all ranks share");
}

}  // namespace

CheckpointFolder::CheckpointFolder(const std::string& path, const Options& options, ProcessGroup* group)
    : folders_(path), options_(options), ranks_(group) {
  const auto prepare = [&]() -> std::string {
    if (path.empty()) throw Error(ErrorCode::InvalidArgument, "its path is empty");
    if (options_.keep_last < 0 || options_.keep_every < 0 || options_.timeout.count() < 0) {
      throw Error(ErrorCode::InvalidArgument, "an option is negative");
    }
    if (options_.read_only) return "";
    make_folders(path);
    if (access(path.c_str(), W_OK | X_OK) != 0) system_error(path, "cannot be written to", errno);
    return "";
  };
  // Only rank 0 creates the folder; its verdict, also on the options, counts for all.
  const SaveReport mine = ranks_.is_first() ? report_of(prepare) : SaveReport();
  throw_failure(describe(), first_failure(ranks_.all_gather_reports(mine)));
}

CheckpointFolder::~CheckpointFolder() {
  {
    const Lock lock(mutex_);
    leaving_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void CheckpointFolder::save(std::int64_t step, std::span<const ddp_tensor_slice> slices,
                            std::span<const ddp_metadata_entry> metadata) {
  Lock lock(mutex_);
  const std::uint64_t save = begin(lock);
  lock.unlock();
  end(save, perform(take(step, slices, metadata, false)));
  wait(save, {});
}

std::uint64_t CheckpointFolder::save_async(std::int64_t step, std::span<const ddp_tensor_slice> slices,
                                           std::span<const ddp_metadata_entry> metadata) {
  Lock lock(mutex_);
  const std::uint64_t save = begin(lock);
  job_ = take(step, slices, metadata, true);
  changed_.notify_all();
  if (!thread_.joinable()) thread_ = rendezvous::start_thread("ddp-checkpoint", [this] { run(); });
  return save;
}

void CheckpointFolder::wait(std::uint64_t save, Milliseconds timeout) {
  Lock lock(mutex_);
  await(save, timeout, lock);
  if (save != ended_) return;  // a later save has already reported this one's failure
  reported_ = true;
  throw_failure(describe(), outcome_);
}

bool CheckpointFolder::has_ended(std::uint64_t save) {
  const Lock lock(mutex_);
  return ended_ >= save;
}

// Begins a save. Waits for the save before, and reports its failure if no one has asked for it.
std::uint64_t CheckpointFolder::begin(Lock& lock) {
  await(begun_, {}, lock);
  if (!std::exchange(reported_, true)) throw_failure(describe(), outcome_);
  written_ = 0;
  return ++begun_;
}

void CheckpointFolder::end(std::uint64_t save, SaveReport outcome) {
  const Lock lock(mutex_);
  ended_ = save;
  outcome_ = std::move(outcome);
  reported_ = !outcome_.failure;
  changed_.notify_all();
}

CheckpointFolder::Milliseconds CheckpointFolder::patience(Milliseconds given) const {
  if (given.count() != 0) return given;
  return options_.timeout.count() != 0 ? options_.timeout : kTimeout;
}

void CheckpointFolder::await(std::uint64_t save, Milliseconds timeout, Lock& lock) {
  timeout = patience(timeout);
  if (changed_.wait_for(lock, timeout, [&] { return ended_ >= save; })) return;
  throw Error(ErrorCode::Timeout, describe() + ": the save in flight has not ended in " +
                                      rendezvous::to_string(timeout) + " (" + rendezvous::describe_bytes(written_) +
                                      " written by this rank): the disk here is slow, or another rank has not come");
}

void CheckpointFolder::run() {
  Lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return job_ || leaving_; });
    if (!job_) return;
    const Job job = *std::exchange(job_, std::nullopt);
    const std::uint64_t save = begun_;
    lock.unlock();
    SaveReport outcome = perform(job);
    end(save, std::move(outcome));
    lock.lock();
  }
}

CheckpointFolder::Job CheckpointFolder::take(std::int64_t step, std::span<const ddp_tensor_slice> slices,
                                             std::span<const ddp_metadata_entry> metadata, bool copy) {
  Job job{step};
  job.taken = report_of([&]() -> std::string {
    if (options_.read_only) throw Error(ErrorCode::InvalidArgument, "this folder was opened for reading only");
    if (step < 0) throw Error(ErrorCode::InvalidArgument, "a step cannot be negative");
    job.slices = take_slices(slices);
    job.metadata = take_metadata(metadata);
    job.is_from_gpu = std::any_of(job.slices.begin(), job.slices.end(), is_on_gpu);
    if (copy || job.is_from_gpu) stage(job.slices, copy);
    return "";
  });
  return job;
}

// Copies all slices, or those on a GPU, to memory of this object. Copies from a GPU have begun when it returns.
void CheckpointFolder::stage(std::vector<TensorSlice>& slices, bool all) {
  const auto padded_size = [](const TensorSlice& slice) {
    return (slice.bytes + kAlignment - 1) / kAlignment * kAlignment;
  };
  const auto first_on_gpu = std::find_if(slices.begin(), slices.end(), is_on_gpu);
  HostCopy* const copies = first_on_gpu != slices.end() ? &copies_from(first_on_gpu->device.index) : nullptr;
  std::uint64_t bytes = 0;
  for (const TensorSlice& slice : slices) bytes += all || is_on_gpu(slice) ? padded_size(slice) : 0;
  char* at = copies != nullptr ? copies->reserve(bytes) : staging_.reserve(bytes);
  if (copies != nullptr) copies->begin();
  for (TensorSlice& slice : slices) {
    if (!all && !is_on_gpu(slice)) continue;
    if (is_on_gpu(slice)) {
      copies_from(slice.device.index).add(at, slice.data, slice.bytes);
    } else if (slice.bytes > 0) {
      std::memcpy(at, slice.data, slice.bytes);
    }
    slice.data = at;
    at += padded_size(slice);
  }
  if (copies == nullptr) return;
  copies->end();
  if (all && options_.follows) copies->follow();
}

HostCopy& CheckpointFolder::copies_from(std::int32_t device) {
  if (copies_ == nullptr) copies_ = std::make_unique<HostCopy>(device);
  if (copies_->device() == device) return *copies_;
  throw Error(ErrorCode::InvalidArgument, "tensors on cuda:" + std::to_string(copies_->device()) +
                                              " and on cuda:" + std::to_string(device) + ": a rank saves from one GPU");
}

void CheckpointFolder::follow() const {
  if (copies_ != nullptr) copies_->follow();
}

SaveReport CheckpointFolder::perform(const Job& job) const {
  SaveReport outcome = report_of([&]() -> std::string {
    save_together(job);
    return "";
  });
  if (outcome.failure) outcome.text = "step " + std::to_string(job.step) + ": " + outcome.text;
  return outcome;
}

void CheckpointFolder::save_together(const Job& job) const {
  SaveReport verdict;
  try {
    // Agree on the step and on who writes. Any rank's refusal is everyone's.
    const SavePlan plan = agree_on_plan(job, verdict);
    if (verdict.failure) throw_failure(kNotSaved, verdict);
    // Every rank writes its shard; rank 0 gathers the records and commits.
    const TemporaryFolder temporary{ranks_.is_first() ? plan.folder : ""};
    const std::vector<SaveReport> reports = ranks_.gather_reports(report_of([&] { return write(job, plan); }));
    if (ranks_.is_first()) {
      verdict = first_failure(reports);
      if (!verdict.failure) verdict = report_of([&] { return commit(job.step, plan, reports); });
    }
    // All ranks learn whether the checkpoint exists.
    verdict = ranks_.broadcast_report(verdict);
  } catch (const Error& e) {
    if (verdict.failure) throw;
    // A rank is lost or too late. Rank 0 may or may not have finished the checkpoint before that.
    throw Error(e.code(), std::string("not known to be saved: ") + e.what());
  }
  throw_failure(kNotSaved, verdict);
  if (ranks_.is_first()) remove_old(job.step);
}

// Exchanges what every rank intends. verdict receives what is wrong on any rank.
CheckpointFolder::SavePlan CheckpointFolder::agree_on_plan(const Job& job, SaveReport& verdict) const {
  Intent mine{job.step, !job.slices.empty()};
  SaveReport report = job.taken;
  if (!report.failure && ranks_.is_first()) {
    report = report_of([&] {
      folders_.tidy_up();
      return folders_.create_writing_folder(job.step);
    });
    mine.folder = report.text;
  }
  if (!report.failure) report.text = intent_text(mine);
  const std::vector<SaveReport> reports = ranks_.all_gather_reports(report);
  verdict = first_failure(reports);
  // From all intents follow the folder, the number of shards and this rank's number among them.
  SavePlan plan;
  std::size_t writers = 0;
  std::size_t number = 0;
  for (std::size_t rank = 0; rank < reports.size() && !verdict.failure; ++rank) {
    const Intent intent = parse_intent(reports[rank].text);
    if (rank == 0) plan.folder = intent.folder;
    if (intent.writes) ++writers;
    if (rank == static_cast<std::size_t>(ranks_.rank())) number = writers;
    if (intent.step == parse_intent(reports[0].text).step) continue;
    verdict = {"rank " + std::to_string(rank) + " saves step " + std::to_string(intent.step) +
                   ", rank 0 another: step " + std::to_string(parse_intent(reports[0].text).step),
               ErrorCode::Mismatch};
  }
  if (verdict.failure && !mine.folder.empty()) remove_folder(mine.folder);
  if (mine.writes) plan.shard = shard_name(number, writers);
  return plan;
}

std::string CheckpointFolder::write(const Job& job, const SavePlan& plan) const {
  CheckpointRecord record;
  if (job.is_from_gpu) copies_->wait(std::chrono::steady_clock::now() + patience({}));
  if (!plan.shard.empty()) record = write_shard(plan.folder, plan.shard, job.slices, job.metadata, written_);
  record.step = job.step;
  record.metadata = {job.metadata.begin(), job.metadata.end()};
  return to_string(record);
}

std::string CheckpointFolder::commit(std::int64_t step, const SavePlan& plan,
                                     const std::vector<SaveReport>& reports) const {
  std::vector<CheckpointRecord> ranks;
  for (const SaveReport& each : reports) ranks.push_back(parse_rank_record(plan.folder, each.text));
  const CheckpointRecord whole = join(ranks);
  for (const CheckpointRecord::File& file : whole.files) check_visible(plan.folder, file);
  if (has_index(whole)) write_file(plan.folder + "/" + kIndexFile, index_json(whole));
  const std::string record = to_string(whole);
  if (record.size() > kMaxRecordBytes) {
    throw Error(ErrorCode::InvalidArgument, std::string(kRecordFile) + " would be larger than " +
                                                rendezvous::describe_bytes(kMaxRecordBytes) +
                                                ": save fewer or larger slices");
  }
  write_file(plan.folder + "/" + kRecordFile, record);
  folders_.publish(plan.folder, step);
  return "";
}

// A checkpoint that cannot be removed does not make the save fail; the next save tries again.
void CheckpointFolder::remove_old(std::int64_t saved) const {
  (void)report_of([&]() -> std::string {
    for (const std::int64_t step : steps_to_remove(steps(), saved, options_.keep_last, options_.keep_every)) {
      folders_.remove(step);
    }
    return "";
  });
}

std::unique_ptr<Checkpoint> CheckpointFolder::open(std::int64_t step) const {
  return std::make_unique<Checkpoint>(folders_.place_of(step));
}

std::unique_ptr<Checkpoint> CheckpointFolder::latest(bool verified, const Skip& skip) {
  Lock lock(mutex_);
  await(begun_, {}, lock);
  std::int64_t before = INT64_MAX;
  std::string why_none;
  for (;;) {
    // Rank 0 chooses the candidate, so that all ranks open the same one.
    const SaveReport chosen = ranks_.broadcast_report(report_of([&] { return newest_before(before); }));
    throw_failure(describe(), chosen);
    if (chosen.text.empty()) break;
    before = std::stoll(chosen.text);
    std::unique_ptr<Checkpoint> found;
    const std::vector<SaveReport> reports = ranks_.all_gather_reports(report_of([&]() -> std::string {
      found = open(before);
      if (verified) found->verify(static_cast<std::size_t>(ranks_.rank()), static_cast<std::size_t>(ranks_.size()));
      return "";
    }));
    // With `verified` a damaged checkpoint is skipped; any other error ends the search.
    const SaveReport wrong = first_failure(reports);
    if (!wrong.failure) return found;
    if (!verified || wrong.failure != ErrorCode::Corrupt) throw_failure(describe(), wrong);
    skip(wrong.text);
    why_none = wrong.text;
  }
  if (why_none.empty()) return nullptr;
  throw Error(ErrorCode::Corrupt, describe() + ": all of them are damaged; the oldest: " + why_none);
}

// Returns the newest step before this one, or "" if there is none.
std::string CheckpointFolder::newest_before(std::int64_t before) const {
  const std::vector<std::int64_t> all = steps();
  const auto at = std::lower_bound(all.begin(), all.end(), before);
  return at == all.begin() ? "" : std::to_string(*(at - 1));
}

}  // namespace ddp::runtime
