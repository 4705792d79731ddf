// SPDX-License-Identifier: BSD-3-Clause
// The terminal while a page is shown on it again and again: a screen of its own, keys without Enter, no cursor. The
// destructor gives it back as it was. Signals that would end the program come as events meanwhile, so that they do,
// too.
#pragma once

#include <termios.h>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/descriptor.hpp"

namespace ddp::apps {

// Returns whether stdout is a terminal that understands escape sequences.
bool is_screen();
// Returns whether colours and bold print are wanted (NO_COLOR).
bool wants_colour();

class Terminal {
 public:
  Terminal();
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  struct Size {
    std::size_t columns = 80, lines = 24;
  };
  Size size() const;

  // Shows the lines; those in `bold` are emphasised where colours are wanted. Returns false if the terminal is gone.
  bool show(const std::vector<std::string>& lines, const std::vector<std::size_t>& bold);

  struct Event {
    std::string keys = {};  // as typed
    bool is_over = false;   // a signal asks the program to end, or the terminal is gone
    bool is_resized = false;
    bool is_other_ready = false;  // there is something to read from `other`, or it has ended
  };
  // Waits for an event, or for this long. `other` may be -1.
  Event wait(std::chrono::milliseconds time, int other);
  // Returns the signal that asked the program to end; 0: none did.
  int signal() const { return signal_; }

 private:
  void enter();
  void leave();
  void suspend();
  void take_signals(Event& event);

  std::optional<termios> before_;  // nothing: stdin is no terminal
  sigset_t signals_before_ = {};
  rendezvous::Descriptor signals_;
  int signal_ = 0;
  bool has_keys_ = false;
};

}  // namespace ddp::apps
