// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/local/page/job_source.hpp"

#include <utility>

#include "rendezvous/base/error.hpp"

namespace ddp::launcher {

namespace asio = rendezvous::asio;

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kStillNew{500};
constexpr std::chrono::seconds kStateWithin{4};
constexpr std::size_t kMostBytes = 64 << 20;  // enough for a job with thousands of nodes

}  // namespace

JobSource::JobSource(asio::io_context& io, std::function<rendezvous::Descriptor()> look)
    : look_(std::move(look)), pipe_(io), timer_(io) {}

void JobSource::get(Take take) {
  if (newest_at_ != Clock::time_point() && Clock::now() - newest_at_ < kStillNew) return take(newest_);
  waiting_.push_back(std::move(take));
  if (waiting_.size() > 1) return;
  coming_.clear();
  try {
    pipe_.assign(look_().release());
  } catch (const rendezvous::Error& error) {
    return give({.json = "", .error = error.what()});
  }
  timer_.expires_after(kStateWithin);
  timer_.async_wait([this](const auto& error) {
    if (!error) give({.json = "", .error = "the job's nodes did not answer in time"});
  });
  read();
}

void JobSource::read() {
  pipe_.async_read_some(asio::buffer(buffer_), [this](const auto& error, std::size_t size) {
    if (error == asio::error::operation_aborted) return;
    coming_.append(buffer_.data(), size);
    if (error == asio::error::eof) return give({.json = std::move(coming_), .error = ""});
    if (error) return give({.json = "", .error = error.message()});
    if (coming_.size() > kMostBytes) return give({.json = "", .error = "the job's state is too large"});
    read();
  });
}

void JobSource::give(Answer answer) {
  boost::system::error_code ignored;
  pipe_.close(ignored);
  timer_.cancel();
  newest_ = std::move(answer);
  newest_at_ = Clock::now();
  for (const Take& take : std::exchange(waiting_, {})) take(newest_);
}

void JobSource::stop() {
  boost::system::error_code ignored;
  pipe_.close(ignored);
  timer_.cancel();
  waiting_.clear();
}

}  // namespace ddp::launcher
