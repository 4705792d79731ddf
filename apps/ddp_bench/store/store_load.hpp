// SPDX-License-Identifier: BSD-3-Clause
// Clients of a c10d store, as many as asked, on one thread: each sends a request, or several in one go, waits for all
// of the answers, and goes on. Works against any server of the modern protocol (PyTorch 2.2 and later).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/ddp_bench/store/server_cost.hpp"

namespace ddp::bench {

struct Target {
  std::string host;  // numeric
  std::uint16_t port = 0;
  pid_t server = 0;  // whose cost is measured
};

struct Measured {
  std::string scenario;
  std::uint64_t operations = 0;
  double seconds = 0;         // from the first byte sent to the last received
  double server_us = 0;       // CPU of the server for an operation
  double server_user_us = 0;  // of it in user mode, by the share of ticks
  double median_us = 0;       // of one exchange as its client sees it
  double p99_us = 0;
  double resident_bytes = 0;  // of the server, for each connection or key that came; 0 where neither came
};

// `connections` clients connect, up to 2,000 of them at once, introduce themselves and count up `init/`. An operation:
// one client.
Measured storm(const Target& target, int connections);
// Each connection has one GET of 64 bytes under way.
Measured closed_loop(const Target& target, int connections, double seconds);
// Each connection sends 16 GETs in one go.
Measured pipelined(const Target& target, int connections, double seconds);
// One connection asks for `keys` values of 170 bytes (what a Gloo rank leaves) at once, `times` times.
Measured multi_get(const Target& target, int keys, int times);
// The same with WAIT: all keys are there.
Measured wait_for_many(const Target& target, int keys, int times);
// What `ranks` processes of PyTorch 2.8 and later do in init_process_group("gloo"): one SET, then WAIT, WAIT, GET for
// each rank. An operation: one request.
Measured gloo_init(const Target& target, int ranks);
// One value of so many bytes is set and got, `times` times. An operation: both.
Measured big_values(const Target& target, std::size_t bytes, int times);
// `keys` keys of 40 bytes with values of 32: what a key costs beside its data. An operation: one SET.
Measured many_keys(const Target& target, int keys);

}  // namespace ddp::bench
