// SPDX-License-Identifier: BSD-3-Clause
// Exported functions on checkpoints.
#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/backend_names.hpp"
#include "ddp/ddp.h"
#include "runtime/api/arguments.hpp"
#include "runtime/api/c_guard.hpp"
#include "runtime/api/c_handles.hpp"
#include "runtime/api/live_sessions.hpp"
#include "runtime/training/checkpoint/checkpoint.hpp"
#include "runtime/training/checkpoint/folder.hpp"
#include "runtime/training/checkpoint/single_file.hpp"

namespace {

using ddp::runtime::Box;
using ddp::runtime::Checkpoint;
using ddp::runtime::CheckpointFolder;
using ddp::runtime::GroupOptions;
using ddp::runtime::guard;
using ddp::runtime::handle_of;
using ddp::runtime::not_null;
using ddp::runtime::of;
using ddp::runtime::ProcessGroup;
using ddp::runtime::session_of;
using std::chrono::milliseconds;

const Checkpoint& of(const ddp_checkpoint* handle) {
  return not_null(reinterpret_cast<const Checkpoint*>(handle), "the checkpoint");
}
ddp_checkpoint* handle_of(std::unique_ptr<Checkpoint> checkpoint) {
  return reinterpret_cast<ddp_checkpoint*>(checkpoint.release());
}

// A checkpoint folder with its own group.
class FolderHandle {
 public:
  FolderHandle(ProcessGroup* parent, const std::string& path, const CheckpointFolder::Options& options)
      : group_(own_group(parent, options)), folder_(std::in_place, path, options, group_.get()) {}

  CheckpointFolder& operator*() { return *folder_; }

 private:
  struct Leave {
    void operator()(ProcessGroup* group) const { ddp_group_destroy(handle_of(group)); }  // its session may have ended
  };
  using Group = std::unique_ptr<ProcessGroup, Leave>;

  // Makes the folder's group, for the CPU's memory whatever the parent has: messages about a save are not on a GPU.
  static Group own_group(ProcessGroup* parent, const CheckpointFolder::Options& options) {
    if (parent == nullptr) return nullptr;
    ddp::runtime::Session& session = session_of(*parent);
    const std::string parents = ddp::collectives::parse_backend_names(session.backend_of(*parent)).cpu;
    const std::string cpu = parents.empty() ? ddp::collectives::parse_backend_names("").cpu : parents;
    const milliseconds timeout = std::max(options.timeout, milliseconds(0));
    return Group(session.split(*parent, 0, 0, GroupOptions{"", cpu, timeout}));
  }

  Group group_;
  std::optional<CheckpointFolder> folder_;
};

CheckpointFolder& of(ddp_checkpoint_folder* handle) {
  return *not_null(reinterpret_cast<FolderHandle*>(handle), "the checkpoint folder");
}

CheckpointFolder::Options folder_options(const ddp_checkpoint_folder_options* caller) {
  const ddp_checkpoint_folder_options given = DDP_OPTIONS(ddp_checkpoint_folder_options, read_only, caller);
  return {given.keep_last, given.keep_every, milliseconds(given.timeout_ms), given.read_only != 0,
          given.no_follow == 0};
}

}  // namespace

ddp_status ddp_checkpoint_save(const char* path, const ddp_tensor* tensors, size_t tensor_count,
                               const ddp_metadata_entry* metadata, size_t metadata_count) {
  return guard([&] {
    ddp::runtime::save_checkpoint(&not_null(path, "the checkpoint's path"), {tensors, tensor_count},
                                  {metadata, metadata_count});
  });
}

ddp_status ddp_checkpoint_open(const char* path, ddp_checkpoint** out) {
  return guard([&] {
    not_null(out, "the checkpoint to fill in") = nullptr;
    *out = handle_of(std::make_unique<Checkpoint>(&not_null(path, "the checkpoint's path")));
  });
}

void ddp_checkpoint_close(ddp_checkpoint* checkpoint) { delete reinterpret_cast<Checkpoint*>(checkpoint); }

int64_t ddp_checkpoint_step(const ddp_checkpoint* checkpoint) {
  int64_t step = -1;
  guard([&] { step = of(checkpoint).step().value_or(-1); });
  return step;
}

const char* ddp_checkpoint_metadata(const ddp_checkpoint* checkpoint, const char* key) {
  const char* value = nullptr;
  guard([&] {
    const std::string* found = of(checkpoint).metadata(&not_null(key, "the key"));
    value = found != nullptr ? found->c_str() : nullptr;
  });
  return value;
}

size_t ddp_checkpoint_tensor_count(const ddp_checkpoint* checkpoint) {
  size_t count = 0;
  guard([&] { count = of(checkpoint).tensor_count(); });
  return count;
}

