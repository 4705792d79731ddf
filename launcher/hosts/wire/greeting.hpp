// SPDX-License-Identifier: BSD-3-Clause
// The first words of a host: what comes before the frames on its stdout. A login shell may print there too, before
// them; that is chatter, which is kept for the case that nothing else comes.
//
//     Welcome to gpu01!
//     ddprun@host/1: send                  the program is not there: send it
//     ddprun@host/1: ready                 frames follow
//     ddprun@host/1: cannot use /tmp/x     the reason, and the end
#pragma once

#include <string>
#include <string_view>
#include <variant>

namespace ddp::launcher {

inline constexpr char kGreeting[] = "ddprun@host/1: ";

class Greeting {
 public:
  struct NothingYet {};
  struct WantsProgram {};
  struct Ready {};
  struct Cannot {
    std::string why;
  };

  void add(std::string_view bytes) { bytes_ += bytes; }
  // Returns the next of the host's words. What follows Ready is in rest().
  std::variant<NothingYet, WantsProgram, Ready, Cannot> next();
  std::string take_rest();

  // Returns the last of what was printed that is no greeting, or not known to be one.
  std::string chatter() const { return chatter_ + bytes_; }

 private:
  void keep_chatter(std::string_view text);

  std::string bytes_;
  std::string chatter_;
};

}  // namespace ddp::launcher
