// SPDX-License-Identifier: BSD-3-Clause
// Joins a job with the ddp::InitOptions of its arguments (NAME=VALUE), exchanges something with every rank and prints
// its rank. sessions=N makes N sessions one after the other; "together" makes two at a time.
#include <cstdint>
#include <ddp/ddp.hpp>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace {

ddp::InitOptions options_of(std::map<std::string, std::string>& arguments) {
  const auto number = [&](const char* name) { return arguments.count(name) != 0 ? std::stoi(arguments[name]) : 0; };
  ddp::InitOptions options;
  options.backend = arguments["backend"];
  options.init_method = arguments["init_method"];
  options.rank = number("rank");
  options.world_size = number("world_size");
  options.local_rank = number("local_rank");
  options.local_world_size = number("local_world_size");
  if (arguments.count("init_timeout") != 0) options.init_timeout = ddp::Milliseconds(number("init_timeout"));
  return options;
}

// Exchanges something over the backend's connections and over the store.
std::string exchange(const ddp::Session& session) {
  int sum = session.rank() + 1;
  session.world().all_reduce(sum);
  const ddp::Store store = session.store();
  store.set(std::to_string(session.rank()), "here");
  std::vector<std::string> keys;
  for (int rank = 0; rank < session.world_size(); ++rank) keys.push_back(std::to_string(rank));
  for (const std::string& value : store.multi_get(keys)) {
    if (value != "here") return "wrong store";
  }
  session.world().barrier();
  return "sum " + std::to_string(sum);
}

// Joins in a store that this program opens, and closes it once the session is there.
ddp::Session join_in(std::map<std::string, std::string>& arguments, ddp::InitOptions options) {
  if (arguments.count("store_of_one") != 0) {
    const ddp::Session alone = ddp::init_process_group();
    options.store = alone.store();
    return ddp::init_process_group(options);
  }
  if (arguments.count("file_store") != 0) {
    const ddp::FileStore store(arguments["file_store"], -1);
    options.store = store;
    return ddp::init_process_group(options);
  }
  const ddp::TcpStore store("127.0.0.1", static_cast<std::uint16_t>(std::stoi(arguments["tcp_store"])));
  const ddp::PrefixStore mine("of this job", store);
  options.store = mine;
  return ddp::init_process_group(options);
}

// Joins several sessions of two ranks at the store, which live side by side: named=a:1,b:0 names them and this
// process's ranks.
std::vector<ddp::Session> join_named(const ddp::TcpStore& store, const std::string& sessions) {
  std::vector<ddp::Session> joined;
  std::istringstream list(sessions);
  for (std::string each; std::getline(list, each, ',');) {
    ddp::InitOptions options;
    options.store = store;
    options.name = each.substr(0, each.find(':'));
    options.rank = std::stoi(each.substr(each.find(':') + 1));
    options.world_size = 2;
    joined.push_back(ddp::init_process_group(options));
  }
  return joined;
}

void say_what_is_met(const ddp::Session& session) {
  std::cout << "rank " + std::to_string(session.rank()) + " of " + std::to_string(session.world_size()) + ", " +
                   exchange(session) + "\n"
            << std::flush;
}

void join(const ddp::InitOptions& options) {
  const ddp::Session session = ddp::init_process_group(options);
  std::cout << "rank " + std::to_string(session.rank()) + " of " + std::to_string(session.world_size()) +
                   ", local rank " + std::to_string(session.local_rank()) + " of " +
                   std::to_string(session.local_world_size()) + ", restart " + std::to_string(session.restart_count()) +
                   ", " + exchange(session) + "\n"
            << std::flush;
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string text = argv[i];
    const std::size_t equals = text.find('=');
    arguments[text.substr(0, equals)] = equals == std::string::npos ? "" : text.substr(equals + 1);
  }
  try {
    if (arguments.count("named") != 0) {
      const ddp::TcpStore store("127.0.0.1", static_cast<std::uint16_t>(std::stoi(arguments["tcp_store"])));
      const std::vector<ddp::Session> joined = join_named(store, arguments["named"]);
      for (const ddp::Session& session : joined) say_what_is_met(session);
      return 0;
    }
    const ddp::InitOptions options = options_of(arguments);
    if (arguments.count("store_of_one") + arguments.count("file_store") + arguments.count("tcp_store") != 0) {
      say_what_is_met(join_in(arguments, options));
      return 0;
    }
    const int sessions = arguments.count("sessions") != 0 ? std::stoi(arguments["sessions"]) : 1;
    if (arguments.count("together") != 0) {
      const ddp::Session beside = ddp::init_process_group(options);
      join(options);
      return exchange(beside).rfind("sum ", 0) == 0 ? 0 : 1;
    }
    for (int i = 0; i < sessions; ++i) join(options);
    return 0;
  } catch (const ddp::Error& e) {
    std::cout << "error: " << static_cast<int>(e.status()) << " " << e.what() << "\n";
    return 1;
  }
}