ddp_status ddp_checkpoint_tensor(const ddp_checkpoint* checkpoint, size_t i, ddp_tensor* out) {
  return guard([&] { not_null(out, "the tensor to fill in") = of(checkpoint).tensor(i); });
}

ddp_status ddp_checkpoint_read(const ddp_checkpoint* checkpoint, const char* name, ddp_buffer buffer,
                               const int64_t* shape, size_t rank) {
  return guard([&] {
    if (rank > 0) not_null(shape, "the shape");
    of(checkpoint).read(&not_null(name, "the tensor's name"), buffer, {shape, rank});
  });
}

ddp_status ddp_checkpoint_read_slice(const ddp_checkpoint* checkpoint, const char* name, ddp_buffer buffer,
                                     const int64_t* offset, const int64_t* shape, size_t rank) {
  return guard([&] {
    if (rank > 0) not_null(shape, "the shape");
    if (rank > 0) not_null(offset, "the offset");
    const Box box = {{offset, offset + rank}, {shape, shape + rank}};
    of(checkpoint).read_slice(&not_null(name, "the tensor's name"), buffer, box);
  });
}

ddp_status ddp_checkpoint_verify(const ddp_checkpoint* checkpoint) {
  return guard([&] { of(checkpoint).verify(); });
}

ddp_status ddp_checkpoint_folder_create(ddp_group* group, const char* path,
                                        const ddp_checkpoint_folder_options* options, ddp_checkpoint_folder** out) {
  return guard([&] {
    not_null(out, "the checkpoint folder to fill in") = nullptr;
    auto folder =
        std::make_unique<FolderHandle>(of(group), &not_null(path, "the folder's path"), folder_options(options));
    ddp::runtime::enlist(folder.get());
    *out = reinterpret_cast<ddp_checkpoint_folder*>(folder.release());
  });
}

void ddp_checkpoint_folder_destroy(ddp_checkpoint_folder* folder) {
  ddp::runtime::destroy(reinterpret_cast<FolderHandle*>(folder));
}

ddp_status ddp_checkpoint_folder_save(ddp_checkpoint_folder* folder, int64_t step, const ddp_tensor_slice* slices,
                                      size_t count, const ddp_metadata_entry* metadata, size_t metadata_count) {
  return guard([&] { of(folder).save(step, {slices, count}, {metadata, metadata_count}); });
}

ddp_status ddp_checkpoint_folder_save_async(ddp_checkpoint_folder* folder, int64_t step, const ddp_tensor_slice* slices,
                                            size_t count, const ddp_metadata_entry* metadata, size_t metadata_count,
                                            uint64_t* save) {
  return guard([&] {
    not_null(save, "the save's number to fill in");
    *save = of(folder).save_async(step, {slices, count}, {metadata, metadata_count});
  });
}

ddp_status ddp_checkpoint_folder_follow(ddp_checkpoint_folder* folder) {
  return guard([&] { of(folder).follow(); });
}

ddp_status ddp_checkpoint_folder_wait(ddp_checkpoint_folder* folder, uint64_t save, int64_t timeout_ms) {
  return guard([&] { of(folder).wait(save, milliseconds(timeout_ms)); });
}

int32_t ddp_checkpoint_folder_has_ended(ddp_checkpoint_folder* folder, uint64_t save) {
  int32_t ended = 0;
  guard([&] { ended = of(folder).has_ended(save) ? 1 : 0; });
  return ended;
}

ddp_status ddp_checkpoint_folder_steps(ddp_checkpoint_folder* folder, int64_t* steps, size_t capacity, size_t* count) {
  return guard([&] {
    not_null(count, "the number of steps to fill in");
    if (capacity > 0) not_null(steps, "the steps to fill in");
    const std::vector<std::int64_t> all = of(folder).steps();
    std::copy_n(all.begin(), std::min(capacity, all.size()), steps);
    *count = all.size();
  });
}

ddp_status ddp_checkpoint_folder_open_step(ddp_checkpoint_folder* folder, int64_t step, ddp_checkpoint** out) {
  return guard([&] {
    not_null(out, "the checkpoint to fill in") = nullptr;
    *out = handle_of(of(folder).open(step));
  });
}

ddp_status ddp_checkpoint_folder_open_latest(ddp_checkpoint_folder* folder, int32_t verify, ddp_sink skipped,
                                             ddp_checkpoint** out) {
  return guard([&] {
    not_null(out, "the checkpoint to fill in") = nullptr;
    *out = handle_of(of(folder).latest(verify != 0, [&](const std::string& why) {
      if (skipped.deliver != nullptr) skipped.deliver(skipped.context, {why.data(), why.size()});
    }));
  });
}
