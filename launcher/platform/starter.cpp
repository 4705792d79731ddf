// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/platform/starter.hpp"

#include <unistd.h>

#include <cstdlib>
#include <string_view>
#include <vector>

#include "rendezvous/base/error.hpp"

namespace ddp::launcher {
namespace {

void forget_starter() {
  std::vector<std::string> names;
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view variable = *entry;
    for (const char* prefix : {"OMPI_", "PMIX_", "PMI_", "MPI_LOCAL", "HYDI_", "HYDRA_"}) {
      if (variable.starts_with(prefix)) names.emplace_back(variable.substr(0, variable.find('=')));
    }
  }
  for (const std::string& name : names) ::unsetenv(name.c_str());
}

}  // namespace

Agreement agree_by_starter(rendezvous::KeyValueStore store, int node_rank) {
  Agreement agreement;
  const std::string own = node_rank == 0 ? digits_of(rendezvous::Secret::random()) : "";
  agreement.point = rendezvous::meeting_point(store, node_rank, own);
  forget_starter();
  agreement.secret = rendezvous::secret_of(agreement.point.note);
  if (agreement.secret) return agreement;
  throw rendezvous::Error(rendezvous::ErrorCode::Mismatch, "node rank 0 runs another version of ddprun");
}

}  // namespace ddp::launcher
