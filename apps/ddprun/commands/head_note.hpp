// SPDX-License-Identifier: BSD-3-Clause
// What `ddprun --hosts` leaves on its own machine for `ddprun ps` and its like while it runs, since this machine has no
// agent of the job that could be asked. A note is a hidden file beside the agents' sockets. Its writer keeps it locked:
// a note without a lock is one whose writer was killed.
#pragma once

#include <string>
#include <vector>

#include "launcher/hosts/head.hpp"
#include "rendezvous/base/descriptor.hpp"

namespace ddp::apps {

class HeadNote {
 public:
  // Leaves none if the job's first host is this machine, which has an agent then, or if there is no place for it.
  explicit HeadNote(const launcher::HeadConfig& config);
  ~HeadNote();  // removes it
  HeadNote(const HeadNote&) = delete;
  HeadNote& operator=(const HeadNote&) = delete;

 private:
  std::string path_;
  rendezvous::Descriptor file_;  // locked
};

// Returns what the notes of this folder say, each with the command that is to be run elsewhere. Removes those whose
// writers were killed.
std::vector<std::string> jobs_elsewhere(const std::string& folder, const std::string& command);

}  // namespace ddp::apps
