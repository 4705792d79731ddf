// SPDX-License-Identifier: BSD-3-Clause
// Any number of clients of a c10d store on one thread. Each sends a request, or several in one go, waits for all
// answers and goes on. They work with any server of the modern protocol (PyTorch 2.2 and later).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/ddp_bench/store/server_cost.hpp"

namespace ddp::bench {

struct Target {
  std::string host;  // numeric
  std::uint16_t port = 0;
  pid_t server = 0;  // the process whose cost is measured
};

struct Measured {
  std::string scenario;
  std::uint64_t operations = 0;
  double seconds = 0;         // from the first byte sent to the last received
  double server_us = 0;       // CPU time of the server for an operation
  double server_user_us = 0;  // the part of it in user mode, by the share of ticks
  double median_us = 0;       // one exchange as its client sees it
  double p99_us = 0;
  double resident_bytes = 0;  // growth of the server for each new connection or key; 0 where there is none
};

// `connections` clients connect, up to 2,000 of them at once, send their greeting and count up `init/`. An operation is
// one client.
Measured storm(const Target& target, int connections);
// Each connection has one GET of 64 bytes under way.
Measured closed_loop(const Target& target, int connections, double seconds);
// Each connection sends 16 GETs in one go.
Measured pipelined(const Target& target, int connections, double seconds);
// One connection asks for `keys` values of 170 bytes (what a Gloo rank leaves) at once, `times` times.
Measured multi_get(const Target& target, int keys, int times);
// One connection waits for `keys` keys at once, all of which exist, `times` times.
Measured wait_for_many(const Target& target, int keys, int times);
// What `ranks` processes of PyTorch 2.8 and later do in init_process_group("gloo"): one SET, then WAIT, WAIT, GET for
// each rank. An operation is one request.
Measured gloo_init(const Target& target, int ranks);
// A value of `bytes` bytes is set and read, `times` times. An operation is both requests.
Measured big_values(const Target& target, std::size_t bytes, int times);
// Sets `keys` keys of 40 bytes with values of 32, to see what a key costs in addition to its data. An operation is one
// SET.
Measured many_keys(const Target& target, int keys);

}  // namespace ddp::bench
