// SPDX-License-Identifier: BSD-3-Clause
// Every kind of peer that may connect to the endpoint's port, with the first bytes that it sends.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace ddp::rendezvous {

struct Speaker {
  std::string name;
  std::string first_bytes;  // in hex
  std::string taken_for;    // by the c10d decoder
  std::size_t decided_by;   // after this many of them
};

inline const std::vector<Speaker> kSpeakers = {
    {"2.2 to 2.4: VALIDATE, ADD", "00 cef7853c 04 05", "modern", 5},
    {"2.5 and later: VALIDATE, PING", "00 cef7853c 0d 34120000", "modern", 5},
    {"A or C: ADD init/, as every process group begins", "03 0500000000000000 696e69742f", "old", 1},
    {"A or C: SET", "00 0200000000000000 2f6b", "old", 2},
    {"A or C: SET of a key of 206 bytes", "00 ce00000000000000 2f6b", "old", 3},
    {"A or C: SET of a key of 63438 bytes", "00 cef7000000000000 2f6b", "a key of 63438 bytes", 9},
    {"A or C: GET", "02 0200000000000000 2f6b", "old", 1},
    {"A: WATCH_KEY, on a connection of its own", "07 0200000000000000 2f6b", "A", 1},
    {"A: DELETE_KEY", "08 0200000000000000 2f6b", "old", 1},  // or C's APPEND: undecided() until kUndecidedGrace
    {"C: APPEND", "08 0200000000000000 2f6b 01", "C", 12},
    {"C: DELETE_KEY, its connection's first request", "07 0200000000000000 2f6b", "A",
     1},  // A's first request has these bytes too
    {"C: MULTI_GET", "09 0100000000000000", "C", 1},
    {"C: MULTI_SET", "0a 0100000000000000", "C", 1},
    {"C: CANCEL_WAIT", "0b", "C", 1},
    // For some weeks of 2023, in no release, the magic preceded each request. Not supported.
    {"D", "cef7853c 03 0500000000000000", "unknown operation 206", 1},
    {"a ddprun agent's link", "dd 64647072756e 01", "unknown operation 221",
     1},  // the server recognises it before the decoder
    {"TLS", "16 0301 0200 01", "unknown operation 22", 1},
    {"HTTP", "474554202f20485454502f312e31", "unknown operation 71", 1},
    {"SSH", "5353482d322e30", "unknown operation 83", 1},
    {"garbage of ones", "ffffffffffffffffff", "unknown operation 255", 1},
    {"garbage of zeros", "000000000000000000 0000000000000000", "old", 2},  // SET of nothing to nothing
    {"half a magic, then text", "00 cef785 474554202f", "a key of 3395806775566792654 bytes", 9},
};

}  // namespace ddp::rendezvous
