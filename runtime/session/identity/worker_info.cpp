// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/session/identity/worker_info.hpp"

#include <limits>

#include "rendezvous/base/error.hpp"
#include "rendezvous/store/tcp_store.hpp"
#include "rendezvous/worker_contract.hpp"
#include "runtime/session/identity/init_method.hpp"
#include "runtime/session/identity/process_manager.hpp"

namespace ddp::runtime {
namespace {

namespace contract = rendezvous::contract;
using rendezvous::invalid_argument;

constexpr int kMany = std::numeric_limits<int>::max();
constexpr char kHowToStart[] = "start this program with ddprun, for example: ddprun --nproc_per_node 2 PROGRAM";

std::optional<Setting> argument(const char* name, const std::optional<int>& value) {
  return value ? std::optional<Setting>({std::string("the argument ") + name, std::to_string(*value)}) : std::nullopt;
}

std::optional<Setting> in_url(const char* name, const std::optional<std::string>& text, const InitMethod& method) {
  return text ? std::optional<Setting>({std::string(name) + " in init_method \"" + method.url + "\"", *text})
              : std::nullopt;
}

// The settings of this process, each from the source that takes precedence.
struct JobSettings {
  std::optional<Setting> rank;
  std::optional<Setting> world_size;
  std::optional<Setting> local_rank;
  std::optional<Setting> local_world_size;
  std::optional<Setting> restart_count;

