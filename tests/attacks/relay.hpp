// SPDX-License-Identifier: BSD-3-Clause
// Somebody on the path between an agent and the coordinator: passes the bytes of their link on, sees all of them, and
// may change any. Serves connections one after the other, on a thread of its own.
#pragma once

#include <poll.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "rendezvous/net/listen.hpp"
#include "tests/rendezvous/store/raw_connection.hpp"

namespace ddp::testing {

class Relay {
 public:
  enum class From { Agent, Coordinator };
  // What is passed on at once: the two sides' prefaces, then proofs if the job has a secret, then each sealed frame.
  // The header before a side's first frame goes with that frame.
  enum class Part { Preface, Proof, Frame };
  enum class Proofs { None, Of32Bytes };
  // Gets what came, on the relay's thread, and returns what to send instead.
  using Change = std::function<std::string(From, Part, std::string)>;

  Relay(std::uint16_t coordinator, Proofs proofs, Change change)
      : to_(coordinator),
        proofs_(proofs),
        change_(std::move(change)),
        listeners_(rendezvous::listen_on({"127.0.0.1"}, 0)),
        thread_([this] { serve(); }) {}
  ~Relay() {
    over_ = true;
    thread_.join();
  }
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  std::uint16_t port() const { return listeners_.port; }
  // Cuts the connection; the agent may make another one.
  void cut() { cut_ = true; }
  // Returns everything that went through it so far.
  std::string seen() {
    const std::lock_guard lock(mutex_);
    return seen_;
  }

 private:
  struct Side {
    From from;
    rendezvous::RawConnection& in;
    rendezvous::RawConnection& out;
    int parts = 0;
    std::string bytes = {};
  };

  void serve() {
    while (!over_) {
      pollfd ready{listeners_.sockets[0].get(), POLLIN, 0};
      if (::poll(&ready, 1, 20) != 1) continue;
      rendezvous::RawConnection agent(::accept4(ready.fd, nullptr, nullptr, SOCK_CLOEXEC));
      rendezvous::RawConnection coordinator = rendezvous::RawConnection::to(to_);
      cut_ = false;
      Side sides[] = {{From::Agent, agent, coordinator}, {From::Coordinator, coordinator, agent}};
      while (!over_ && !cut_ && pass_on(sides)) {
      }
    }
  }

  bool pass_on(Side (&sides)[2]) {
    pollfd ready[] = {{sides[0].in.fd(), POLLIN, 0}, {sides[1].in.fd(), POLLIN, 0}};
    ::poll(ready, 2, 20);
    for (int i = 0; i < 2; ++i) {
      if (ready[i].revents == 0) continue;
      char part[65536];
      const auto got = ::recv(ready[i].fd, part, sizeof part, 0);
      if (got <= 0) return false;
      Side& side = sides[i];
      side.bytes.append(part, static_cast<std::size_t>(got));
      {
        const std::lock_guard lock(mutex_);
        seen_.append(part, static_cast<std::size_t>(got));
      }
      while (!cut_) {
        const auto [kind, size] = next(side);
        if (size == 0 || side.bytes.size() < size) break;
        ++side.parts;
        side.out.send(change_(side.from, kind, side.bytes.substr(0, size)));
        side.bytes.erase(0, size);
      }
    }
    return true;
  }

  // Returns what comes next and how long it is; 0: not known yet. The sizes are those of docs/internals/agent_link.md.
  std::pair<Part, std::size_t> next(const Side& side) const {
    const bool has_proof = proofs_ == Proofs::Of32Bytes;
    if (side.parts == 0) return {Part::Preface, 49};
    if (has_proof && side.parts == 1) return {Part::Proof, 32};
    const std::size_t header = side.parts == (has_proof ? 2 : 1) ? 24 : 0;
    if (side.bytes.size() < header + 4) return {Part::Frame, 0};
    std::size_t length = 0;
    for (std::size_t i = header; i < header + 4; ++i) length = length << 8 | static_cast<unsigned char>(side.bytes[i]);
    return {Part::Frame, header + 4 + length + 17};
  }

  const std::uint16_t to_;
  const Proofs proofs_;
  const Change change_;
  rendezvous::Listeners listeners_;
  std::atomic<bool> over_ = false, cut_ = false;
  std::mutex mutex_;
  std::string seen_;
  std::thread thread_;  // last, so that it begins when all else is there
};

}  // namespace ddp::testing
