// SPDX-License-Identifier: BSD-3-Clause
// Gives up what a process that is dead has held.
#pragma once

#include <chrono>

#include "rendezvous/etcd/client.hpp"
#include "rendezvous/etcd/messages.hpp"

namespace ddp::rendezvous {

// Ends a lease, and with it the holder's key: another process can claim the job at once. Waits for the answer, but no
// longer than `within`; without it the lease ends by itself. It has a loop of its own.
void revoke_lease(const EtcdSettings& settings, LeaseId lease, std::chrono::milliseconds within);

}  // namespace ddp::rendezvous
