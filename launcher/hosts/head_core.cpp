// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/hosts/head_core.hpp"

#include <algorithm>
#include <csignal>
#include <map>
#include <utility>

#include "rendezvous/base/exit_code.hpp"
#include "rendezvous/base/text.hpp"

namespace ddp::launcher {
namespace {

void append(HeadCore::Actions& to, HeadCore::Actions more) {
  for (HeadAction& action : more) to.push_back(std::move(action));
}

}  // namespace

HeadCore::HeadCore(Settings settings, Time now) : settings_(std::move(settings)), began_(now), patience_ends_(now) {
  for (const HostInfo& info : settings_.hosts)
    hosts_.push_back({.info = info, .last_progress = now, .wanted_since = now});
}

HeadCore::Actions HeadCore::begin() { return start_next(began_); }

bool HeadCore::has_room() const {
  std::size_t awaited = 0;
  for (std::size_t i = 0; i < hosts_.size(); ++i) awaited += is_awaited(i) ? 1U : 0U;
  return awaited < kWindow;
}

StartHosts HeadCore::start_hosts(std::vector<std::size_t> hosts, Time now) {
  for (const std::size_t host : hosts) {
    hosts_[host].last_progress = hosts_[host].wanted_since = now;
    hosts_[host].has_link = true;
  }
  return {std::move(hosts)};
}

// Starts hosts that were not started yet, as long as there is room.
HeadCore::Actions HeadCore::start_next(Time now) {
  std::vector<std::size_t> next;
  for (std::size_t i = 0; i < hosts_.size() && has_room(); ++i) {
    if (hosts_[i].state != State::Connecting || hosts_[i].has_link) continue;
    hosts_[i].has_link = true;
    next.push_back(i);
  }
  return next.empty() ? Actions{} : Actions{start_hosts(std::move(next), now)};
}

HeadCore::Actions HeadCore::ready(std::size_t host, const Hello& hello, Time now) {
  OfHost& one = hosts_[host];
  if (one.state != State::Connecting) return {};  // it greets twice: nothing follows from that
  if (has_started_) return comes_back(host) && may_come_back(host) ? join_again(host, now) : Actions{};
  one.state = State::Ready;
  one.hello = hello;
  one.last_progress = now;
  if (!may_begin()) return cut_if_settled(now);
  Actions actions = start_next(now);
  if (all_are(State::Ready)) append(actions, start());
  return actions;
}

void HeadCore::progressed(std::size_t host, Time now) { hosts_[host].last_progress = now; }

HeadCore::Actions HeadCore::exited(std::size_t host, int code, Time now) {
  OfHost& one = hosts_[host];
  if (one.state != State::Running) return {};
  one.state = State::Ended;
  if (!is_cut() || !has_failed()) one.code = code;
  // The agents tell each other that the job has failed, and each ends its own workers.
  if (code != 0) stop_within(settings_.shutdown_timeout + kBeyondTimeout, now);
  return host == 0 ? do_without_missing() : Actions{};
}

HeadCore::Actions HeadCore::failed(std::size_t host, const std::string& how, Time now) {
  const State state = hosts_[host].state;
  // A host whose connection was closed here says so.
  if (is_cut() || state == State::Ended || state == State::Lost) return {};
  if (!has_started_) return lose(host, how, now);
  // Its workers have their shutdown timeout; then its link ends, or is ended from here.
  const auto within = settings_.shutdown_timeout + kBeyondTimeout;
  OfHost& one = hosts_[host];
  const bool may_return = may_come_back(host);
  if (may_return) one.ends_by = now + within;
  if (comes_back(host)) return tell_failure(host, how);
  if (may_return) {
    one.failure = how;  // the end of its link has it started again
    return {};
  }
  note_cause(host, how);
  stop_within(within, now);
  return lose(host, how, now);
}

HeadCore::Actions HeadCore::cannot_begin(std::size_t host, int code, const std::string& why, Time now) {
  OfHost& one = hosts_[host];
  if (one.state != State::Running) return failed(host, why, now);
  if (one.was_started_again && may_come_back(host)) {
    one.state = State::Connecting;
    return tell_failure(host, why);
  }
  one.cannot_begin = why.empty() ? "it does not say why" : why;
  one.code = code;
  return lose(host, why, now);
}

HeadCore::Actions HeadCore::link_ended(std::size_t host, const std::string& how, Time now) {
  if (may_begin()) {
    if (const auto actions = try_again(host, how, now)) return *actions;
  }
  OfHost& one = hosts_[host];
  one.has_link = false;
  const std::string failure = std::exchange(one.failure, "");
  one.ends_by.reset();
  if (may_come_back(host)) return bring_back(host, failure.empty() ? how : failure, now);
  if (comes_back(host) || one.is_not_needed) forgo(host);
  Actions actions;
  const bool is_expected = is_done(host) || is_cut();
  if (!is_expected) {
    note_cause(host, how);
    actions = lose(host, how, now);
  }
  append(actions, end_if_over());
  return actions;
}

HeadCore::Actions HeadCore::signal(int number, Time now) {
  if (number == SIGUSR1 || number == SIGUSR2) return has_started_ ? Actions{SignalHosts{number, {}}} : Actions{};
  const bool is_first = stop_signal_ == 0;
  if (is_first) stop_signal_ = number;
  if (!has_started_) return cut_before_start(is_first ? kAfterCutBeforeStart : std::chrono::seconds(0), now);
  Actions actions;
  if (is_first) {
    stop_within(settings_.shutdown_timeout + kBeyondTimeout, now);
    actions = forgo_missing();
  }
  // The second Ctrl-C kills the workers; their hosts' ddprun has no more to do.
  if (!is_first && number == SIGINT) stop_within(kAfterCut, now);
  actions.push_back(SignalHosts{number, {}});
  return actions;
}

HeadCore::Actions HeadCore::tick(Time now) {
  if (patience_ != Patience::Endless && now >= patience_ends_) return escalate(now);
  return has_started_ ? look_at_missing(now) : look_at_connecting(now);
}

std::optional<HeadCore::Time> HeadCore::due() const {
  if (has_ended_ || patience_ == Patience::Over) return std::nullopt;
  if (patience_ != Patience::Endless) return patience_ends_;
  std::optional<Time> soonest;
  if (has_started_) {
    for (std::size_t i = 0; i < hosts_.size(); ++i) {
      if (const auto at = missing_until(i)) soonest = std::min(soonest.value_or(Time::max()), *at);
    }
    return soonest;
  }
  if (!has_told_) soonest = began_ + kTellAfter;
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    if (is_awaited(i)) soonest = std::min(soonest.value_or(Time::max()), awaited_until(i));
  }
  return soonest;
}

