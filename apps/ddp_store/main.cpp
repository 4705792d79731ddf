// SPDX-License-Identifier: BSD-3-Clause
// ddp_store: the c10d store as a program of its own, for PyTorch's TCPStore clients of any release from 1.9 on, for
// ddp::TcpStore and for benchmarks.
//
// It prints its endpoints when it is ready and serves until SIGINT or SIGTERM. At the end, and on SIGUSR1, it prints
// its statistics. Exit codes: 0 success, 1 cannot listen, 2 wrong usage.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/error.hpp"
#include "rendezvous/base/file_limit.hpp"
#include "rendezvous/net/listen.hpp"
#include "rendezvous/store/server.hpp"

namespace {

using ddp::rendezvous::StoreServer;
using ddp::rendezvous::StoreStatistics;

struct Options {
  std::uint16_t port = 29500;
  std::vector<std::string> addresses = {"127.0.0.1", "::1"};
  std::size_t max_mib = ddp::rendezvous::kMaxStoreBytes >> 20;
  bool any_user = false;
  bool json = false;
};

constexpr rlim_t kManyConnections = 1 << 14;

// Names by the numbers of today's protocol; WATCH_KEY, which has none there, is at 0.
constexpr const char* kRequests[] = {"watch_key", "set",       "compare_set", "get",        "add",
                                     "check",     "wait",      "num_keys",    "delete_key", "append",
                                     "multi_get", "multi_set", "cancel_wait", "ping",       "queue_push",
                                     "queue_pop", "queue_len", "list_keys",   "barrier"};
static_assert(std::size(kRequests) == std::tuple_size_v<decltype(StoreStatistics::requests)>);

// Returns this process's resident memory in bytes.
std::size_t resident() {
  std::size_t all = 0, here = 0;
  std::ifstream("/proc/self/statm") >> all >> here;
  return here * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

nlohmann::ordered_json to_json(const StoreStatistics& s) {
  nlohmann::ordered_json requests = nlohmann::ordered_json::object();
  for (std::size_t i = 0; i < s.requests.size(); ++i) {
    if (s.requests[i] > 0) requests[kRequests[i]] = s.requests[i];
  }
  return {{"connections",
           {{"open", s.open},
            {"accepted", s.accepted},
            {"dropped", s.dropped},
            {"other_users", s.other_users},
            {"by_address", s.by_address},
            {"silent_closed", s.silent_closed}}},
          {"requests", requests},
          {"bytes", {{"in", s.bytes_in}, {"out", s.bytes_out}}},
          {"keys", s.size.keys},
          {"waiting", s.size.waiting},
          {"memory", {{"content", s.size.bytes}, {"held", s.held_bytes}, {"resident", resident()}}}};
}

void print(const StoreStatistics& s, bool json) {
  if (json) {
    std::printf("%s\n", to_json(s).dump().c_str());
  } else {
    std::uint64_t requests = 0;
    for (const std::uint64_t count : s.requests) requests += count;
    std::printf(
        "%llu connections (%llu open, %llu dropped), %llu requests, %llu bytes in, %llu out; %zu keys, %zu waiting, "
        "%zu KiB resident\n",
        static_cast<unsigned long long>(s.accepted), static_cast<unsigned long long>(s.open),
        static_cast<unsigned long long>(s.dropped), static_cast<unsigned long long>(requests),
        static_cast<unsigned long long>(s.bytes_in), static_cast<unsigned long long>(s.bytes_out), s.size.keys,
        s.size.waiting, resident() / 1024);
  }
  std::fflush(stdout);
}

void serve(const Options& options) {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) sigaddset(&signals, signal);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  ddp::rendezvous::raise_file_limit();
  ddp::rendezvous::grow_file_table(kManyConnections);

  StoreServer::Options limits;
  limits.max_bytes = options.max_mib << 20;
  limits.any_user = options.any_user;
  limits.other_users_hint = "give --any-user to let all of them in";
  limits.log = [](const std::string& line) { std::fprintf(stderr, "ddp_store: %s\n", line.c_str()); };
  const StoreServer server(options.addresses, options.port, limits);
  std::string where;
  for (const std::string& address : options.addresses) where += " " + ddp::rendezvous::endpoint(address, server.port());
  std::printf("listening on%s\n", where.c_str());
  std::fflush(stdout);

  for (int signal = SIGUSR1; signal == SIGUSR1;) {
    sigwait(&signals, &signal);
    print(server.statistics(), options.json);
  }
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("The c10d store alone: PyTorch's TCPStore for clients of any release from 1.9 on.", "ddp_store");
  app.option_defaults()->always_capture_default();
  app.add_option("--port", options.port, "Port to listen on; 0: a free one");
  app.add_option(
         "--bind", options.addresses,
         "Numeric addresses to listen on. The protocol has no password: every client of another machine that reaches "
         "them can read and write all keys")
      ->type_name("ADDR");
  app.add_flag("--any-user", options.any_user,
               "Let all users of this machine in; without it, connections within this machine are refused unless they "
               "are yours or root's");
  app.add_option("--max-memory", options.max_mib,
                 "Limit of all that clients make it keep, and once more of what unfinished requests and unread answers "
                 "hold")
      ->type_name("MIB")
      ->check(CLI::Range(1, 1 << 20).description(""));
  app.add_flag("--json", options.json, "Statistics on SIGUSR1 and at the end as one JSON object a line");
  try {
    app.parse(argc, argv);
    serve(options);
    return 0;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ddp_store: %s\n", error.what());
    return 1;
  }
}
