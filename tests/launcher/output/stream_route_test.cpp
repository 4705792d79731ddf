// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/output/stream_route.hpp"

#include <catch2/catch.hpp>

using namespace ddp::launcher;
using Lines = StreamRoute::Lines;

namespace {

StreamOwner worker(int local_rank) {
  return {.role = "trainer",
          .host = "n1",
          .local_rank = local_rank,
          .rank = 8 + local_rank,
          .workers = 2,
          .folder = "/f/" + std::to_string(local_rank)};
}

}  // namespace

TEST_CASE("stream route: neither redirected nor teed is the console only", "[launcher][unit]") {
  const StreamRoute route = route_stream({}, worker(0), Console::Stdout);
  CHECK((route.shown && route.file.empty() && route.lines == Lines::Whole));
  StreamOwner alone = worker(0);
  alone.workers = 1;
  CHECK(route_stream({}, alone, Console::Stdout).lines == Lines::AsWritten);
}

TEST_CASE("stream route: redirect 0 stderr, tee 0 stdout and 1 stderr, as in torch's test", "[launcher][unit]") {
  LogConfig config;
  config.redirects.by_rank = {{0, 2}, {1, 0}};
  config.tee.by_rank = {{0, 1}, {1, 2}};
  const StreamRoute out0 = route_stream(config, worker(0), Console::Stdout);
  CHECK((out0.file == "/f/0/stdout.log" && out0.shown && out0.prefix == "[trainer0]:"));
  const StreamRoute err0 = route_stream(config, worker(0), Console::Stderr);
  CHECK((err0.file == "/f/0/stderr.log" && !err0.shown));
  const StreamRoute out1 = route_stream(config, worker(1), Console::Stdout);
  CHECK((out1.file.empty() && out1.shown && out1.lines == Lines::Whole));
  const StreamRoute err1 = route_stream(config, worker(1), Console::Stderr);
  CHECK((err1.file == "/f/1/stderr.log" && err1.shown && err1.lines == Lines::Teed));
}

TEST_CASE("stream route: -t beats -r", "[launcher][unit]") {
  LogConfig config;
  config.redirects.of_all = config.tee.of_all = 3;
  CHECK(route_stream(config, worker(1), Console::Stderr).shown);
}

TEST_CASE("stream route: a rank that is not shown still has its files", "[launcher][unit]") {
  LogConfig config;
  config.shown_ranks = {0};
  config.tee.of_all = 1;
  CHECK(route_stream(config, worker(0), Console::Stdout).shown);
  const StreamRoute teed = route_stream(config, worker(1), Console::Stdout);
  CHECK((!teed.shown && teed.file == "/f/1/stdout.log"));
  const StreamRoute plain = route_stream(config, worker(1), Console::Stderr);
  CHECK((!plain.shown && plain.file.empty()));
}

TEST_CASE("stream route: without a folder everything is on the console", "[launcher][unit]") {
  LogConfig config;
  config.redirects.of_all = 1;
  config.tee.of_all = 2;
  StreamOwner homeless = worker(0);
  homeless.folder = "";
  const StreamRoute out = route_stream(config, homeless, Console::Stdout);
  CHECK((out.shown && out.file.empty() && out.prefix.empty()));
  const StreamRoute err = route_stream(config, homeless, Console::Stderr);
  CHECK((err.shown && err.file.empty() && err.prefix == "[trainer0]:"));
}

TEST_CASE("stream route: a prefix may have the role, both ranks and the host", "[launcher][unit]") {
  LogConfig config;
  config.tee.of_all = 3;
  config.line_prefix = "${hostname}:${rank} $role_name/${local_rank}/${pid}: ";
  CHECK(route_stream(config, worker(1), Console::Stdout).prefix == "n1:9 trainer/1/${pid}: ");
}

TEST_CASE("stream route: where both streams lead to one console, one pipe serves both unless they are told apart",
          "[launcher][unit]") {
  StreamOwner alone = worker(0);
  alone.workers = 1;
  CHECK(route_streams({}, worker(0), Consoles::One).are_one);
  CHECK_FALSE(route_streams({}, worker(0), Consoles::Two).are_one);
  CHECK(route_streams({}, alone, Consoles::One).err.lines == Lines::AsWritten);
  LogConfig config;
  SECTION("by a redirect") {
    config.redirects.of_all = 1;
    const WorkerRoutes routes = route_streams(config, alone, Consoles::One);
    CHECK((!routes.are_one && routes.err.lines == Lines::AsWritten));
  }
  SECTION("by a tee, beside which a single worker's other stream is shown in whole lines") {
    config.tee.of_all = 2;
    const WorkerRoutes routes = route_streams(config, alone, Consoles::One);
    CHECK((!routes.are_one && routes.out.lines == Lines::Whole && routes.err.lines == Lines::Teed));
    CHECK(route_streams(config, alone, Consoles::Two).out.lines == Lines::AsWritten);
  }
  SECTION("since they are not shown") {
    config.shown_ranks = {1};
    CHECK_FALSE(route_streams(config, worker(0), Consoles::One).are_one);
  }
}
