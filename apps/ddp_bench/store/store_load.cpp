// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddp_bench/store/store_load.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string_view>

#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/store/c10d_protocol.hpp"

namespace ddp::bench {
namespace {

using Clock = std::chrono::steady_clock;
using rendezvous::append_request;
using rendezvous::append_validate;
using rendezvous::Descriptor;
using rendezvous::Op;

constexpr int kPipelined = 16;
constexpr std::size_t kGlooValue = 170;
// Limit of connections that wait for their greeting's answer. More than the accept queue holds (somaxconn, 4,096 here)
// would measure TCP's retransmissions.
constexpr int kUnanswered = 2000;
constexpr std::chrono::seconds kStuck(20);  // limit of time in which nothing happens

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error(what + ": " + std::strerror(errno)); }

// Sizes of answers, since the protocol itself has no frames.
constexpr std::size_t kByte = 1, kNonce = 4, kNumber = 8;
constexpr std::size_t text(std::size_t bytes) { return 8 + bytes; }

struct Client {
  Descriptor socket;
  int rank = 0;
  std::uint64_t exchanges = 0;  // done
  std::size_t expected = 0;     // bytes of answers still to come
  Clock::time_point sent;
};

// Appends what this client sends next and returns how many bytes the answer has; 0: it is done.
using Script = std::function<std::size_t(const Client&, std::string&)>;

class Swarm {
 public:
  Swarm(const Target& target, int size) : target_(target), epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
    for (int rank = 0; rank < size; ++rank) clients_.emplace_back().rank = rank;
    before_ = cost_of(target.server);
    begun_ = Clock::now();
  }

  // Connects all clients as fast as the server accepts them and greets as clients of PyTorch 2.5 and later do. Like
  // those, a client that is refused tries again.
  void connect() {
    std::string hello;
    append_validate(hello);
    append_request(hello, {.op = Op::Ping, .number = ::getpid()});
    std::size_t opened = 0, greeted = 0;
    const auto open_next = [&] {
      if (opened == clients_.size()) return;
      clients_[opened].sent = Clock::now();
      open(clients_[opened++]);
    };
    for (int i = 0; i < kUnanswered; ++i) open_next();
    for_ready([&](Client& client) {
      if (client.expected == 0) {  // connected, or refused
        if (::send(client.socket.get(), hello.data(), hello.size(), MSG_NOSIGNAL) < 0) {
          reopen(client);
        } else {
          client.expected = kNonce;
          watch(EPOLL_CTL_MOD, client, EPOLLIN);
        }
        return false;
      }
      std::array<char, kNonce> nonce;
      const auto size = ::recv(client.socket.get(), nonce.data(), client.expected, 0);
      if (size <= 0) {
        reopen(client);
        return false;
      }
      client.expected -= static_cast<std::size_t>(size);
      if (client.expected > 0) return false;
      ::fcntl(client.socket.get(), F_SETFL, 0);  // from now on a send may block; receiving does not (MSG_DONTWAIT)
      complete(client);
      open_next();
      return ++greeted == clients_.size();
    });
  }

  void forget_the_past() {
    for (Client& client : clients_) client.exchanges = 0;
    latencies_us_.clear();
    before_ = cost_of(target_.server);
    begun_ = Clock::now();
  }

  void run(const Script& script) {
    for (Client& client : clients_) go_on(client, script);
    finish_exchanges(script);
  }

  bool is_over(double seconds) const { return Clock::now() - begun_ > std::chrono::duration<double>(seconds); }

  Measured measured(const std::string& scenario, std::uint64_t operations) {
    const double seconds = std::chrono::duration<double>(Clock::now() - begun_).count();
    const ServerCost after = cost_of(target_.server);
    const double user = after.user_ticks - before_.user_ticks;
    const double ticks = user + after.system_ticks - before_.system_ticks;
    const double cpu = (after.cpu_us - before_.cpu_us) / static_cast<double>(operations);
    Measured result{scenario, operations, seconds, cpu, ticks > 0 ? cpu * user / ticks : 0, at(0.5), at(0.99), 0};
    return result;
  }

  // Returns the server's growth since the Swarm was made, divided by `things`.
  double resident_each(int things) const {
    return (static_cast<double>(cost_of(target_.server).resident) - static_cast<double>(before_.resident)) / things;
  }

