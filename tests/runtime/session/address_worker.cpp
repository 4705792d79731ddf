// SPDX-License-Identifier: BSD-3-Clause
// Prints the address at which the other ranks of its job reach it: address_worker INIT_METHOD.
#include <chrono>
#include <iostream>

#include "rendezvous/base/error.hpp"
#include "runtime/session/identity/worker_info.hpp"
#include "runtime/session/job_store.hpp"
#include "runtime/session/reachable_address.hpp"

int main(int, char** argv) {
  using namespace ddp::runtime;
  try {
    const std::chrono::seconds patience(30);
    JobStore store(read_worker_info({.init_method = argv[1]}, process_environment), {patience, patience});
    std::cout << reachable_address(store, process_environment) << "\n";
    store.leave(true);
    return 0;
  } catch (const ddp::rendezvous::Error& e) {
    std::cout << e.what() << "\n";
    return 1;
  }
}
