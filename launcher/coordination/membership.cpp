// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/coordination/membership.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <memory>

#include "rendezvous/base/error.hpp"
#include "rendezvous/membership/munge.hpp"
#include "rendezvous/membership/secret.hpp"
#include "rendezvous/slurm_step.hpp"
#include "rendezvous/worker_contract.hpp"

namespace ddp::launcher {

namespace {

using rendezvous::Membership;

constexpr char kMountedSecret[] = "/run/secrets/ddprun/secret";

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

FoundMembership from_file(const std::string& path, const std::string& source) {
  using rendezvous::SecretReaders;
  const auto readers = path == kMountedSecret ? SecretReaders::GroupToo : SecretReaders::OwnerOnly;
  return {Membership(rendezvous::read_secret_file(path, readers), source),
          "the file " + path + (source == path ? "" : " (" + source + ")")};
}

// Returns whether there is something; what cannot be examined is there, and is then reported by its reader.
bool is_there(const char* path) {
  struct stat status = {};
  return ::stat(path, &status) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

FoundMembership from_munge() {
  try {
    const std::shared_ptr<rendezvous::Voucher> munge = std::make_shared<rendezvous::Munge>();
    return {Membership(munge), "MUNGE, in a step of Slurm"};
  } catch (const rendezvous::Error& error) {
    return {Membership(), std::string("none: in a step of Slurm, but MUNGE is not there (") + error.what() + ")"};
  }
}

}  // namespace

FoundMembership find_membership(const LaunchConfig& config) {
  const std::string& secret = config.secret;
  if (secret == "none") return {Membership(), "none (--secret none)"};
  if (secret != "auto") return from_file(secret.starts_with("file:") ? secret.substr(5) : secret, "--secret");
  const FoundMembership agreed = {Membership(config.agreed_secret, "the starter of all nodes"),
                                  "a secret that the starter of all nodes has"};
  if (config.agreed_secret && config.agreed_secret_first) return agreed;
  const std::string file = variable(rendezvous::contract::kSecretFile);
  if (!file.empty()) return from_file(file, rendezvous::contract::kSecretFile);
  if (is_there(kMountedSecret)) return from_file(kMountedSecret, kMountedSecret);
  if (config.agreed_secret) return agreed;
  if (rendezvous::slurm_step(variable("SLURM_JOB_ID"), variable("SLURM_STEP_ID"))) return from_munge();
  return {Membership(), std::string("none: there is neither ") + rendezvous::contract::kSecretFile + " nor " +
                            kMountedSecret + ", and this is no step of Slurm"};
}

}  // namespace ddp::launcher
