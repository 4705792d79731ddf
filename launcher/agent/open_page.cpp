// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/agent/open_page.hpp"

#include <utility>

#include "rendezvous/base/error.hpp"
#include "rendezvous/membership/secret.hpp"

namespace ddp::launcher {

std::unique_ptr<PageServer> open_page(rendezvous::asio::io_context& io, const LaunchConfig& config,
                                      const std::string& host, std::function<rendezvous::Descriptor()> look, Log& log) {
  PageServer::Settings settings{.address = config.page->address, .port = config.page->port, .rules = {}};
  settings.rules.any_user = config.any_user;
  settings.rules.own_name = host;
  if (!config.page->token_file.empty()) settings.rules.token = rendezvous::read_secret_file(config.page->token_file);
  try {
    auto page = std::make_unique<PageServer>(io, std::move(settings), std::move(look));
    log.warning("page", "the page of this job is at " + page->url());
    return page;
  } catch (const rendezvous::Error& error) {
    log.warning("page", std::string("the job has no page: ") + error.what());
    return nullptr;
  }
}

}  // namespace ddp::launcher
