// SPDX-License-Identifier: BSD-3-Clause
// Says so when rank 0 looks for the job's store at an address where nobody listens (store_search_core.hpp decides).
// It examines rank 0 and its descendants from time to time, until one of them has reached the store. It runs on the
// loop's thread, on the node that has rank 0.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "launcher/diagnosis/store_search_core.hpp"
#include "launcher/output/log.hpp"
#include "rendezvous/net/asio.hpp"

namespace ddp::launcher {

class StoreSearch {
 public:
  StoreSearch(rendezvous::asio::io_context& io, Log& log) : timer_(io), log_(log) {}

  // Begins to examine rank 0 of a round, whose store is at this address.
  void start(pid_t rank_0, const std::string& host, std::uint16_t port);
  void stop();

 private:
  void wait();
  void examine();

  rendezvous::asio::steady_timer timer_;
  Log& log_;
  pid_t rank_0_ = 0;
  std::string host_;
  std::uint16_t port_ = 0;
  std::optional<StoreSearchCore> core_;  // set while it examines
};

}  // namespace ddp::launcher