  bool is_world_of_one() const { return world_size && world_size->text == "1"; }
};

void set_if_empty(std::optional<Setting>& value, std::optional<Setting> fallback) {
  if (!value) value = std::move(fallback);
}

JobSettings collect_settings(const InitArguments& arguments, const InitMethod& method, const Environment& environment,
                             const std::optional<ProcessManager>& process_manager) {
  JobSettings settings = {argument("rank", arguments.rank), argument("world_size", arguments.world_size),
                          argument("local_rank", arguments.local_rank),
                          argument("local_world_size", arguments.local_world_size),
                          setting(environment, contract::kRestartCount)};
  set_if_empty(settings.rank, in_url("rank", method.rank, method));
  set_if_empty(settings.world_size, in_url("world_size", method.world_size, method));
  set_if_empty(settings.rank, setting(environment, contract::kRank));
  set_if_empty(settings.world_size, setting(environment, contract::kWorldSize));
  set_if_empty(settings.local_rank, setting(environment, contract::kLocalRank));
  set_if_empty(settings.local_world_size, setting(environment, contract::kLocalWorldSize));
  if (process_manager) {
    set_if_empty(settings.rank, process_manager->rank);
    set_if_empty(settings.world_size, process_manager->world_size);
    set_if_empty(settings.local_rank, process_manager->local_rank);
    set_if_empty(settings.local_world_size, process_manager->local_world_size);
    set_if_empty(settings.restart_count, process_manager->restart_count);
  }
  return settings;
}

void require_all(const InitMethod& method, const JobSettings& settings, bool in_given_store) {
  if (settings.rank && settings.world_size) return;
  if (in_given_store) {
    invalid_argument("a store says where ranks meet, but not who they are: give rank and world_size with it");
  }
  const char* missing = settings.rank ? "world_size" : settings.world_size ? "rank" : "rank and world_size";
  invalid_argument("init_method \"" + method.url + "\" says where ranks meet, but nothing gives this process's " +
                   missing + ": give ?rank=0&world_size=2 in it, arguments, or the variables RANK and WORLD_SIZE");
}

// Requires that all settings of a job are set if any is. Returns false if none is: nothing describes a job.
bool require_all_or_none(const JobSettings& settings, const Environment& environment) {
  std::string present;
  std::string missing;
  const auto list_setting = [&](const char* name, const std::optional<Setting>& found) {
    std::string& list = found ? present : missing;
    list += (list.empty() ? "" : ", ") + (found ? found->name : name);
  };
  list_setting(contract::kRank, settings.rank);
  list_setting(contract::kWorldSize, settings.world_size);
  if (!settings.is_world_of_one()) {
    list_setting(contract::kMasterAddr, setting(environment, contract::kMasterAddr));
    list_setting(contract::kMasterPort, setting(environment, contract::kMasterPort));
  }
  if (present.empty()) return false;
  if (missing.empty()) return true;
  invalid_argument("a worker of a job needs " + missing + " too; given are only " + present + ": " + kHowToStart);
}

RendezvousPoint place_in_environment(const Environment& environment) {
  RendezvousPoint place;
  place.kind = RendezvousPoint::Kind::Address;
  place.host = *environment(contract::kMasterAddr);
  if (place.host.empty()) invalid_argument(std::string(contract::kMasterAddr) + " is empty: " + kHowToStart);
  place.port = static_cast<std::uint16_t>(number(*setting(environment, contract::kMasterPort), 1, 65535));
  return place;
}

RendezvousPoint place_in_url(const InitMethod& method) {
  RendezvousPoint place;
  const bool tcp = method.kind == InitMethod::Kind::Tcp;
  place.kind = tcp ? RendezvousPoint::Kind::Address : RendezvousPoint::Kind::File;
  place.host = method.host;
  place.port = method.port;
  place.file = method.path;
  return place;
}

RendezvousPoint place_in(const rendezvous::Store& store) {
  RendezvousPoint place;
  place.kind = RendezvousPoint::Kind::Given;
  place.given = &store;
  if (const auto* tcp = dynamic_cast<const rendezvous::TcpStore*>(&store)) {
    place.host = tcp->host();
    place.port = tcp->port();
  }
  return place;
}

// TORCHELASTIC_USE_AGENT_STORE applies only to the launcher's own address.
void find_host(RendezvousPoint& place, const Environment& environment) {
  if (environment(contract::kMasterAddr) != place.host) return;
  if (environment(contract::kMasterPort) != std::to_string(place.port)) return;
  const LaunchersStore store = launchers_store(environment);
  place.launcher_hosts = store == LaunchersStore::Here;
  place.may_be_hosted = store == LaunchersStore::Elsewhere;  // torchrun in a worker of ddprun hosts one there
}

}  // namespace

WorkerInfo read_worker_info(const InitArguments& arguments, const Environment& environment) {
  const InitMethod method = parse_init_method(arguments.init_method);
  std::optional<ProcessManager> process_manager;
  if (!environment(contract::kRank) && !environment(contract::kWorldSize))
    process_manager = find_process_manager(environment);
  const JobSettings settings = collect_settings(arguments, method, environment, process_manager);

  // Without a description of a job, this process is a world of one.
  const bool in_given_store = arguments.store != nullptr;
  if (in_given_store && !arguments.init_method.empty())
    invalid_argument("give either init_method or a store, not both");
  const bool in_environment = method.kind == InitMethod::Kind::Env && !in_given_store;
  if (!in_environment) {
    require_all(method, settings, in_given_store);
  } else if (!process_manager && !require_all_or_none(settings, environment)) {
    return {};
  }
  // Check the numbers against each other, then decide where to meet.
  WorkerInfo info;
  info.world_size = number(*settings.world_size, 1, kMany);
  info.rank = number(*settings.rank, 0, info.world_size - 1);
  if (settings.local_world_size) info.local_world_size = number(*settings.local_world_size, 1, kMany);
  if (settings.local_rank) info.local_rank = number(*settings.local_rank, 0, kMany);
  if (settings.restart_count) info.restart_count = number(*settings.restart_count, 0, kMany);
  info.session_name = arguments.session_name;
  if (settings.is_world_of_one()) {  // there is nobody to meet, but in another round of an elastic job there may be
    const bool is_ddpruns = in_environment && !process_manager && environment(contract::kMasterAddr) &&
                            environment(contract::kMasterPort) && launchers_store(environment) == LaunchersStore::Here;
    if (!is_ddpruns) return info;
  }
  info.place = in_given_store    ? place_in(*arguments.store)
               : !in_environment ? place_in_url(method)
               : process_manager ? rendezvous_point(*process_manager, environment)
                                 : place_in_environment(environment);
  find_host(info.place, environment);
  return info;
}

int rank_or_zero(const Environment& environment) noexcept {
  try {
    return read_worker_info({}, environment).rank;
  } catch (const std::exception&) {
    return 0;
  }
}

}  // namespace ddp::runtime
