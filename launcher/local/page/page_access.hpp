// SPDX-License-Identifier: BSD-3-Clause
// Decides whether a visitor gets the page of a job, from what the request says and from who has sent it. It touches
// nothing.
//
//   1. Only GET and HEAD, without a body, of the three paths that there are.
//   2. With a token, any visitor that has it. It is the password of HTTP's Basic authentication, or a Bearer token.
//   3. Without one, processes of the user who runs the job, and root's, on this machine; the kernel says whose they
//   are.
//   4. Without the right token, only where the Host header names this machine by an address, as localhost or by its own
//      name: a page from elsewhere, whose name was made to lead here (DNS rebinding), has another name there.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/membership/secret.hpp"

namespace ddp::launcher {

enum class Visitor { Own, OtherUser, Elsewhere, Unknown };

struct PageRules {
  std::optional<rendezvous::Secret> token = {};
  bool any_user = false;  // every user of this machine is as good as the job's
  std::string own_name;   // this machine's host name
};

struct PageRequest {
  std::string_view method, target, host, authorization;
  bool has_body = false;
};

enum class PageContent { Page, JobJson, Metrics };

struct PageAnswer {
  int status = 200;
  std::string why = {};                     // in words, for a status that is not 200
  PageContent content = PageContent::Page;  // for 200
};

PageAnswer answer_to(const PageRequest& request, Visitor visitor, const PageRules& rules);

}  // namespace ddp::launcher