// A host that lies may tell of progress for ever.
HeadCore::Time HeadCore::awaited_until(std::size_t host) const {
  return std::min(hosts_[host].last_progress + kReadyWithin, hosts_[host].wanted_since + kReadyAtMost);
}

bool HeadCore::all_are(State state) const {
  return std::all_of(hosts_.begin(), hosts_.end(), [state](const OfHost& host) { return host.state == state; });
}

// Returns where the other nodes find the first. If that is this machine, the others know from where they were reached,
// which is another machine's address where that was through a jump host.
std::string HeadCore::address() const {
  if (!settings_.master_addr.empty()) return settings_.master_addr;
  if (!hosts_[0].info.is_local) return hosts_[0].hello.address;
  for (const OfHost& host : hosts_) {
    if (!host.info.is_local && is_own_address(host.hello.caller_address)) return host.hello.caller_address;
  }
  return hosts_[0].hello.address;
}

bool HeadCore::is_own_address(const std::string& address) const {
  const auto& own = settings_.own_addresses;
  return !address.empty() && (own.empty() || std::find(own.begin(), own.end(), address) != own.end());
}

HeadCore::Actions HeadCore::start() {
  has_started_ = true;
  for (OfHost& host : hosts_) host.state = State::Running;
  begun_ = StartAll{address(), settings_.master_port != 0 ? settings_.master_port : hosts_[0].hello.port};
  Actions actions = tell_shared_machines();
  append(actions, tell_environment());
  actions.push_back(*begun_);
  return actions;
}