 private:
  void open(Client& client) const {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(target_.port);
    if (::inet_pton(AF_INET, target_.host.c_str(), &address.sin_addr) != 1) {
      throw std::runtime_error("not a numeric IPv4 address: " + target_.host);
    }
    client.socket = Descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!client.socket) fail("socket");
    const int on = 1;
    ::setsockopt(client.socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (::connect(client.socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 &&
        errno != EINPROGRESS) {
      fail("connect");
    }
    watch(EPOLL_CTL_ADD, client, EPOLLOUT);
  }

  void reopen(Client& client) const {
    if (Clock::now() - client.sent > kStuck) {
      throw std::runtime_error("nothing answers at " + target_.host + ":" + std::to_string(target_.port) + " for 20 s");
    }
    client.socket.close();
    client.expected = 0;
    open(client);
  }

  void complete(Client& client) {
    const std::chrono::duration<float, std::micro> took = Clock::now() - client.sent;
    latencies_us_.push_back(took.count());
    ++client.exchanges;
  }

  void watch(int operation, Client& client, std::uint32_t events) const {
    epoll_event event = {};
    event.events = events;
    event.data.u32 = static_cast<std::uint32_t>(client.rank);
    if (::epoll_ctl(epoll_.get(), operation, client.socket.get(), &event) != 0) fail("epoll");
  }

  // Calls `handle` for each client that is ready, until it returns true.
  void for_ready(const std::function<bool(Client&)>& handle) {
    std::array<epoll_event, 512> events;
    while (true) {
      const auto wait = std::chrono::milliseconds(kStuck).count();
      const int count =
          ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), static_cast<int>(wait));
      if (count == 0) throw std::runtime_error("nothing moved for 20 s");
      for (int i = 0; i < count; ++i) {
        if (handle(clients_[events[static_cast<std::size_t>(i)].data.u32])) return;
      }
    }
  }

  void finish_exchanges(const Script& script) {
    if (waiting_ == 0) return;
    for_ready([&](Client& client) {
      const auto size = ::recv(client.socket.get(), input_.data(), input_.size(), MSG_DONTWAIT);
      if (size < 0 && errno == EAGAIN) return false;
      if (size <= 0) throw std::runtime_error("the store closed a connection");
      if (static_cast<std::size_t>(size) > client.expected) throw std::runtime_error("the store answered too much");
      client.expected -= static_cast<std::size_t>(size);
      if (client.expected > 0) return false;
      complete(client);
      --waiting_;
      go_on(client, script);
      return waiting_ == 0;
    });
  }

  void go_on(Client& client, const Script& script) {
    output_.clear();
    if (const std::size_t expected = script(client, output_); expected > 0) send(client, output_, expected);
  }

  void send(Client& client, std::string_view bytes, std::size_t expected) {
    client.expected = expected;
    client.sent = Clock::now();
    ++waiting_;
    while (!bytes.empty()) {
      const auto sent = ::send(client.socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent < 0) fail("send");
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
  }

  double at(double share) {
    if (latencies_us_.empty()) return 0;
    const auto place = latencies_us_.begin() + static_cast<std::ptrdiff_t>(share * double(latencies_us_.size() - 1));
    std::nth_element(latencies_us_.begin(), place, latencies_us_.end());
    return *place;
  }

  const Target target_;
  Descriptor epoll_;
  std::vector<Client> clients_;
  std::size_t waiting_ = 0;  // clients with an exchange under way
  std::vector<float> latencies_us_;
  std::array<char, 1 << 18> input_;
  std::string output_;
  ServerCost before_;
  Clock::time_point begun_;
};

std::string key(int n) { return "/bench/default_pg/0//cpu//0/" + std::to_string(1000000 + n); }

std::vector<std::string> keys(int count) {
  std::vector<std::string> all;
  for (int n = 0; n < count; ++n) all.push_back(key(n));
  return all;
}

// SET has no answer, so a CHECK of the key follows it.
std::size_t set(std::string& out, const std::string& name, std::size_t bytes) {
  append_request(out, {.op = Op::Set, .keys = {name}, .values = {std::string(bytes, 'v')}});
  append_request(out, {.op = Op::Check, .keys = {name}});
  return kByte;
}

void fill(Swarm& swarm, int count, std::size_t bytes) {
  swarm.run([&](const Client& client, std::string& out) {
    const auto n = static_cast<int>(client.exchanges) - 1;  // the first exchange was the greeting
    return n < count ? set(out, key(n), bytes) : 0;
  });
  swarm.forget_the_past();
}

Measured loop_of_gets(const std::string& name, const Target& target, int connections, double seconds, int at_once) {
  constexpr std::size_t kValue = 64;
  Swarm swarm(target, connections);
  swarm.connect();
  swarm.run([](const Client& client, std::string& out) {
    return client.exchanges > 1 ? 0 : set(out, key(client.rank), kValue);
  });
  swarm.forget_the_past();
  std::uint64_t operations = 0;
  swarm.run([&](const Client& client, std::string& out) -> std::size_t {
    operations += client.exchanges > 0 ? static_cast<std::uint64_t>(at_once) : 0;
    if (swarm.is_over(seconds)) return 0;
    for (int i = 0; i < at_once; ++i) append_request(out, {.op = Op::Get, .keys = {key(client.rank)}});
    return text(kValue) * static_cast<std::size_t>(at_once);
  });
  return swarm.measured(name + " " + std::to_string(connections), operations);
}

}  // namespace

