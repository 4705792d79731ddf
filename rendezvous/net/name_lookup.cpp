// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/net/name_lookup.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/base/error.hpp"
#include "rendezvous/base/thread.hpp"

namespace ddp::rendezvous {

// What the loop's object and the thread share; the last of the two frees it. The thread writes it and then sets
// `finished`; from then on it is only read.
struct NameLookup::Shared {
  Shared() : event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!event) {
      throw Error(ErrorCode::System, std::string("cannot look up a name: eventfd: ") + std::strerror(errno));
    }
  }

  void look_up(const std::string& host, std::uint16_t port, int flags) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV | flags;
    addrinfo* found = nullptr;
    const int status = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
    if (status != 0) {
      error = status == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(status);
      return;
    }
    for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
      FoundAddress address;
      address.size = entry->ai_addrlen;
      std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
      addresses.push_back(address);
    }
    ::freeaddrinfo(found);
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

NameLookup::NameLookup(asio::io_context& io, const std::string& host, std::uint16_t port)
    : shared_(std::make_shared<Shared>()), finished_(io, shared_->event.get()) {
  shared_->look_up(host, port, AI_NUMERICHOST);
  if (shared_->error.empty()) {
    shared_->finish();
    return;
  }
  shared_->error.clear();
  try {
    start_thread("ddprun-lookup", [shared = shared_, host, port] {
      shared->look_up(host, port, 0);
      shared->finish();
    }).detach();
  } catch (const std::system_error& error) {
    shared_->error = std::string("no thread to look it up: ") + error.what();
    shared_->finish();
  }
}

NameLookup::~NameLookup() { finished_.release(); }

bool NameLookup::is_finished() const { return shared_->finished.load(std::memory_order_acquire); }
const std::vector<FoundAddress>& NameLookup::addresses() const { return shared_->addresses; }
const std::string& NameLookup::error() const { return shared_->error; }

}  // namespace ddp::rendezvous
