// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/etcd/etcd_journal.hpp"

#include <utility>

#include "rendezvous/base/check.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/net/boot_timer.hpp"
#include "rendezvous/net/core_driver.hpp"

namespace ddp::rendezvous {

// Pending handlers keep it alive; after stop() they do nothing.
class EtcdJournal::Driver : public std::enable_shared_from_this<EtcdJournal::Driver> {
 public:
  Driver(asio::io_context& io, EtcdSettings settings, LeaseConfig config, Watchers watchers)
      : io_(io),
        settings_(std::move(settings)),
        watchers_(std::move(watchers)),
        core_(std::move(config)),
        driver_(io, core_,
                [this](const LeaseAction& action) {
                  if (!is_stopped_) std::visit([this](const auto& one) { carry_out(one); }, action);
                }),
        leases_(io, settings_),
        keys_(io, settings_) {}

  void claim(Callbacks callbacks) {
    callbacks_ = std::move(callbacks);
    post(LeaseStart{});
  }

  void write(std::uint64_t number, std::string content) {
    if (content.size() <= kMostContentBytes) return post(LeaseWrite{number, std::move(content)});
    asio::post(io_, [self = shared_from_this(), size = content.size()] {
      self->lost("a record of " + describe_bytes(size) + " does not fit into etcd, which takes " +
                 describe_bytes(kMostContentBytes));
    });
  }

  bool may_tell() const { return !is_stopped_ && core_.is_sure(BootClock::now()); }
  LeaseConfig::Inheritance inheritance() const { return {lease_, core_.epoch()}; }

  void release(std::function<void(bool)> on_released) {
    on_released_ = std::move(on_released);
    if (core_.is_over()) return asio::post(io_, [self = shared_from_this()] { self->released(false); });
    post(LeaseRelease{});
  }

  void stop() {
    is_stopped_ = true;
    watch_.reset();
    asio::post(io_, [self = shared_from_this()] {});
  }

 private:
  void handle(const LeaseEvent& event) {
    if (watchers_.head_start) core_.set_head_start(watchers_.head_start());
    driver_.handle(event);
  }

  void post(LeaseEvent event) {
    asio::post(io_, [self = shared_from_this(), event = std::move(event)] {
      if (!self->is_stopped_) self->handle(event);
    });
  }

  void carry_out(const AskEtcd& action) {
    if (watchers_.on_ask && lease_ == 0) watchers_.on_ask();
    EtcdClient& client = action.lane == LeaseLane::Leases ? leases_ : keys_;
    client.ask(action.request, [weak = weak_from_this(), ask = action.ask](EtcdOutcome outcome) {
      const auto self = weak.lock();
      if (self && !self->is_stopped_) self->handle(LeaseAnswered{ask, std::move(outcome)});
    });
  }
  // Each watch has a connection of its own, which ends with it.
  void carry_out(const WatchEtcd& action) {
    watch_ = std::make_unique<EtcdClient>(io_, settings_);
    watch_->watch(
        action.what,
        [weak = weak_from_this()](const WatchNews& news) {
          const auto self = weak.lock();
          if (self && !self->is_stopped_) self->handle(LeaseNews{news});
        },
        [weak = weak_from_this()](EtcdOutcome outcome) {
          const auto self = weak.lock();
          if (!self || self->is_stopped_) return;
          const auto* why = std::get_if<EtcdRefusal>(&outcome);
          self->handle(LeaseWatchOver{why ? *why : EtcdRefusal{}});
        });
  }
  void carry_out(const LeaseHeld& action) {
    watch_.reset();
    lease_ = action.lease;
    callbacks_.on_claimed({.epoch = std::to_string(action.epoch), .content = action.content, .epoch_is_number = true});
  }
  void carry_out(const LeaseOfOther& action) {
    if (watchers_.on_other) watchers_.on_other(action.epoch, action.note);
  }
  void carry_out(const LeaseKept& action) { callbacks_.on_kept(action.number); }
  void carry_out(const LeaseInDoubt& action) {
    if (watchers_.on_doubt) watchers_.on_doubt(action.why);
  }
  void carry_out(const LeaseSure&) {
    if (watchers_.on_sure) watchers_.on_sure();
    if (callbacks_.on_may_tell) callbacks_.on_may_tell();
  }
  void carry_out(const LeaseLost& action) {
    watch_.reset();
    lost("the journal in etcd: " + action.why);
  }
  void carry_out(const LeaseReleased& action) {
    watch_.reset();
    released(action.are_keys_gone);
  }
  void carry_out(const LeaseTrouble& action) {
    if (watchers_.on_trouble) watchers_.on_trouble(action.why);
  }

  void lost(const std::string& why) {
    if (is_stopped_ || std::exchange(is_lost_, true)) return;
    callbacks_.on_lost(why);
  }
  void released(bool are_keys_gone) {
    if (is_stopped_ || !on_released_) return;
    std::exchange(on_released_, nullptr)(are_keys_gone);
  }

  asio::io_context& io_;
  const EtcdSettings settings_;
  const Watchers watchers_;
  Callbacks callbacks_;
  LeaseCore core_;
  CoreDriver<LeaseCore, LeaseEvent, LeaseAction, LeaseTick, BootTimer> driver_;
  EtcdClient leases_, keys_;
  std::unique_ptr<EtcdClient> watch_;
  LeaseId lease_ = 0;
  std::function<void(bool)> on_released_;
  bool is_stopped_ = false, is_lost_ = false;
};

EtcdJournal::EtcdJournal(asio::io_context& io, EtcdSettings settings, LeaseConfig config, Watchers watchers)
    : driver_(std::make_shared<Driver>(io, std::move(settings), std::move(config), std::move(watchers))) {}

// It may be destroyed by a callback of its own.
EtcdJournal::~EtcdJournal() { driver_->stop(); }

void EtcdJournal::claim(Callbacks callbacks) { driver_->claim(std::move(callbacks)); }
void EtcdJournal::write(std::uint64_t number, std::string content) { driver_->write(number, std::move(content)); }
bool EtcdJournal::may_tell() const { return driver_->may_tell(); }
LeaseConfig::Inheritance EtcdJournal::inheritance() const { return driver_->inheritance(); }
void EtcdJournal::release(std::function<void(bool)> on_released) { driver_->release(std::move(on_released)); }

}  // namespace ddp::rendezvous