// Each node of a machine takes its GPUs and CPUs as if it were alone there, which few mean who give it two names.
HeadCore::Actions HeadCore::tell_shared_machines() const {
  std::map<std::string, std::vector<std::string>> names;
  for (const OfHost& host : hosts_) {
    if (!host.hello.machine.empty()) names[host.hello.machine].push_back(host.info.name);
  }
  Actions actions;
  for (const auto& [machine, of_it] : names) {
    if (of_it.size() < 2) continue;
    actions.push_back(SayLine{"hosts " + rendezvous::list_of(of_it, 8) +
                              " are one machine, and each uses its GPUs and CPUs as if it were alone there; to share "
                              "them out, list it once with the sum of the slots"});
  }
  return actions;
}

// A program may find a variable on this machine and miss the variable on the other hosts.
HeadCore::Actions HeadCore::tell_environment() const {
  const auto is_local = [](const OfHost& host) { return host.info.is_local; };
  const auto here = std::find_if(hosts_.begin(), hosts_.end(), is_local);
  if (here == hosts_.end() || std::all_of(hosts_.begin(), hosts_.end(), is_local)) return {};
  return {SayLine{"workers on " + here->info.name +
                  " have all variables of this environment, those on the other hosts " +
                  "a part of them (--help: --export); -x NAME gives them NAME, too"}};
}

// ---- A host that is lost while the job runs, and comes back ----

bool HeadCore::may_come_back(std::size_t host) const {
  const bool goes_on = has_started_ && !was_lost_ && stop_signal_ == 0 && patience_ == Patience::Endless;
  return goes_on && settings_.may_restart && host != 0 && !is_done(0);
}

// Starts the host again, now or after a while.
HeadCore::Actions HeadCore::bring_back(std::size_t host, const std::string& how, Time now) {
  OfHost& one = hosts_[host];
  if (is_done(host)) return {};
  if (comes_back(host)) {
    one.try_at = now + kTryAgainEvery;
    return tell_failure(host, how);
  }
  one.state = State::Connecting;
  one.was_started_again = true;
  one.try_at = now;
  Actions actions = {SayLine{"host " + one.info.name + " is lost: " + how + "; starting ddprun there again"}};
  append(actions, look_at_missing(now));
  return actions;
}

HeadCore::Actions HeadCore::tell_failure(std::size_t host, const std::string& how) {
  if (how.empty() || std::exchange(hosts_[host].has_told_failure, true)) return {};
  return {SayLine{"host " + hosts_[host].info.name + " cannot be started again yet: " + how + "; trying every " +
                  rendezvous::to_string(kTryAgainEvery)}};
}

// The host is ready, and begins its part at once.
HeadCore::Actions HeadCore::join_again(std::size_t host, Time now) {
  OfHost& one = hosts_[host];
  one.state = State::Running;
  one.last_progress = now;
  Actions actions;
  if (std::exchange(one.has_told_failure, false)) actions.push_back(SayLine{"host " + one.info.name + " is back"});
  actions.push_back(StartOne{host, begun_->master_addr, begun_->master_port});
  return actions;
}

// Returns when something is to be done about a host that comes back: it is to be started, does not answer, or has not
// ended since it failed.
std::optional<HeadCore::Time> HeadCore::missing_until(std::size_t host) const {
  const OfHost& one = hosts_[host];
  if (!may_come_back(host)) return std::nullopt;
  if (one.ends_by && one.has_link) return one.ends_by;
  if (!comes_back(host)) return std::nullopt;
  if (one.try_at) return one.try_at;
  return one.last_progress + kReachWithin;
}

HeadCore::Actions HeadCore::look_at_missing(Time now) {
  Actions actions;
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    const auto until = missing_until(i);
    if (!until || now < *until) continue;
    if (std::exchange(hosts_[i].ends_by, std::nullopt)) {
      actions.push_back(KillLink{i});
    } else if (hosts_[i].try_at && !has_room()) {
      hosts_[i].try_at = now + kTryAgainEvery;
    } else if (hosts_[i].try_at) {
      hosts_[i].try_at.reset();
      actions.push_back(EndLines{i});
      actions.push_back(start_hosts({i}, now));
    } else {
      append(actions, tell_failure(i, "no answer in " + rendezvous::to_string(kReachWithin)));
      hosts_[i].last_progress = now;
      actions.push_back(KillLink{i});
    }
  }
  return actions;
}

