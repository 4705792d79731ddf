// SPDX-License-Identifier: BSD-3-Clause
// A message between two ranks in host memory, over a backend. With DDP_DEBUG=detail a label goes before it, so that its
// receiver knows what comes: the label by the message's tag, what it announces by a tag of its own, since receives may
// be waited for in another order than they were posted.
//
// Used by one thread at a time; used again for another message once it is free.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "collectives/backend.h"
#include "runtime/collective/operation.hpp"

namespace ddp::runtime {

class HostMessage {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  // What all messages of a group go by.
  struct Channel {
    const ddp_backend_table* backend = nullptr;
    ddp_backend_group* group = nullptr;
    int own_rank = 0;
    bool labelled = false;
  };

  // Does not block. number: this rank's messages have one each.
  ddp_backend_status start(const Channel& channel, const Operation& operation, std::uint64_t number,
                           ddp_backend_error* error);
  // Blocks. Of one that has started. *peer: the other rank. *disagreement: empty if what comes is what is expected.
  ddp_backend_status wait(const Channel& channel, const Operation& operation, Deadline deadline, std::int32_t* peer,
                          std::string* disagreement, ddp_backend_error* error);
  // Of one that ended, or of any once the group was aborted.
  void free(const Channel& channel);

 private:
  struct Label {
    std::int64_t dtype;
    std::int64_t count;
    std::int64_t number;  // of the sender's; the message's tag from here on
  };

  ddp_backend_status start_labelled(const Channel& channel, const Operation& operation, std::uint64_t number,
                                    ddp_backend_error* error);
  std::string why_not_expected(const Operation& operation, int sender, int own_rank) const;

  ddp_backend_message* handle_ = nullptr;
  ddp_backend_message* label_handle_ = nullptr;
  Label label_ = {};
};

}  // namespace ddp::runtime
