// SPDX-License-Identifier: BSD-3-Clause
// One TCP connection between two ranks on different nodes. It never blocks: each function moves what it can. Both sides
// prove that they know a secret of the group before anything else passes:
//
//     who connects -> who accepts     hello: "ddplink1", the group's first secret, from, to, purpose
//     who accepts  -> who connects    the group's second secret
//
// A connection that says anything else is closed.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "rendezvous/base/descriptor.hpp"

namespace ddp::collectives {

struct Endpoint {
  std::string host;  // a numeric address
  std::uint16_t port = 0;
};

// Two random values of a group, which only ranks that reach its store know.
struct LinkSecrets {
  static constexpr std::size_t kBytes = 64;
  explicit LinkSecrets(const std::string& text);  // 128 characters

  std::array<char, kBytes> of_who_connects, of_who_accepts;
};

enum class LinkPurpose : std::uint32_t {
  Losses = 1,   // between the first ranks of two nodes: which rank is lost
  Collectives,  // frames of collectives, both ways
  Messages      // messages, from the rank that connects to the other one
};

struct Hello {
  std::array<char, 8> greeting = {'d', 'd', 'p', 'l', 'i', 'n', 'k', '1'};
  std::array<char, LinkSecrets::kBytes> secret = {};
  std::uint32_t from = 0, to = 0;
  LinkPurpose purpose = LinkPurpose::Losses;
  std::uint32_t reserved = 0;
};
static_assert(sizeof(Hello) == 8 + LinkSecrets::kBytes + 16);

class Link {
 public:
  // Begins to connect. A failure shows as is_broken() later.
  Link(const Endpoint& endpoint, const Hello& hello, const LinkSecrets& secrets);
  // Takes a connection whose hello has come, and answers it.
  Link(rendezvous::Descriptor accepted, const LinkSecrets& secrets);
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // Moves the beginning on, and returns whether the link is open.
  bool is_open();
  bool was_opened() const { return state_ == State::Open; }
  // The connection has ended, or was never made.
  bool is_broken() const { return state_ == State::Broken; }
  const std::string& why_broken() const { return why_; }

  // Return how many bytes moved: fewer than asked for if the kernel takes or has no more now, or if the link is broken.
  std::size_t write(const iovec* parts, std::size_t count);
  std::size_t read(const iovec* parts, std::size_t count);
  // Returns whether the other side has closed the connection and everything from it was read.
  bool is_at_end();

  int descriptor() const { return socket_.get(); }
  // What poll() must wait for before is_open() can say yes.
  short events_to_open() const;
  // Ends the connection. Any thread may call it.
  void shut_down() const;

 private:
  enum class State { Connecting, Greeting, Open, Broken };
  void break_off(const std::string& why);

  rendezvous::Descriptor socket_;
  State state_ = State::Broken;
  std::string why_;
  Hello hello_;
  std::array<char, LinkSecrets::kBytes> expected_ = {}, answer_ = {};
  std::size_t hello_sent_ = 0, answer_moved_ = 0;
};

// A connection that was accepted and has not said hello yet.
class Stranger {
 public:
  explicit Stranger(rendezvous::Descriptor socket) : socket_(std::move(socket)) {}
  int descriptor() const { return socket_.get(); }
  enum class Said { NothingYet, Hello, SomethingElse };
  // Reads what has come. Hello means that the secret is right.
  Said hear(const LinkSecrets& secrets);
  const Hello& hello() const { return hello_; }
  rendezvous::Descriptor take_socket() { return std::move(socket_); }

 private:
  rendezvous::Descriptor socket_;
  Hello hello_;
  std::size_t heard_ = 0;
};

}  // namespace ddp::collectives
