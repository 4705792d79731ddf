// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/agent/link_core.hpp"

#include <algorithm>
#include <utility>

namespace ddp::launcher {

using rendezvous::Directive;
using rendezvous::Why;

namespace {

constexpr int kBeatsPerLife = 15;  // heartbeats in lost_after; one a second by default
constexpr std::chrono::seconds kFirstWaitingLine{2};
constexpr std::chrono::seconds kBetweenWaitingLines{5};

}  // namespace

void LinkCore::begin_step(std::chrono::nanoseconds slept) {
  if (!started_) {
    started_ = heard_ = now_;
    next_waiting_line_ = now_ + kFirstWaitingLine;
  }
  heard_ += slept;
  if (is_coordinators()) answered_ = now_;
}

// ---- The link ----

void LinkCore::on(const LinkUp& event) {
  state_.coordinator_address = event.coordinator_address;
  is_beside_now_ = event.is_beside;
  // A new link is a sign of life, but not a second one over which nothing came.
  (is_new_ ? reconnected_.emplace() : heard_) = now_;
  is_up_ = is_new_ = true;
  is_older_ = false;
  round_trips_.clear();
  asked_ = now_;
  if (lost_after_.count() > 0) next_beat_ = now_ + between_beats();
}

void LinkCore::on(const LinkDown& event) {
  is_up_ = false;
  why_not_up_ = event.why;
  next_beat_.reset();
  asked_.reset();
  if (is_coordinators() || !joined()) return;  // the agent ends, or nothing came over it
  if (!cut_) cut_ = now_;  // the first cut counts: the coordinator may not have seen the links since
  agent_.act(
      LogLine{"the link to the coordinator at " + config_.coordinator + " broke (" + event.why + "); trying again"});
}

void LinkCore::on(const LinkFailed& event) {
  if (event.is_etcds) etcds_trouble_ = event.why;
  if (!event.why.empty()) why_not_up_ = event.why;
}

void LinkCore::on(const BeatArrived&) {
  if (is_older_) return;
  heard_ = now_;
  if (asked_ && !is_new_ && !takes_coordinator_along()) round_trips_.add(now_ - *asked_);
  answered();
}

void LinkCore::answered() {
  if (asked_) answered_ = *std::exchange(asked_, std::nullopt);
  if (std::exchange(is_new_, false) && cut_) {
    agent_.act(LogLine{"the link to the coordinator is back"});
    cut_.reset();
  }
}

// ---- Which coordinator counts ----

// The older coordinator may have been stopped just before it sent this, so the next link may lead to the newer
// coordinator. If the next link leads to an older coordinator as well, this agent does not try again at once, but gives
// that link up as it does a silent link.
bool LinkCore::is_fenced_off(const Directive& directive) {
  const bool are_numbers = !directive.instance.empty() && !state_.instance.empty();
  if (!are_numbers || !rendezvous::is_older_epoch(directive.epoch, state_.epoch)) return false;
  const bool is_first = older_.empty();
  older_ = "an older coordinator speaks (epoch " + directive.epoch + ", the newest is " + state_.epoch + ")";
  is_older_ = true;
  if (is_first) agent_.act(Reconnect{older_});
  return true;
}

bool LinkCore::is_of_other_job(const Directive& directive) const {
  if (!joined()) return false;
  if (directive.instance != state_.instance) return true;
  return directive.instance.empty() && directive.epoch != state_.epoch;
}

void LinkCore::hear(const Directive& directive) {
  state_.epoch = directive.epoch;
  state_.instance = directive.instance;
  older_.clear();
  heard_ = now_;
  // The first directive answers this link's report; others may come from a coordinator that hears nothing from here.
  if (is_new_) answered();
  lost_after_ = directive.lost_after;
  back_within_ = directive.back_within;
  if (lost_after_.count() > 0 && !next_beat_) next_beat_ = now_ + between_beats();
}

// ---- The lease ----

std::optional<TimePoint> LinkCore::lease_until() const {
  if (!joined() || lost_after_.count() == 0 || is_released_) return std::nullopt;
  const TimePoint silent = answered_ + lost_after_ * 2 / 3;
  return cut_ ? std::min(silent, *cut_ + back_within_ * 2 / 3) : silent;
}

std::string LinkCore::why_lost() const {
  if (!etcds_trouble_.empty()) return etcds_trouble_;
  return cut_ ? why_not_up_ : "no word for " + in_seconds(now_ - answered_);
}

// ---- Times ----

std::chrono::milliseconds LinkCore::between_beats() const { return lost_after_ / kBeatsPerLife; }

TimePoint LinkCore::reconnect_at() const { return std::max(heard_, reconnected_.value_or(heard_)) + lost_after_ / 3; }

// Returns when a node that has found no coordinator gives up.
TimePoint LinkCore::joins_until() const {
  const TimePoint asked_for = *started_ + config_.join_timeout;
  return named_ ? std::max(asked_for, *named_ + config_.named_timeout) : asked_for;
}

std::optional<LinkCore::Gone> LinkCore::watch(bool is_leaving) {
  if (is_coordinators()) return std::nullopt;
  if (!joined()) {
    const auto joins_within = joins_until() - *started_;
    if (now_ >= joins_until()) {
      const std::string which = joins_within > config_.join_timeout
                                    ? ", longer than --rdzv-conf join_timeout, since etcd names a node: "
                                    : " (--rdzv-conf join_timeout): ";
      return Gone{Why::NoCoordinator, "no coordinator at " + config_.coordinator + " within " +
                                          in_seconds(joins_within) + which + why_not_up_ + config_.advice};
    }
    if (!is_up_ && now_ >= *next_waiting_line_) {
      next_waiting_line_ = now_ + kBetweenWaitingLines;
      agent_.act(LogLine{"waiting for the coordinator at " + config_.coordinator + ": " + why_not_up_ + "; " +
                         in_seconds(now_ - *started_) + " of " + in_seconds(joins_within) + config_.advice});
    }
    return std::nullopt;
  }
  if (lost_after_.count() == 0) return std::nullopt;
  const auto silence = now_ - heard_;
  if (silence >= lost_after_ && !is_leaving) {
    const std::string why = !older_.empty()           ? older_ + "; has etcd lost its data?"
                            : !etcds_trouble_.empty() ? etcds_trouble_
                            : is_up_                  ? ""
                                                      : why_not_up_;
    return Gone{Why::CoordinatorLost, "the coordinator at " + config_.coordinator + " is gone: no word from it for " +
                                          in_seconds(lost_after_) + (why.empty() ? "" : " (" + why + ")")};
  }
  if (!is_up_) return std::nullopt;
  if (now_ >= reconnect_at()) {
    reconnected_ = now_;
    agent_.act(Reconnect{older_.empty() ? "no word for " + in_seconds(silence) : older_});
    return std::nullopt;
  }
  if (!asked_ && now_ >= *next_beat_) {
    asked_ = now_;
    next_beat_ = now_ + between_beats();
    agent_.act(SendHeartbeat{});
  }
  return std::nullopt;
}

std::optional<TimePoint> LinkCore::wake_at(bool is_leaving) const {
  if (!started_ || is_coordinators()) return std::nullopt;
  if (!joined()) return is_up_ ? joins_until() : earlier(joins_until(), next_waiting_line_);
  if (lost_after_.count() == 0) return std::nullopt;
  std::optional<TimePoint> soonest;
  if (!is_leaving) soonest = heard_ + lost_after_;
  if (is_up_) soonest = earlier(soonest, reconnect_at());
  return is_up_ && !asked_ ? earlier(soonest, next_beat_) : soonest;
}

}  // namespace ddp::launcher
