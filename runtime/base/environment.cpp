// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/base/environment.hpp"

#include <cstdlib>

#include "rendezvous/base/error.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/worker_contract.hpp"

namespace ddp::runtime {

namespace contract = rendezvous::contract;
using rendezvous::Error;
using rendezvous::ErrorCode;

std::optional<std::string> process_environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
}

std::optional<Setting> setting(const Environment& environment, const char* name) {
  const std::optional<std::string> text = environment(name);
  return text ? std::optional<Setting>({name, *text}) : std::nullopt;
}

std::optional<Setting> first_setting(const Environment& environment, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (std::optional<Setting> found = setting(environment, name)) return found;
  }
  return std::nullopt;
}

int number(const Setting& setting, int lowest, int highest) {
  const std::optional<int> value = rendezvous::parse_number<int>(setting.text);
  if (value && *value >= lowest && *value <= highest) return *value;
  throw Error(ErrorCode::InvalidArgument, setting.name + " is \"" + setting.text + "\": expected a whole number from " +
                                              std::to_string(lowest) + " to " + std::to_string(highest));
}

LaunchersStore launchers_store(const Environment& environment) {
  if (environment(contract::kUseAgentStore) != "True") return LaunchersStore::None;
  const auto ddpruns = environment(contract::kStorePort);  // absent under torchrun, whose word counts for any address
  return !ddpruns || ddpruns == environment(contract::kMasterPort) ? LaunchersStore::Here : LaunchersStore::Elsewhere;
}

DebugLevel read_debug_level(const Environment& environment) {
  const std::string level = environment(contract::kDebug).value_or("");
  if (level.empty() || level == "off") return DebugLevel::Off;
  if (level == "info") return DebugLevel::Info;
  if (level == "detail") return DebugLevel::Detail;
  throw Error(ErrorCode::InvalidArgument,
              std::string(contract::kDebug) + " is \"" + level + "\": expected off, info or detail");
}

}  // namespace ddp::runtime