void HeadCore::forgo(std::size_t host) {
  hosts_[host].state = State::Lost;
  hosts_[host].is_not_needed = true;
}

// The job ends, so hosts that are to come back need not.
HeadCore::Actions HeadCore::forgo_missing() {
  Actions actions;
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    if (!comes_back(i)) continue;
    forgo(i);
    if (hosts_[i].has_link) actions.push_back(KillLink{i});
  }
  return actions;
}

// The coordinator has ended, last of all: a host that was started again and is not through with it never will be.
HeadCore::Actions HeadCore::do_without_missing() {
  SignalHosts end{SIGTERM, {}};
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    if (!hosts_[i].was_started_again || is_done(i)) continue;
    hosts_[i].is_not_needed = true;
    if (!comes_back(i)) end.hosts.push_back(i);  // else its launch agent is killed
  }
  Actions actions = forgo_missing();
  if (!end.hosts.empty()) actions.push_back(std::move(end));
  return actions;
}

// ---- What follows ----

// Notes that the job ends since a host is lost, if it does not end for another reason already.
void HeadCore::note_cause(std::size_t host, const std::string& how) {
  if (has_failed() || was_lost_ || stop_signal_ != 0) return;
  loss_ = "host " + hosts_[host].info.name + " is lost: " + how;
}

bool HeadCore::has_failed() const {
  return std::any_of(hosts_.begin(), hosts_.end(), [](const OfHost& host) { return host.code.value_or(0) != 0; });
}

// A host that was ready, and whose link ends before the job begins, is started again, once.
std::optional<HeadCore::Actions> HeadCore::try_again(std::size_t host, const std::string& how, Time now) {
  OfHost& one = hosts_[host];
  if (one.state != State::Ready || std::exchange(one.was_tried_again, true)) return std::nullopt;
  one.state = State::Connecting;
  return Actions{SayLine{"starting ddprun on host " + one.info.name + " again: " + how}, start_hosts({host}, now)};
}

HeadCore::Actions HeadCore::lose(std::size_t host, const std::string& how, Time now) {
  OfHost& one = hosts_[host];
  one.state = State::Lost;
  const bool is_first = !std::exchange(was_lost_, true);
  const std::string name = "host " + one.info.name;
  Actions actions;
  if (!has_started_) {
    if (!how.empty()) actions.push_back(SayLine{name + " cannot take part: " + how + "; nothing was started"});
    if (patience_ == Patience::Endless) {
      patience_ = Patience::UntilOthersFail;
      patience_ends_ = now + kOthersMayFail;
    }
    append(actions, cut_if_settled(now));
    return actions;
  }
  if (!how.empty())
    actions.push_back(SayLine{name + (!one.cannot_begin.empty() ? " cannot take part: " : " is lost: ") + how});
  // A second SIGTERM would cut short the time that the first one gives the workers.
  if (!is_first || all_are(State::Lost) || stop_signal_ != 0) return actions;
  stop_within(settings_.shutdown_timeout + kBeyondTimeout, now);
  append(actions, forgo_missing());
  actions.push_back(SignalHosts{SIGTERM, {}});
  return actions;
}

// Shortens the time that is left to the hosts.
void HeadCore::stop_within(std::chrono::seconds time, Time now) {
  if (is_cut()) return;
  const Time end = now + time;
  if (patience_ == Patience::Endless || end < patience_ends_) patience_ends_ = end;
  patience_ = Patience::UntilCut;
}

// Nothing runs on any host, so a launch agent that does not end by itself gets SIGTERM soon.
HeadCore::Actions HeadCore::cut_before_start(std::chrono::seconds until_term, Time now) {
  if (patience_ > Patience::UntilTerm) return {};
  patience_ = Patience::UntilTerm;
  patience_ends_ = now + until_term;
  return {CutLinks{}};
}

