// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/local/page/page_access.hpp"

#include <algorithm>

#include "launcher/text/lower_case.hpp"
#include "rendezvous/net/addresses/numeric_address.hpp"

namespace ddp::launcher {
namespace {

// Returns the host of a Host header without its port: `[::1]:80` is `::1`.
std::string host_in(std::string_view header) {
  const auto colon = header.rfind(':');
  const bool has_port =
      colon != std::string_view::npos && header.find_first_not_of("0123456789", colon + 1) == std::string_view::npos;
  if (has_port) header = header.substr(0, colon);
  const bool is_in_brackets = header.starts_with('[') && header.ends_with(']');
  return lower_case(is_in_brackets ? header.substr(1, header.size() - 2) : header);
}

bool names_this_machine(std::string_view header, const std::string& own_name) {
  std::string host = host_in(header);
  if (host.ends_with('.')) host.pop_back();
  const std::string own = lower_case(own_name);
  return host == "localhost" || (!own.empty() && (host == own || host == own.substr(0, own.find('.')))) ||
         !rendezvous::numeric_address(host).empty();
}

// Returns the bytes; nothing if it is no base64.
std::optional<std::string> from_base64(std::string_view text) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  while (text.ends_with('=')) text.remove_suffix(1);
  std::string bytes;
  unsigned bits = 0, count = 0;
  for (const char c : text) {
    const auto digit = kDigits.find(c);
    if (digit == std::string_view::npos) return std::nullopt;
    bits = (bits << 6 | static_cast<unsigned>(digit)) & 0xffffff;
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes.push_back(static_cast<char>(bits >> count & 0xff));
  }
  return bytes;
}

// Returns what follows the scheme, such as "Bearer"; nothing if it is another scheme.
std::optional<std::string_view> credentials(std::string_view header, std::string_view scheme) {
  const auto blank = header.find(' ');
  if (blank == std::string_view::npos || lower_case(header.substr(0, blank)) != scheme) return std::nullopt;
  header.remove_prefix(std::min(header.find_first_not_of(' ', blank), header.size()));
  return header;
}

// Compares in a time that does not depend on where they differ.
bool has_token(std::string_view header, const rendezvous::Secret& token) {
  std::string given;
  if (const auto bearer = credentials(header, "bearer")) given = *bearer;
  if (const auto basic = credentials(header, "basic")) {
    const std::string pair = from_base64(*basic).value_or("");
    given = pair.substr(std::min(pair.find(':'), pair.size() - 1) + 1);
  }
  const auto secret = rendezvous::secret_of(given);
  return secret && *secret == token;
}

std::optional<PageContent> content_at(std::string_view target) {
  const std::string_view path = target.substr(0, target.find('?'));
  if (path == "/") return PageContent::Page;
  if (path == "/job.json") return PageContent::JobJson;
  if (path == "/metrics") return PageContent::Metrics;
  return std::nullopt;
}

}  // namespace

PageAnswer answer_to(const PageRequest& request, Visitor visitor, const PageRules& rules) {
  if (request.method != "GET" && request.method != "HEAD") return {405, "only GET and HEAD are answered"};
  if (request.has_body) return {413, "a request here has no body"};
  if (rules.token) {
    if (!has_token(request.authorization, *rules.token)) {
      return {401, "this page has a token: give it as the password (of any user), or as a Bearer token"};
    }
  } else {
    const bool is_of_machine = visitor == Visitor::Own || visitor == Visitor::OtherUser;
    if (visitor != Visitor::Own && !(rules.any_user && is_of_machine)) {
      return {403,
              "this page is for the user who runs the job, on this machine; others need a token (ddprun "
              "--serve-token FILE)"};
    }
    if (!names_this_machine(request.host, rules.own_name)) {
      return {421, "this page is not known by this name; use an address, localhost or the host's name"};
    }
  }
  const auto content = content_at(request.target);
  if (!content) return {404, "there are /, /job.json and /metrics"};
  return {200, "", *content};
}

}  // namespace ddp::launcher
