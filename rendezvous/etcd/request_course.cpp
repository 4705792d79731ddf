// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/etcd/request_course.hpp"

#include <utility>

#include "rendezvous/base/check.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/link/printable.hpp"

namespace ddp::rendezvous {

namespace {

using Kind = EtcdRefusal::Kind;

constexpr std::size_t kFailuresShown = 4;
constexpr std::size_t kMostVersionBytes = 32;

}  // namespace

RequestCourse::RequestCourse(std::vector<std::string> members, bool has_user)
    : members_(std::move(members)), has_user_(has_user) {
  DDP_CHECK(!members_.empty());
}

RequestCourse::Step RequestCourse::begin() {
  unsent_.clear();
  has_tried_beta_ = is_beta_;
  has_renewed_token_ = false;
  what_ = has_user_ && token_.empty() ? What::Token : What::Request;
  return step();
}

RequestCourse::Step RequestCourse::step() const {
  return {what_, member_, is_beta_ ? "/v3beta" : "/v3", what_ == What::Request ? token_ : ""};
}

EtcdRefusal RequestCourse::named(const EtcdRefusal& refusal) const {
  return {refusal.kind, "etcd at " + members_[member_] + ": " + refusal.why};
}

std::optional<EtcdOutcome> RequestCourse::take(EtcdOutcome came) {
  if (what_ == What::Version) return old_api(came);
  if (what_ == What::Token) return take_token(came);
  if (const auto* refusal = std::get_if<EtcdRefusal>(&came)) return on_refusal(*refusal);
  return came;
}

std::optional<EtcdOutcome> RequestCourse::take_token(const EtcdOutcome& came) {
  if (const auto* answer = std::get_if<EtcdAnswer>(&came)) {
    token_ = answer->text;
    what_ = What::Request;
    return std::nullopt;
  }
  const auto& refusal = std::get<EtcdRefusal>(came);
  if (refusal.kind == Kind::AuthOff) {
    has_user_ = false;
    what_ = What::Request;
    return std::nullopt;
  }
  // Nothing of the request was sent, whatever became of the token.
  if (refusal.kind == Kind::Unknown) return on_unsent({Kind::Unsent, refusal.why});
  return on_refusal(refusal);
}

std::optional<EtcdOutcome> RequestCourse::on_refusal(const EtcdRefusal& refusal) {
  if (refusal.kind == Kind::Unsent) return on_unsent(refusal);
  if (refusal.kind == Kind::NoSuchApi) {
    is_beta_ = !std::exchange(has_tried_beta_, true);
    if (!is_beta_) what_ = What::Version;
    return std::nullopt;
  }
  if (refusal.kind == Kind::NotAuthenticated && has_user_ && !std::exchange(has_renewed_token_, true)) {
    what_ = What::Token;
    return std::nullopt;
  }
  EtcdRefusal outcome = named(refusal);
  if (refusal.kind == Kind::Forbidden && !has_user_) outcome.why += " (no user and password are given)";
  if (refusal.kind == Kind::Unknown) next_member();
  return outcome;
}

std::optional<EtcdOutcome> RequestCourse::on_unsent(const EtcdRefusal& refusal) {
  unsent_.push_back(named(refusal).why);
  next_member();
  if (unsent_.size() < members_.size()) return std::nullopt;
  return EtcdRefusal{Kind::Unsent, list_of(unsent_, kFailuresShown)};
}

// No gateway was found: says why, as far as the server's version tells.
EtcdRefusal RequestCourse::old_api(const EtcdOutcome& version) const {
  const auto* answer = std::get_if<EtcdAnswer>(&version);
  const std::string number = answer ? cut_line(printable_line(answer->text), kMostVersionBytes) : "";
  if (number.empty()) {
    return named({Kind::NoSuchApi, "this is no etcd, or one older than 3.3: it answers neither /v3/ nor /v3beta/"});
  }
  if (number.starts_with("2.") || number.starts_with("3.0.") || number.starts_with("3.1.") ||
      number.starts_with("3.2.")) {
    return named({Kind::NoSuchApi,
                  "its version is " + number + ", and ddprun needs 3.3 or later: the API of version 2 is not enough"});
  }
  return named({Kind::NoSuchApi,
                "version " + number +
                    " answers neither /v3/ nor /v3beta/, and the API of version 2 is not enough: start it without "
                    "--enable-grpc-gateway=false"});
}

}  // namespace ddp::rendezvous
