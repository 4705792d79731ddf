// SPDX-License-Identifier: BSD-3-Clause
// MUNGE, the service by which the machines of a cluster tell each other which user a message is from. Every machine
// that runs Slurm has it. libmunge is opened at run time; it asks the machine's munged, over a socket.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <string_view>

#include "rendezvous/membership/membership.hpp"

namespace ddp::rendezvous {

// Vouches for the user of this process. It may wait for munged, usually for less than a millisecond.
class Munge : public Voucher {
 public:
  // Throws Error if libmunge or munged is not there.
  Munge();
  ~Munge() override;
  Munge(const Munge&) = delete;
  Munge& operator=(const Munge&) = delete;

  std::string vouch(std::string_view text) override;
  std::string why_not(const std::string& credential, std::string_view text) override;

 private:
  struct Library;
  struct Decoded {
    uid_t user = 0;
    std::string text;
    std::string error;  // empty: the credential is genuine
  };
  Decoded decode(const std::string& credential) const;

  std::unique_ptr<const Library> library_;
  uid_t user_ = 0;  // this process's user as munged sees it; in a user namespace geteuid() is another
};

}  // namespace ddp::rendezvous
