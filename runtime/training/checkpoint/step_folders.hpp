// SPDX-License-Identifier: BSD-3-Clause
// The checkpoints of a training in one folder, each in a folder of its own that is complete from the moment it has its
// name:
//
//     step-000000500                 a checkpoint
//     .writing-step-000000500.ID     one that is being written
//     .replaced-step-000000500       was one until another of the same step took its place; is it still if none has
//     .removed-step-000000500.ID     one that is being deleted
//
// What a crash leaves under the last three names is tidied up by the next that writes. One process writes at a time;
// any may read. Throws rendezvous::Error{System}.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ddp::runtime {

// Of these steps, in ascending order, those that go now that `saved` is there: of those up to it all but the last
// keep_last and the multiples of keep_every. 0 of the first: none goes; of the second: none stays for it. Later ones
// stay: the training has gone back before them, and nobody has said that they are worth nothing.
std::vector<std::int64_t> steps_to_remove(const std::vector<std::int64_t>& steps, std::int64_t saved,
                                          std::int64_t keep_last, std::int64_t keep_every);

class StepFolders {
 public:
  explicit StepFolders(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  std::vector<std::int64_t> steps() const;        // ascending; none if there is no folder
  std::string place_of(std::int64_t step) const;  // where it can be read
  std::string path_of(std::int64_t step) const;   // where it is to be

  void tidy_up() const;                                               // what crashes have left
  std::string create_writing_folder(std::int64_t step) const;         // a new folder to write it to
  void publish(const std::string& written, std::int64_t step) const;  // from now on it is there, on the disk
  void remove(std::int64_t step) const;

 private:
  std::string in_place(const std::string& name) const { return path_ + "/" + name; }

  std::string path_;
};

// A folder with all that is in it; as much of it as can be. False if something is left.
bool remove_folder(const std::string& path);

}  // namespace ddp::runtime
