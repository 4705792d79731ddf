// SPDX-License-Identifier: BSD-3-Clause
// How a node proves to the other nodes that it belongs to the job: not at all, by a secret that all of them have, or by
// the user that it runs as. All nodes of a job must do it in the same way.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "rendezvous/membership/secret.hpp"

namespace ddp::rendezvous {

// Vouches for texts of this process, and examines what other processes vouched for; munge.hpp has the real one.
class Voucher {
 public:
  virtual ~Voucher() = default;
  // Returns a credential that carries the text. Throws Error.
  virtual std::string vouch(std::string_view text) = 0;
  // Returns why a credential is not good for this text; empty: the user of this process vouched for it, or root did.
  virtual std::string why_not(const std::string& credential, std::string_view text) = 0;
};

class Membership {
 public:
  enum class Kind : unsigned char { Open = 0, Secret = 1, Munge = 2 };  // as in the preface of a link

  // Implicit: wherever a membership is wanted, each of these is one.
  Membership() = default;
  // `source` says where the secret is from, for messages.
  Membership(std::optional<Secret> secret, std::string source = "DDPRUN_SECRET_FILE")  // NOLINT
      : secret_(std::move(secret)), source_(std::move(source)) {}
  Membership(Secret secret) : Membership(std::optional<Secret>(std::move(secret))) {}  // NOLINT
  Membership(std::shared_ptr<Voucher> voucher) : voucher_(std::move(voucher)) {}       // NOLINT

  Kind kind() const { return secret_ ? Kind::Secret : voucher_ ? Kind::Munge : Kind::Open; }
  const std::optional<Secret>& secret() const { return secret_; }
  Voucher& voucher() const { return *voucher_; }  // only of Kind::Munge
  const std::string& source() const { return source_; }

 private:
  std::optional<Secret> secret_;
  std::shared_ptr<Voucher> voucher_;
  std::string source_;
};

}  // namespace ddp::rendezvous
