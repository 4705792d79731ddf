// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/session/identity/init_method.hpp"

#include <string_view>

#include "rendezvous/base/error.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/base/text_stream.hpp"

namespace ddp::runtime {
namespace {

[[noreturn]] void refuse(const InitMethod& method, const std::string& why) {
  throw rendezvous::Error(rendezvous::ErrorCode::InvalidArgument, "init_method \"" + method.url + "\": " + why);
}

// Parses "host:port" or "[v6]:port".
void read_endpoint(InitMethod& method, std::string_view text) {
  constexpr char kExpected[] = "expected tcp://HOST:PORT, with brackets around an IPv6 address";
  if (text.ends_with('/')) text.remove_suffix(1);
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) refuse(method, std::string("the port is missing; ") + kExpected);
  std::string_view host = text.substr(0, colon);
  const std::string_view port = text.substr(colon + 1);
  const bool has_brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (has_brackets) host = host.substr(1, host.size() - 2);
  const bool is_v6 = host.find(':') != std::string_view::npos;
  if (host.empty() || is_v6 != has_brackets || host.find_first_of("/[]@ ") != std::string_view::npos) {
    refuse(method, kExpected);
  }
  method.port = rendezvous::parse_number<std::uint16_t>(port).value_or(0);
  if (method.port == 0) {
    refuse(method, "the port is \"" + std::string(port) + "\": expected a whole number from 1 to 65535");
  }
  method.host = host;
}

void read_query(InitMethod& method, const std::string& query) {
  rendezvous::TextStream list(query);
  for (std::string entry; std::getline(list, entry, '&');) {
    const std::size_t equals = entry.find('=');
    const std::string name = entry.substr(0, equals);
    // Chooses how PyTorch's store listens. There is no such choice here.
    if (name == "use_libuv") continue;
    if (equals == std::string::npos || (name != "rank" && name != "world_size")) {
      refuse(method, "\"" + entry + "\" is neither rank=N nor world_size=N");
    }
    (name == "rank" ? method.rank : method.world_size) = entry.substr(equals + 1);
  }
}

}  // namespace

InitMethod parse_init_method(const std::string& url) {
  InitMethod method;
  method.url = url;
  if (url.empty()) return method;
  const std::size_t question = url.find('?');
  const std::string_view place = std::string_view(url).substr(0, question);
  const std::size_t colon = place.find("://");
  const bool is_url = colon != std::string_view::npos;
  const std::string_view scheme = is_url ? place.substr(0, colon) : "";
  const std::string_view rest = is_url ? place.substr(colon + 3) : "";
  if (scheme == "env") {
    if (!rest.empty()) refuse(method, "nothing goes between env:// and \"?\"");
  } else if (scheme == "tcp") {
    method.kind = InitMethod::Kind::Tcp;
    read_endpoint(method, rest);
  } else if (scheme == "file") {
    method.kind = InitMethod::Kind::File;
    // PyTorch takes "tmp" in file://tmp/x for a host and opens /x.
    if (!rest.starts_with('/')) refuse(method, "give an absolute path, with three slashes: file:///PATH");
    if (rest.ends_with('/')) refuse(method, "that is a folder; give a file in it, which need not exist yet");
    method.path = rest;
  } else {
    refuse(method, "expected env://, tcp://HOST:PORT or file:///PATH");
  }
  if (question != std::string::npos) read_query(method, url.substr(question + 1));
  return method;
}

}  // namespace ddp::runtime