// Gives the job up once each other host is ready or has failed, too.
HeadCore::Actions HeadCore::cut_if_settled(Time now) {
  if (patience_ != Patience::UntilOthersFail) return {};
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    if (is_awaited(i)) return {};
  }
  return cut_before_start(kAfterCutBeforeStart, now);
}

HeadCore::Actions HeadCore::escalate(Time now) {
  if (patience_ == Patience::UntilOthersFail) return cut_before_start(kAfterCutBeforeStart, now);
  if (patience_ == Patience::UntilCut) {
    patience_ = Patience::UntilTerm;
    patience_ends_ = now + kAfterCut;
    was_lost_ = true;
    const auto has_no_end = [](const OfHost& host) { return host.state == State::Running || host.has_link; };
    return {SayLine{"no end from " + names_of(has_no_end) + ": closing the connections"}, CutLinks{}};
  }
  if (patience_ == Patience::UntilTerm) {
    patience_ = Patience::UntilKill;
    patience_ends_ = now + kAfterTerm;
    return {KillLinks{SIGTERM}};
  }
  if (patience_ == Patience::UntilKill) {
    patience_ = Patience::Over;
    return {KillLinks{SIGKILL}};
  }
  return {};
}

HeadCore::Actions HeadCore::look_at_connecting(Time now) {
  Actions actions;
  if (!has_told_ && now >= began_ + kTellAfter) {
    has_told_ = true;
    const auto is_connecting = [](const OfHost& host) { return host.state == State::Connecting; };
    actions.push_back(SayLine{"waiting for " + names_of(is_connecting)});
  }
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    if (!is_awaited(i) || now < awaited_until(i)) continue;
    const bool is_silent = now >= hosts_[i].last_progress + kReadyWithin;
    const std::string how = is_silent ? "no answer in " + rendezvous::to_string(kReadyWithin)
                                      : "it is not ready after " + rendezvous::to_string(kReadyAtMost);
    note_cause(i, how);
    append(actions, lose(i, how, now));
    break;  // which ends the job
  }
  return actions;
}

HeadCore::Actions HeadCore::end_if_over() {
  const bool is_over = std::none_of(hosts_.begin(), hosts_.end(), [](const OfHost& host) { return host.has_link; });
  if (!is_over || has_ended_) return {};
  has_ended_ = true;
  const OfHost* const other = first_without_begin();
  const bool is_start = loss_.empty() && other;
  return {EndHead{exit_code(), has_started_,
                  is_start ? "host " + other->info.name + " cannot take part: " + other->cannot_begin : loss_}};
}

const HeadCore::OfHost* HeadCore::first_without_begin() const {
  const auto first =
      std::find_if(hosts_.begin(), hosts_.end(), [](const OfHost& host) { return !host.cannot_begin.empty(); });
  return first == hosts_.end() ? nullptr : &*first;
}

int HeadCore::exit_code() const {
  rendezvous::Outcome outcome;
  if (const OfHost* const other = first_without_begin()) outcome.first.code = *other->code;
  for (const OfHost& host : hosts_) {  // the first is the first node, which coordinates
    if (outcome.first.success() && !host.is_not_needed) outcome.first.code = host.code.value_or(0);
  }
  const bool are_through = std::all_of(hosts_.begin(), hosts_.end(), [](const OfHost& host) {
    return host.state == State::Ended || host.is_not_needed;
  });
  if (!has_started_ || !are_through) outcome.signal = stop_signal_;
  if (was_lost_ || !are_through) outcome.why = rendezvous::Why::Failed;
  if (!loss_.empty()) outcome.why = rendezvous::Why::NodeLost;
  return rendezvous::exit_code(outcome);
}

std::string HeadCore::names_of(const std::function<bool(const OfHost&)>& wanted) const {
  std::vector<std::string> names;
  for (const OfHost& host : hosts_) {
    if (wanted(host)) names.push_back(host.info.name);
  }
  return (names.size() == 1 ? "host " : "hosts ") + rendezvous::list_of(names, 8);
}

}  // namespace ddp::launcher
