// SPDX-License-Identifier: BSD-3-Clause
// Decides how one request after another gets to a cluster of etcd: which member is asked, under which path, when the
// user proves who it is, and when there is an outcome. Touches nothing.
//
//   what was asked    what came                       what follows
//   the request       an answer                       the outcome
//                     not sent (refused, no route)    the next member, until each was tried once
//                     sent, no answer in time         the outcome, Unknown: it may have been done; later ones go to the
//                     next member no such page                    the older path /v3beta, then the server's version,
//                     for the words the token is not valid          a new token, once
//   a token           a token                         the request
//                     users are off                   the request, without a token from now on
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/etcd/messages.hpp"

namespace ddp::rendezvous {

class RequestCourse {
 public:
  enum class What { Request, Token, Version };
  struct Step {
    What what = What::Request;
    std::size_t member = 0;  // index in `members`
    const char* api = "/v3";
    std::string token = {};  // empty: none is sent
  };

  // `members` are named in words; there is at least one.
  RequestCourse(std::vector<std::string> members, bool has_user);

  // Begins with another request and returns what to ask first.
  Step begin();
  // Takes what came of the newest step. Returns the outcome of the request, or nothing: then step() is next.
  std::optional<EtcdOutcome> take(EtcdOutcome came);
  Step step() const;

 private:
  std::optional<EtcdOutcome> take_token(const EtcdOutcome& came);
  std::optional<EtcdOutcome> on_refusal(const EtcdRefusal& refusal);
  std::optional<EtcdOutcome> on_unsent(const EtcdRefusal& refusal);
  EtcdRefusal old_api(const EtcdOutcome& version) const;
  EtcdRefusal named(const EtcdRefusal& refusal) const;
  void next_member() { member_ = (member_ + 1) % members_.size(); }

  const std::vector<std::string> members_;
  bool has_user_;
  std::size_t member_ = 0;
  bool is_beta_ = false;
  std::string token_;
  What what_ = What::Request;
  // About the newest request:
  std::vector<std::string> unsent_;  // why each member that was tried did not get it
  bool has_tried_beta_ = false;
  bool has_renewed_token_ = false;
};

}  // namespace ddp::rendezvous
