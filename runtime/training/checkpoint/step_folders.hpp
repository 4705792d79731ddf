// SPDX-License-Identifier: BSD-3-Clause
// The checkpoints of one training in one folder. Each is a folder that is complete from the moment
// it has its name:
//
//     step-000000500                 a checkpoint
//     .writing-step-000000500.ID     a checkpoint that is being written
//     .replaced-step-000000500       the previous checkpoint of a step that was saved again; still the valid one if
//                                    there is no complete step-000000500
//     .removed-step-000000500.ID     a checkpoint that is being deleted
//
// What a crash leaves under the last three names is tidied up by the next process that writes. One
// process may write at a time; any number may read. Throws rendezvous::Error{System}.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ddp::runtime {

// Returns which of the steps (in ascending order) are to be removed now that `saved` exists: all
// steps up to `saved`, except the last keep_last of them and the multiples of keep_every. With
// keep_last 0 nothing is removed; with keep_every 0 multiples are not treated specially. Steps
// after `saved` stay: the training has gone back before them, and they may still be wanted.
std::vector<std::int64_t> steps_to_remove(const std::vector<std::int64_t>& steps, std::int64_t saved,
                                          std::int64_t keep_last, std::int64_t keep_every);

class StepFolders {
 public:
  explicit StepFolders(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  std::vector<std::int64_t> steps() const;        // ascending; empty if the folder does not exist
  std::string place_of(std::int64_t step) const;  // where to read it
  std::string path_of(std::int64_t step) const;   // where it belongs

  void tidy_up() const;                                               // removes what crashes have left
  std::string create_writing_folder(std::int64_t step) const;         // returns its path
  void publish(const std::string& written, std::int64_t step) const;  // makes it the step's checkpoint, durably
  void remove(std::int64_t step) const;

 private:
  std::string in_place(const std::string& name) const { return path_ + "/" + name; }

  std::string path_;
};

// Removes a folder with everything in it, as far as possible. Returns false if something is left.
bool remove_folder(const std::string& path);

}  // namespace ddp::runtime
