// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/diagnosis/store_search_core.hpp"

namespace ddp::launcher {

std::optional<pid_t> StoreSearchCore::examine(const Sample& sample, Time now) {
  if (sample.store_reached) over_ = true;
  if (over_) return std::nullopt;
  std::map<pid_t, Search> searches;
  for (const auto& [pid, sockets] : sample.unconnected) {
    if (sockets.empty()) continue;
    const auto known = searches_.find(pid);
    Search search = known != searches_.end() ? known->second : Search{now, {}};
    search.sockets.insert(sockets.begin(), sockets.end());
    // One socket alone may be one that the program never meant to connect.
    if (now - search.since >= kInVain && search.sockets.size() > 1) {
      over_ = true;
      return pid;
    }
    searches.emplace(pid, std::move(search));
  }
  searches_ = std::move(searches);
  return std::nullopt;
}

}  // namespace ddp::launcher
