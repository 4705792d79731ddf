// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/session/awaited_group.hpp"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "collectives/backend_error.hpp"
#include "collectives/host/backend.hpp"
#include "rendezvous/agent_client.hpp"
#include "rendezvous/worker_contract.hpp"
#include "runtime/base/own_agent.hpp"

namespace ddp::runtime {
namespace {

namespace contract = rendezvous::contract;

ddp_backend_status succeed(const ddp_backend_group_config& config, ddp_backend_group** out, ddp_backend_error* error) {
  try {
    auto answer = ask_own_agent("group");
    const auto why = answer ? rendezvous::text_in(answer->text, "error") : "this process has no agent to ask";
    if (!why && !answer->descriptors.empty()) {
      return collectives::create_successor(std::move(answer->descriptors[0]), config, out, error);
    }
    collectives::set_text(error, "taking the place of a rank that died: " + why.value_or("ddprun has no such group"));
  } catch (const std::exception& e) {
    collectives::set_text(error, e.what());
  }
  return DDP_BACKEND_ERROR;
}

// The group that this process leaves when it exits: the others wait for a process that ends in another way, since it
// may have a successor.
std::mutex leaving_mutex;
ddp_backend_group* leaving_group = nullptr;
pid_t leaving_process = 0;

}  // namespace

void leave_at_exit(ddp_backend_group* group) {
  static std::once_flag once;
  std::call_once(once, [] {
    std::atexit([] {
      const std::lock_guard lock(leaving_mutex);
      // A child that the program has forked has no memory of the group.
      if (leaving_group != nullptr && leaving_process == getpid()) collectives::leave(*leaving_group);
    });
  });
  const std::lock_guard lock(leaving_mutex);
  leaving_group = group;
  leaving_process = getpid();
}

Succession succession_of(const WorkerInfo& info, const collectives::BackendNames& backends, DebugLevel debug,
                         const Environment& environment) {
  const bool is_kept = environment(contract::kKeptMemory) && environment(contract::kGroupWorldSize) == "1";
  // A store of rank 0 ends with it; a session of some workers is not the one that ddprun knows the ranks of.
  const bool is_job = info.place.launcher_hosts && environment(contract::kWorldSize) == std::to_string(info.world_size);
  const bool compares = info.session_name.starts_with(contract::kComparingSession);
  const bool can = info.world_size > 1 && backends.cpu == collectives::host_backend().name && backends.cuda.empty() &&
                   debug != DebugLevel::Detail;
  if (!is_kept || !is_job || compares || !can) return Succession::None;
  return info.is_successor ? Succession::IsSuccessor : Succession::Awaits;
}

ddp_backend_status open_awaited_group(Succession succession, const ddp_backend_group_config& config,
                                      ddp_backend_group** out, ddp_backend_error* error) {
  return succession == Succession::IsSuccessor ? succeed(config, out, error)
                                               : collectives::create_awaiting(config, out, error);
}

void forgo_successors() {
  static std::atomic<bool> has_said{false};
  if (!process_environment(contract::kKeptMemory) || has_said.exchange(true)) return;
  try {
    ask_own_agent("forgo");
  } catch (const std::exception&) {
    // The agent is stopped or gone.
  }
}

}  // namespace ddp::runtime
