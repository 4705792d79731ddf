// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/net/addresses/name_lookup.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <system_error>

#include "rendezvous/base/check.hpp"
#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/base/error.hpp"
#include "rendezvous/base/thread.hpp"

namespace ddp::rendezvous {

// What the loop's object and the thread share; the last of the two frees it. The thread writes it and then sets
// `finished`; from then on it is only read.
struct NameLookup::Shared {
  Shared() : event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!event) {
      system_error("cannot look up a name: eventfd");
    }
  }

  // Returns why not, if there is a host that cannot be resolved.
  std::string look_up(const std::vector<std::string>& hosts, const std::vector<std::uint16_t>& ports, int flags) {
    std::string why;
    std::vector<FoundAddress> found;
    for (const std::string& host : hosts) {
      if (std::string failure = look_up(host, flags, found); !failure.empty()) why = std::move(failure);
    }
    addresses.clear();
    for (const std::uint16_t port : ports) {
      for (FoundAddress address : found) {
        address.set_port(port);
        addresses.push_back(address);
      }
    }
    return why;
  }

  static std::string look_up(const std::string& host, int flags, std::vector<FoundAddress>& to) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV | flags;
    addrinfo* found = nullptr;
    const int status = ::getaddrinfo(host.c_str(), "0", &hints, &found);
    if (status != 0) return status == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(status);
    for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
      FoundAddress address;
      address.size = entry->ai_addrlen;
      std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
      to.push_back(address);
    }
    ::freeaddrinfo(found);
    return "";
  }

  void finish() {
    finished.store(true, std::memory_order_release);
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(event.get(), &one, sizeof one);  // an eventfd at 0 takes it
  }

  const Descriptor event;
  std::atomic<bool> finished = false;
  std::vector<FoundAddress> addresses;
  std::string error;
};

std::uint16_t FoundAddress::port() const {
  if (storage.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
}

void FoundAddress::set_port(std::uint16_t port) {
  if (storage.ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in*>(&storage)->sin_port = htons(port);
  }
}

std::shared_ptr<NameLookup::Shared> NameLookup::start(const std::vector<std::string>& hosts,
                                                      const std::vector<std::uint16_t>& ports) {
  auto shared = std::make_shared<Shared>();
  if (shared->look_up(hosts, ports, AI_NUMERICHOST).empty()) {
    shared->finish();
    return shared;
  }
  try {
    start_thread("ddprun-lookup", [shared, hosts, ports] {
      const std::string why = shared->look_up(hosts, ports, 0);
      if (shared->addresses.empty()) shared->error = why;
      shared->finish();
    }).detach();
  } catch (const std::system_error& error) {
    shared->error = std::string("no thread to look it up: ") + error.what();
    shared->finish();
  }
  return shared;
}

HostAddresses NameLookup::wait_for(const std::string& host, const std::function<void()>& on_slow) {
  constexpr int kSlowAfterMs = 3000;
  const std::shared_ptr<Shared> shared = start({host}, {0});
  sigset_t ends;
  sigemptyset(&ends);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) sigaddset(&ends, signal);
  const Descriptor pending(signalfd(-1, &ends, SFD_CLOEXEC));  // is not read: the signal stays pending
  pollfd both[] = {{.fd = shared->event.get(), .events = POLLIN, .revents = 0},
                   {.fd = pending.get(), .events = POLLIN, .revents = 0}};
  int timeout = kSlowAfterMs;
  for (int ready = 0; ready <= 0;) {
    ready = ::poll(both, 2, timeout);
    if (ready == 0) {
      on_slow();
      timeout = -1;
    }
  }
  if (!shared->finished.load(std::memory_order_acquire)) return {{}, "a signal came before the name server answered"};
  return {shared->addresses, shared->error};
}

NameLookup::NameLookup(asio::io_context& io, const std::vector<std::string>& hosts,
                       const std::vector<std::uint16_t>& ports)
    : shared_(start(hosts, ports)), finished_(io, shared_->event.get()) {}

NameLookup::~NameLookup() { finished_.release(); }

bool NameLookup::is_finished() const { return shared_->finished.load(std::memory_order_acquire); }
// The acquire in is_finished() makes visible what the thread wrote; to C++, an event orders nothing.
const std::vector<FoundAddress>& NameLookup::addresses() const {
  DDP_CHECK(is_finished());
  return shared_->addresses;
}
const std::string& NameLookup::error() const {
  DDP_CHECK(is_finished());
  return shared_->error;
}

}  // namespace ddp::rendezvous
