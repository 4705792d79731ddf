// SPDX-License-Identifier: BSD-3-Clause
// This end of one host: the process of its launch agent, the bytes that wait for it, and what has come from it. It
// reads and writes; who has started it decides when, and what follows.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/hosts/wire/greeting.hpp"
#include "launcher/hosts/wire/messages.hpp"
#include "launcher/process/spawner.hpp"
#include "rendezvous/base/descriptor.hpp"

namespace ddp::launcher {

class Link {
 public:
  // What comes from the host.
  struct Events {
    std::function<void()> progressed;  // it has greeted, or takes more of the program
    std::function<void(const rendezvous::Frame&)> frame;
    std::function<void(const std::string& why)> refused;  // it cannot go on, or what it sends is wrong
  };

  Link(std::string agent, Events events) : agent_(std::move(agent)), events_(std::move(events)) {}

  // Completes a command with pipes, which must be started then.
  void connect(WorkerCommand& command);
  void started(pid_t pid);

  pid_t pid() const { return pid_; }
  int in() const { return has_unsent() ? in_.get() : -1; }  // to be written to; -1: nothing waits
  int out() const { return out_.get(); }                    // to be read; -1: closed
  int err() const { return err_.get(); }

  bool is_ready() const { return has_greeted_; }  // frames may be sent
  void send(rendezvous::FrameKind kind, std::string_view payload);
  void write_some();
  void read_out();
  void read_err();
  void cut();  // closes its stdin; what waits for it is dropped
  void kill(int signal) const;

  // Reads what is left when the process has ended. Returns how, for a host that has not told its exit code.
  std::string end(int status);
  bool has_ended() const { return has_ended_; }
  // Whether an sshd closed the connection before ssh could log in; ssh may be admitted at another time.
  bool was_turned_away() const { return was_turned_away_; }

 private:
  bool has_unsent() const { return in_ && (!unsent_.empty() || program_); }
  bool read_from(rendezvous::Descriptor& from, const std::function<void(std::string_view)>& take);
  void take_out(std::string_view bytes);
  void take_greeting();
  void take_frames();
  void load_program();
  std::string last_words() const;

  std::string agent_;  // its name, for messages
  Events events_;
  pid_t pid_ = -1;
  rendezvous::Descriptor in_, out_, err_;
  rendezvous::Descriptor agents_in_, agents_out_, agents_err_;  // until it is started
  rendezvous::Descriptor program_;                              // what is left of it to be sent
  std::string unsent_;
  Greeting greeting_;
  rendezvous::FrameReader frames_{kHostFrames};
  bool has_greeted_ = false;
  bool has_sent_program_ = false;
  bool is_wrong_ = false;
  bool has_ended_ = false;
  bool was_turned_away_ = false;
  std::string noise_;  // the last that came on stderr
};

}  // namespace ddp::launcher
