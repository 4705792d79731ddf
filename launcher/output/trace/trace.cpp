// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/output/trace/trace.hpp"

#include <condition_variable>
#include <ctime>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "launcher/output/trace/operation_reader.hpp"
#include "launcher/output/trace/trace_file.hpp"
#include "rendezvous/base/error.hpp"
#include "rendezvous/base/thread.hpp"

namespace ddp::launcher {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kBetweenReads{20};     // a worker overwrites a record after 4096 others
constexpr milliseconds kWaitsForClock{5000};  // for an estimate of the coordinator's
constexpr milliseconds kAtTheEnd{2000};
constexpr std::size_t kWrittenAtOnce = 1 << 20;

}  // namespace

std::int64_t trace_clock_ns() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// The thread, and what it shares with others. post(), set_clock() and finish() are called by others.
class Trace::Thread {
 public:
  using Told = std::function<void(Timeline&)>;

  Thread(const TraceSettings& settings, Log log)
      : coordinates_(settings.coordinates),
        path_(coordinates_ ? settings.path : trace_part(settings.path, settings.host, settings.incarnation)),
        log_(std::move(log)),
        file_(path_, [this](const std::string& line) { say(line); }),
        timeline_(settings, [this](const std::string& line) { write(line); }) {
    if (coordinates_) clock_.emplace();  // it is this node's
  }

  const std::string& path() const { return path_; }

  void post(Told what) {
    const std::lock_guard lock(mutex_);
    told_.push_back(std::move(what));
    wake_.notify_one();
  }

  void set_clock(const ClockOffset::Estimate& estimate) {
    const std::lock_guard lock(mutex_);
    clock_ = estimate;
    wake_.notify_one();
  }

  // Returns whether the thread has ended in time.
  bool finish(milliseconds within) {
    std::unique_lock lock(mutex_);
    is_finishing_ = true;
    wake_.notify_one();
    over_.wait_for(lock, within, [this] { return is_over_; });
    is_abandoned_ = !is_over_;
    return is_over_;
  }

  void run() {
    wait_for_clock();
    for (bool is_last = false; !is_last;) {
      std::unique_lock lock(mutex_);
      wait(lock);
      is_last = is_finishing_;
      const auto told = std::exchange(told_, {});
      const auto clock = clock_;
      lock.unlock();
      timeline_.use_clock(trace_clock_ns(), clock);
      for (const Told& what : told) what(timeline_);
      timeline_.read_operations(file_.is_full());
      flush();
    }
    end();
    const std::lock_guard lock(mutex_);
    is_over_ = true;
    over_.notify_all();
  }

 private:
  // Nobody listens any more once finish() has given up.
  void say(const std::string& line) {
    const std::lock_guard lock(mutex_);
    if (!is_abandoned_) log_(line);
  }

  void wait_for_clock() {
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, kWaitsForClock, [this] { return is_finishing_ || clock_.has_value(); });
  }

  // Until there is something to do; where workers record something, for a moment.
  void wait(std::unique_lock<std::mutex>& lock) {
    const auto is_due = [this] { return is_finishing_ || !told_.empty(); };
    if (timeline_.has_readers()) {
      wake_.wait_for(lock, kBetweenReads, is_due);
    } else {
      wake_.wait(lock, is_due);
    }
  }

  void write(const std::string& line) {
    lines_ += line;
    if (lines_.size() >= kWrittenAtOnce) flush();
  }

  void flush() {
    file_.write(lines_);
    lines_.clear();
  }

  void end() {
    const std::string missing = timeline_.end(trace_clock_ns());
    if (!missing.empty()) say("trace " + path_ + ": " + missing);
    flush();
    if (coordinates_) file_.take_in_parts(timeline_.epoch());
    file_.close();
  }

  std::mutex mutex_;
  std::condition_variable wake_, over_;
  std::deque<Told> told_;
  std::optional<ClockOffset::Estimate> clock_;
  bool is_finishing_ = false, is_over_ = false, is_abandoned_ = false;

  const bool coordinates_;
  const std::string path_;
  const Log log_;
  TraceFile file_;
  std::string lines_;
  Timeline timeline_;
};

Trace::Trace(const TraceSettings& settings, Log log)
    : log_(log), thread_(std::make_shared<Thread>(settings, std::move(log))) {
  rendezvous::start_thread("ddprun-trace", [thread = thread_] { thread->run(); }).detach();
}

Trace::~Trace() { finish(kAtTheEnd); }

const std::string& Trace::path() const { return thread_->path(); }

void Trace::round_trip(std::int64_t sent_ns, std::int64_t coordinator_ns) {
  offset_.add(sent_ns, coordinator_ns, trace_clock_ns());
  if (const auto best = offset_.best()) thread_->set_clock(*best);
}

void Trace::begin_round(int round, const std::string& epoch, const rendezvous::Assignment& assignment) {
  thread_->post([at = trace_clock_ns(), round, epoch, assignment](Timeline& timeline) {
    timeline.begin_round(at, round, epoch, assignment);
  });
}

void Trace::worker_started(int rank, int pid) {
  thread_->post([at = trace_clock_ns(), rank, pid](Timeline& timeline) { timeline.worker_started(at, rank, pid); });
}

void Trace::worker_ended(int rank, const std::string& how, bool is_failure) {
  thread_->post([at = trace_clock_ns(), rank, how, is_failure](Timeline& timeline) {
    timeline.worker_ended(at, rank, how, is_failure);
  });
}

void Trace::end_round() {
  thread_->post([at = trace_clock_ns()](Timeline& timeline) { timeline.end_round(at); });
}

void Trace::note(const std::string& what) {
  thread_->post([at = trace_clock_ns(), what](Timeline& timeline) { timeline.note(at, what); });
}

void Trace::read_from(int rank, const rendezvous::Descriptor& memory) {
  auto reader = std::make_shared<OperationReader>(memory);
  thread_->post([at = trace_clock_ns(), rank, reader = std::move(reader)](Timeline& timeline) {
    timeline.add_reader(at, rank, reader);
  });
}

void Trace::finish(milliseconds within) {
  if (std::exchange(is_finished_, true)) return;
  if (!thread_->finish(within)) log_("trace " + path() + " is not complete: its disk takes too long");
}

}  // namespace ddp::launcher
