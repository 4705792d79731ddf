// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddprun/options/page_options.hpp"

#include "apps/ddprun/options/usage_error.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/net/addresses/numeric_address.hpp"

namespace ddp::apps {

std::optional<launcher::PageConfig> resolve_page(const PageOptions& options) {
  if (options.serve.empty()) {
    if (options.token_file.empty()) return std::nullopt;
    throw UsageError("--serve-token belongs to --serve ADDRESS:PORT; give both");
  }
  const auto colon = options.serve.rfind(':');
  std::string address = colon == std::string::npos ? "127.0.0.1" : options.serve.substr(0, colon);
  if (address == "localhost") address = "127.0.0.1";
  if (address.starts_with('[') && address.ends_with(']')) address = address.substr(1, address.size() - 2);
  const std::string numeric = rendezvous::numeric_address(address);
  const auto port = rendezvous::parse_number<std::uint16_t>(options.serve.substr(colon + 1));
  if (numeric.empty() || !port) {
    throw UsageError("--serve " + options.serve +
                     ": give [ADDRESS:]PORT with a numeric address of this machine, such as 8080, 127.0.0.1:8080 or "
                     "[::1]:8080");
  }
  if (!rendezvous::is_loopback(numeric) && options.token_file.empty()) {
    throw UsageError("--serve " + options.serve +
                     ": other machines can reach this address; give --serve-token FILE too, with a token that "
                     "--make-secret FILE has made, or serve at 127.0.0.1 and reach it through ssh -L");
  }
  return launcher::PageConfig{.address = numeric, .port = *port, .token_file = options.token_file};
}

}  // namespace ddp::apps
