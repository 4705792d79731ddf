// SPDX-License-Identifier: BSD-3-Clause
// The outcomes of a decoder of a stream other than a message.
#pragma once

#include <string>

namespace ddp::rendezvous {

struct NeedMore {};  // the rest of the message has not arrived
struct Malformed {   // the decoder reads no more of this stream
  std::string why;
};

}  // namespace ddp::rendezvous
