// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/net/name_lookup.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <functional>
#include <system_error>
#include <thread>

#include "rendezvous/base/error.hpp"

namespace ddp::rendezvous {

// Belongs to the loop and the thread: whoever is last. The thread writes it, then sets finished; after that it is only
// read.
struct NameLookup::Shared {
  Shared() : event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (event < 0) {
      throw Error(ErrorCode::System, std::string("cannot look up a name: eventfd: ") + std::strerror(errno));
    }
  }
  ~Shared() { ::close(event); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

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
    [[maybe_unused]] const auto written = ::write(event, &one, sizeof one);  // an eventfd at 0 takes it
  }

  const int event;
  std::atomic<bool> finished = false;
  std::vector<FoundAddress> addresses;
  std::string error;
};

namespace {

void start_detached(std::function<void()> f) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // inherited: the process's signals belong to its main thread
  try {
    std::thread(std::move(f)).detach();
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace

NameLookup::NameLookup(asio::io_context& io, const std::string& host, std::uint16_t port)
    : shared_(std::make_shared<Shared>()), finished_(io, shared_->event) {
  shared_->look_up(host, port, AI_NUMERICHOST);
  if (shared_->error.empty()) {
    shared_->finish();
    return;
  }
  shared_->error.clear();
  try {
    start_detached([shared = shared_, host, port] {
      ::pthread_setname_np(::pthread_self(), "ddprun-lookup");
      shared->look_up(host, port, 0);
      shared->finish();
    });
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
