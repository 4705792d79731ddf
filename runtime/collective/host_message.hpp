// SPDX-License-Identifier: BSD-3-Clause
// A message between two ranks in host memory, over a backend. With DDP_DEBUG=detail a label precedes it, which tells
// the receiver what follows. The label has the message's tag; the data has a tag of its own, since receives may be
// waited for in another order than they were posted.
//
// Used by one thread at a time. After free() it can be used for another message.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "ddp/backend.h"
#include "runtime/collective/operation.hpp"

namespace ddp::runtime {

class HostMessage {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  // What all messages of a group share.
  struct Channel {
    const ddp_backend_table* backend = nullptr;
    ddp_backend_group* group = nullptr;
    int own_rank = 0;
    bool labelled = false;
  };

  // Starts the message and does not block. `number` is unique among the messages of this rank.
  ddp_backend_status start(const Channel& channel, const Operation& operation, std::uint64_t number,
                           ddp_backend_error* error);
  // Blocks until a started message has ended. *peer is set to the other rank, *disagreement to "" if the label
  // announces what the receiver expects.
  ddp_backend_status wait(const Channel& channel, const Operation& operation, Deadline deadline, std::int32_t* peer,
                          std::string* disagreement, ddp_backend_error* error);
  // Waits until then at most, if the backend can wait again, and returns DDP_BACKEND_TIMEOUT if the message has not
  // ended. Labelled messages cannot be polled.
  static bool can_poll(const Channel& channel);
  ddp_backend_status poll(const Channel& channel, Deadline until, std::int32_t* peer, ddp_backend_error* error);
  // Lets a receive by the backend "ddp" go on into other memory, of as many bytes.
  void move_to(void* memory);
  // Frees the backend's part of a message. The group goes on only if the message has ended.
  void free(const Channel& channel);

 private:
  struct Label {
    std::int64_t dtype;
    std::int64_t count;
    std::int64_t number;  // the sender's number for the message, from which the tag of its data is made
  };

  ddp_backend_status start_labelled(const Channel& channel, const Operation& operation, std::uint64_t number,
                                    ddp_backend_error* error);
  std::string why_not_expected(const Operation& operation, int sender, int own_rank) const;

  ddp_backend_message* handle_ = nullptr;
  ddp_backend_message* label_handle_ = nullptr;
  Label label_ = {};
};

}  // namespace ddp::runtime