Measured storm(const Target& target, int connections) {
  Swarm swarm(target, connections);
  swarm.connect();
  swarm.run([](const Client& client, std::string& out) -> std::size_t {
    if (client.exchanges > 1) return 0;
    append_request(out, {.op = Op::Add, .keys = {"init/"}, .number = 1});
    return kNumber;
  });
  Measured result = swarm.measured("storm " + std::to_string(connections), static_cast<std::uint64_t>(connections));
  result.resident_bytes = swarm.resident_each(connections);
  return result;
}

Measured closed_loop(const Target& target, int connections, double seconds) {
  return loop_of_gets("closed loop", target, connections, seconds, 1);
}

Measured pipelined(const Target& target, int connections, double seconds) {
  return loop_of_gets("pipelined", target, connections, seconds, kPipelined);
}

Measured multi_get(const Target& target, int count, int times) {
  Swarm swarm(target, 1);
  swarm.connect();
  fill(swarm, count, kGlooValue);
  swarm.run([&](const Client& client, std::string& out) -> std::size_t {
    if (client.exchanges == static_cast<std::uint64_t>(times)) return 0;
    append_request(out, {.op = Op::MultiGet, .keys = keys(count)});
    return text(kGlooValue) * static_cast<std::size_t>(count);
  });
  return swarm.measured("multi_get " + std::to_string(count), static_cast<std::uint64_t>(times));
}

Measured wait_for_many(const Target& target, int count, int times) {
  Swarm swarm(target, 1);
  swarm.connect();
  fill(swarm, count, kGlooValue);
  swarm.run([&](const Client& client, std::string& out) -> std::size_t {
    if (client.exchanges == static_cast<std::uint64_t>(times)) return 0;
    append_request(out, {.op = Op::Wait, .keys = keys(count)});
    return kByte;
  });
  return swarm.measured("wait " + std::to_string(count), static_cast<std::uint64_t>(times));
}

Measured gloo_init(const Target& target, int ranks) {
  const std::size_t value = 20 + 136 + 8 * static_cast<std::size_t>(ranks);
  const auto name = [](int rank) { return "/init" + key(rank); };
  Swarm swarm(target, ranks);
  swarm.connect();
  swarm.forget_the_past();
  swarm.run([&](const Client& client, std::string& out) -> std::size_t {
    const std::uint64_t step = client.exchanges;
    const auto peer = static_cast<int>(step / 3);
    if (peer == ranks) return 0;
    if (step == 0)
      append_request(out, {.op = Op::Set, .keys = {name(client.rank)}, .values = {std::string(value, 'v')}});
    const bool last = step % 3 == 2;
    append_request(out, {.op = last ? Op::Get : Op::Wait, .keys = {name(peer)}});
    return last ? text(value) : kByte;
  });
  const auto n = static_cast<std::uint64_t>(ranks);
  return swarm.measured("gloo init " + std::to_string(ranks), n + 3 * n * n);
}

Measured big_values(const Target& target, std::size_t bytes, int times) {
  Swarm swarm(target, 1);
  swarm.connect();
  swarm.forget_the_past();
  swarm.run([&](const Client& client, std::string& out) -> std::size_t {
    if (client.exchanges == static_cast<std::uint64_t>(times)) return 0;
    append_request(out, {.op = Op::Set, .keys = {"/big"}, .values = {std::string(bytes, 'v')}});
    append_request(out, {.op = Op::Get, .keys = {"/big"}});
    return text(bytes);
  });
  return swarm.measured("set+get " + std::to_string(bytes >> 10) + " KiB", static_cast<std::uint64_t>(times));
}

Measured many_keys(const Target& target, int count) {
  Swarm swarm(target, 1);
  swarm.connect();
  swarm.run([&](const Client& client, std::string& out) -> std::size_t {
    const auto n = static_cast<int>(client.exchanges - 1) * 100;
    if (n >= count) return 0;
    for (int i = n; i < n + 100; ++i) {
      append_request(out, {.op = Op::Set, .keys = {"/many/" + key(i)}, .values = {std::string(32, 'v')}});
    }
    append_request(out, {.op = Op::Check, .keys = {"/many/" + key(n + 99)}});
    return kByte;
  });
  Measured result = swarm.measured("keys " + std::to_string(count), static_cast<std::uint64_t>(count));
  result.resident_bytes = swarm.resident_each(count) - static_cast<double>(("/many/" + key(0)).size() + 32);
  return result;
}

}  // namespace ddp::bench
