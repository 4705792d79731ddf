// SPDX-License-Identifier: BSD-3-Clause
// Opens the page of the job (--serve) with the user's settings.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "launcher/config/launch_config.hpp"
#include "launcher/output/log.hpp"
#include "launcher/page/page_server.hpp"
#include "rendezvous/net/asio.hpp"

namespace ddp::launcher {

// A port that is taken costs the job nothing but its page: then it returns null, and the log says so. Throws
// rendezvous::Error if the token cannot be used, since then the page would be for other people than was meant.
std::unique_ptr<PageServer> open_page(rendezvous::asio::io_context& io, const LaunchConfig& config,
                                      const std::string& host, std::function<rendezvous::Descriptor()> look, Log& log);

}  // namespace ddp::launcher
