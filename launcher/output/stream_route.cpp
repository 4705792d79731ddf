// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/output/stream_route.hpp"

#include "launcher/text/template.hpp"

namespace ddp::launcher {

StreamRoute route_stream(const LogConfig& config, const StreamOwner& owner, Console console) {
  const bool teed = config.tee.has(console, owner.local_rank);
  const bool redirected = config.redirects.has(console, owner.local_rank) && !teed;
  StreamRoute route{.console = console, .local_rank = owner.local_rank};
  if ((teed || redirected) && !owner.folder.empty()) {
    route.file = owner.folder + (console == Console::Stdout ? "/stdout.log" : "/stderr.log");
  }
  route.shown =
      (!config.shown_ranks || config.shown_ranks->count(owner.local_rank) > 0) && (!redirected || route.file.empty());
  if (teed) {
    route.lines = StreamRoute::Lines::Teed;
    route.prefix = substitute(config.line_prefix, {{"role_name", owner.role},
                                                   {"local_rank", std::to_string(owner.local_rank)},
                                                   {"rank", std::to_string(owner.rank)},
                                                   {"hostname", owner.host}});
  } else if (owner.workers == 1) {
    route.lines = StreamRoute::Lines::AsWritten;
  }
  return route;
}

WorkerRoutes route_streams(const LogConfig& config, const StreamOwner& owner, Consoles consoles) {
  WorkerRoutes routes = {.out = route_stream(config, owner, Console::Stdout),
                         .err = route_stream(config, owner, Console::Stderr)};
  if (consoles == Consoles::Two || !routes.out.shown || !routes.err.shown) return routes;
  const auto is_plain = [](const StreamRoute& route) {
    return route.file.empty() && route.lines != StreamRoute::Lines::Teed;
  };
  routes.are_one = is_plain(routes.out) && is_plain(routes.err);
  if (routes.are_one) return routes;
  // Each of two streams ends an unfinished line of the other, so neither is shown in pieces.
  for (StreamRoute* const route : {&routes.out, &routes.err}) {
    if (route->lines == StreamRoute::Lines::AsWritten) route->lines = StreamRoute::Lines::Whole;
  }
  return routes;
}

int descriptors_of_streams(const LogConfig& config, int workers) {
  constexpr int kPipe = 2, kFile = 1;
  const bool has_files = config.folder != kNoFolder;
  int number = 0;
  for (int local_rank = 0; local_rank < workers; ++local_rank) {
    for (const Console console : {Console::Stdout, Console::Stderr}) {
      const bool teed = has_files && config.tee.has(console, local_rank);
      const bool redirected = has_files && config.redirects.has(console, local_rank);
      number += teed ? kPipe + kFile : redirected ? kFile : kPipe;
    }
  }
  return number;
}

}  // namespace ddp::launcher
