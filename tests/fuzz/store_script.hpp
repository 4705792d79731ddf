// SPDX-License-Identifier: BSD-3-Clause
// The meaning of a fuzzer's input: a script of what up to four connections do to one store.
// store_fuzzer.cpp runs scripts, seeds/store_seeds.cpp writes them from recorded conversations.
//
// A step is one byte and its operands: bits 0-1 say which connection, bits 2-4 which action, bits
// 5-7 a small number n.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ddp::rendezvous::fuzz {

inline constexpr std::size_t kConnections = 4;

enum class Step : std::uint8_t {
  Bytes,       // followed by a length and that many bytes, which arrive in one piece
  FewBytes,    // followed by n + 1 bytes
  Number,      // followed by a byte, which arrives as a u64
  Key,         // one of eight short keys, preceded by its length
  Hello,       // a Modern client's VALIDATE
  Disconnect,  // the connection's next step belongs to a new client
  Settle,      // silence for longer than kUndecidedGrace
  Reset,       // a new round if n is 7: all connections are closed; if n is 6, followed by a byte: the store is full
               // once it keeps that many times 8 bytes more
};

constexpr std::uint8_t step_byte(std::size_t connection, Step step, unsigned n = 0) {
  return static_cast<std::uint8_t>(connection | static_cast<unsigned>(step) << 2 | n << 5);
}

}  // namespace ddp::rendezvous::fuzz
