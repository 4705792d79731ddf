// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/hosts/head_core.hpp"

#include <algorithm>
#include <csignal>
#include <map>
#include <utility>

#include "rendezvous/base/text.hpp"
#include "rendezvous/link/messages.hpp"

namespace ddp::launcher {
namespace {

constexpr int kMostStartsTold = 3;  // a host is started again by a branch at each level, once

void append(HeadCore::Actions& to, HeadCore::Actions more) {
  for (HeadAction& action : more) to.push_back(std::move(action));
}

}  // namespace

HeadCore::HeadCore(Settings settings, Time now) : settings_(std::move(settings)), began_(now), patience_ends_(now) {
  for (const HostInfo& info : settings_.hosts)
    hosts_.push_back({.info = info, .last_progress = now, .wanted_since = now});
}

// The coordinator starts no others, since it has enough to do; nor does this machine, which has the head.
HeadCore::Actions HeadCore::begin() {
  std::vector<std::size_t> alone, divided;
  for (std::size_t i = 0; i < hosts_.size(); ++i) (i == 0 || hosts_[i].info.is_local ? alone : divided).push_back(i);
  return carry_out(tree_.begin(alone, divided), began_);
}

HeadCore::Actions HeadCore::ready(std::size_t host, const Hello& hello, Time now) {
  OfHost& one = hosts_[host];
  if (one.state != State::Connecting) return {};  // it greets twice: nothing follows from that
  if (has_started_) return comes_back(host) && may_come_back(host) ? join_again(host, now) : Actions{};
  one.state = State::Ready;
  one.hello = hello;
  one.last_progress = now;
  if (!may_begin()) return cut_if_settled(now);
  Actions actions = carry_out(tree_.ready(host), now);
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
  const std::size_t behind = lose_behind(host);
  const std::string and_behind =
      behind == 0 ? "" : "; with it " + std::to_string(behind) + (behind == 1 ? " host" : " hosts") + " behind it";
  const bool is_expected = (one.state == State::Ended && behind == 0) || one.state == State::Lost || is_cut();
  if (!is_expected) {
    note_cause(host, how);
    actions = lose(host, how + and_behind, now);
  }
  append(actions, end_if_over());
  return actions;
}

HeadCore::Actions HeadCore::starts_again(std::size_t host, const std::string& why, Time now) {
  OfHost& one = hosts_[host];
  if (!may_begin() || one.state == State::Lost) return {};
  one.state = State::Connecting;
  one.last_progress = now;
  if (why.empty() || one.starts_told == kMostStartsTold) return {};
  ++one.starts_told;
  return {SayLine{"starting ddprun on host " + one.info.name + " again: " + why}};
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

// Whether the host is under way. One behind a branch that is not ready is not.
bool HeadCore::is_awaited(std::size_t host) const {
  const std::size_t branch = tree_.branch_of(host);
  return hosts_[host].state == State::Connecting && (branch == host || hosts_[branch].state != State::Connecting);
}

// A branch that lies may tell of progress for ever.
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
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    const OfHost& host = hosts_[i];
    if (host.info.is_local || !tree_.is_from_here(i) || !is_own_address(host.hello.caller_address)) continue;
    return host.hello.caller_address;
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

// Starts again what is lost with the host's link.
HeadCore::Actions HeadCore::bring_back(std::size_t host, const std::string& how, Time now) {
  OfHost& one = hosts_[host];
  std::vector<std::size_t> alone, share;
  for (const std::size_t other : tree_.behind(host)) {
    if (!is_done(other)) share.push_back(other);
  }
  Actions actions;
  if (comes_back(host)) {
    actions = tell_failure(host, how);
    one.try_at = now + kTryAgainEvery;
  } else if (!is_done(host)) {
    alone.push_back(host);
  }
  if (!alone.empty() && !how.empty()) {
    const std::string n = std::to_string(share.size());
    const std::string behind = share.empty() ? "" : "; with it " + n + (n == "1" ? " host" : " hosts") + " behind it";
    actions.push_back(SayLine{"host " + one.info.name + " is lost: " + how + behind + "; starting ddprun there again"});
  }
  for (const auto* some : {&alone, &share}) {
    for (const std::size_t other : *some) append(actions, await_again(other, now));
  }
  if (!alone.empty() || !share.empty()) append(actions, carry_out(tree_.start_again(alone, share), now));
  return actions;
}

HeadCore::Actions HeadCore::await_again(std::size_t host, Time now) {
  OfHost& one = hosts_[host];
  one.state = State::Connecting;
  one.was_started_again = true;
  one.try_at.reset();
  one.last_progress = now;
  return {EndLines{host}};
}

HeadCore::Actions HeadCore::tell_failure(std::size_t host, const std::string& how) {
  if (how.empty() || std::exchange(hosts_[host].has_told_failure, true)) return {};
  return {SayLine{"host " + hosts_[host].info.name + " cannot be started again yet: " + how + "; trying every " +
                  rendezvous::to_string(kTryAgainEvery)}};
}

// The host is ready, and begins its part at once. Behind a branch it has the job's header from there.
HeadCore::Actions HeadCore::join_again(std::size_t host, Time now) {
  OfHost& one = hosts_[host];
  one.state = State::Running;
  one.last_progress = now;
  Actions actions;
  if (std::exchange(one.has_told_failure, false)) actions.push_back(SayLine{"host " + one.info.name + " is back"});
  append(actions, carry_out(tree_.ready(host), now));
  if (tree_.is_from_here(host)) actions.push_back(StartOne{host, begun_->master_addr, begun_->master_port});
  return actions;
}

// Returns when something is to be done about a host that comes back: it is to be started, does not answer, or has not
// ended since it failed. A branch looks after its own.
std::optional<HeadCore::Time> HeadCore::missing_until(std::size_t host) const {
  const OfHost& one = hosts_[host];
  if (!may_come_back(host)) return std::nullopt;
  if (one.ends_by && may_kill(host)) return one.ends_by;
  if (!comes_back(host)) return std::nullopt;
  if (one.try_at) return one.try_at;
  return tree_.is_from_here(host) ? std::optional(one.last_progress + TreeCore::kReachWithin) : std::nullopt;
}

HeadCore::Actions HeadCore::look_at_missing(Time now) {
  Actions actions;
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    const auto until = missing_until(i);
    if (!until || now < *until) continue;
    if (std::exchange(hosts_[i].ends_by, std::nullopt)) {
      actions.push_back(KillLink{i});
    } else if (hosts_[i].try_at) {
      append(actions, await_again(i, now));
      append(actions, carry_out(tree_.start_again({i}, {}), now));
    } else {
      append(actions, tell_failure(i, "no answer in " + rendezvous::to_string(TreeCore::kReachWithin)));
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
    const bool is_killed_here = comes_back(i) && tree_.is_from_here(i);
    if (!is_killed_here) end.hosts.push_back(tree_.branch_of(i));
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

// Returns how the job still comes to its hosts, if it does.
std::optional<HeadCore::Actions> HeadCore::try_again(std::size_t host, const std::string& how, Time now) {
  const std::size_t branch = tree_.branch_of(host);
  if (hosts_[host].state == State::Lost) return std::nullopt;
  if (branch == host) {
    const TreeCore::Actions of_tree = tree_.ended(host, how);
    const auto is_end = [](const TreeAction& action) { return std::holds_alternative<Unreached>(action); };
    if (std::any_of(of_tree.begin(), of_tree.end(), is_end)) return std::nullopt;
    return carry_out(of_tree, now);
  }
  Actions actions;
  if (told_.insert(branch).second) {
    actions.push_back(SayLine{"host " + hosts_[branch].info.name + " cannot start ddprun on host " +
                              hosts_[host].info.name + ", which is tried from here: " + how});
  }
  append(actions, carry_out(tree_.unreached(host, ""), now));
  return actions;
}

HeadCore::Actions HeadCore::carry_out(const TreeCore::Actions& of_tree, Time now) {
  Actions actions;
  for (const TreeAction& action : of_tree) {
    if (const auto* again = std::get_if<StartsAgain>(&action)) {
      append(actions, starts_again(again->host, again->why, now));
    } else if (const auto* hand_on = std::get_if<HandOn>(&action)) {
      for (const std::size_t host : hand_on->hosts) hosts_[host].last_progress = hosts_[host].wanted_since = now;
      actions.push_back(*hand_on);
    } else if (const auto* start = std::get_if<StartHosts>(&action)) {
      for (const std::size_t host : start->hosts) {
        hosts_[host].last_progress = hosts_[host].wanted_since = now;
        hosts_[host].has_link = true;
      }
      actions.push_back(*start);
    }
  }
  return actions;
}

// Returns how many hosts are lost that were reached through this one.
std::size_t HeadCore::lose_behind(std::size_t branch) {
  std::size_t lost = 0;
  for (const std::size_t host : tree_.behind(branch)) {
    if (is_done(host)) continue;
    hosts_[host].state = State::Lost;
    if (!hosts_[host].is_not_needed) ++lost;
  }
  return lost;
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
    const std::size_t branch = tree_.branch_of(i);
    const std::string by = branch == i ? "" : " (host " + hosts_[branch].info.name + " starts it)";
    const bool is_silent = now >= hosts_[i].last_progress + kReadyWithin;
    const std::string how = is_silent ? "no answer in " + rendezvous::to_string(kReadyWithin) + by
                                      : "it is not ready after " + rendezvous::to_string(kReadyAtMost) + by;
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
  if (!loss_.empty()) return rendezvous::kStartAgain;
  if (const OfHost* const other = first_without_begin()) return *other->code;
  for (const OfHost& host : hosts_) {  // the first is the first node, which coordinates
    if (!host.is_not_needed && host.code.value_or(0) != 0) return *host.code;
  }
  const bool are_through = std::all_of(hosts_.begin(), hosts_.end(), [](const OfHost& host) {
    return host.state == State::Ended || host.is_not_needed;
  });
  if (stop_signal_ != 0 && (!has_started_ || !are_through)) return 128 + stop_signal_;
  return was_lost_ || !are_through ? 1 : 0;
}

std::string HeadCore::names_of(const std::function<bool(const OfHost&)>& wanted) const {
  std::vector<std::string> names;
  for (const OfHost& host : hosts_) {
    if (wanted(host)) names.push_back(host.info.name);
  }
  return (names.size() == 1 ? "host " : "hosts ") + rendezvous::list_of(names, 8);
}

}  // namespace ddp::launcher
