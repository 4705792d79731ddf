// SPDX-License-Identifier: BSD-3-Clause
// The state of the job for those who look at its page, as JSON (launcher/local/job_view.hpp). All nodes are asked for
// it, at most twice a second, however many look; nobody is asked while nobody looks.
#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/net/asio.hpp"

namespace ddp::launcher {

class JobSource {
 public:
  // `look` returns the end of a pipe where the JSON comes, and then the pipe's end; it may throw rendezvous::Error.
  JobSource(rendezvous::asio::io_context& io, std::function<rendezvous::Descriptor()> look);

  struct Answer {
    std::string json;
    std::string error;  // why there is none
  };
  using Take = std::function<void(const Answer&)>;
  // Gives the state, at once or later.
  void get(Take take);

  // Gives up; nobody gets an answer any more.
  void stop();

 private:
  void read();
  void give(Answer answer);

  const std::function<rendezvous::Descriptor()> look_;
  rendezvous::asio::posix::stream_descriptor pipe_;
  rendezvous::asio::steady_timer timer_;
  std::array<char, 16384> buffer_;
  std::string coming_;
  std::vector<Take> waiting_;  // not empty: the pipe is being read
  Answer newest_;
  std::chrono::steady_clock::time_point newest_at_;
};

}  // namespace ddp::launcher
