// SPDX-License-Identifier: BSD-3-Clause
// The file in a shared folder in which the nodes of a job meet (--rdzv-conf store_type=file): it says where the
// coordinator is. The node that creates it coordinates.
//
//     ddprun meeting file 1
//     job none
//     epoch 5d1f0e6a9c3b7284        names this life of the coordinator
//     address 10.0.0.1              numeric, one line for each
//     port 40313
//
// The coordinator holds a lock on the file (flock) while it lives. It removes the file at its end; one that was killed
// leaves it behind without the lock, and the next node that finds no coordinator at the address replaces it. The file
// is always whole: it is written under another name, then linked or renamed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/descriptor.hpp"

namespace ddp::launcher {

class MeetingFile {
 public:
  struct Entry {
    std::string job;  // its id, for people who read the file
    std::string epoch;
    std::vector<std::string> addresses;
    std::uint16_t port = 0;
  };

  explicit MeetingFile(std::string path) : path_(std::move(path)) {}
  ~MeetingFile();  // removes the file if this process holds it
  MeetingFile(const MeetingFile&) = delete;
  MeetingFile& operator=(const MeetingFile&) = delete;

  // Returns what the file says; nothing if there is none, or an empty one. Throws Error if it cannot be read, or is no
  // meeting file.
  std::optional<Entry> read() const;

  // Returns whether the process that wrote the file lives. Throws Error if that cannot be found out.
  bool is_held() const;

  // Writes the file and holds it from now on. A file that is there is replaced unless its writer lives. Returns false
  // if another node holds it. Throws Error if it cannot be written or locked.
  bool claim(const Entry& entry);
  // Returns the open file, if this process holds it; a process that has a copy holds it, too. -1: it does not.
  int held() const { return held_.get(); }

 private:
  enum class Place { Ours, Others, Changed };
  Place link(const std::string& written) const;
  Place replace(const std::string& written) const;

  const std::string path_;
  rendezvous::Descriptor held_;  // open and locked, if this process holds the file
};

}  // namespace ddp::launcher
