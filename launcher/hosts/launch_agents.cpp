// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/hosts/launch_agents.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <set>
#include <utility>

#include "launcher/config/program.hpp"
#include "launcher/hosts/launch_line.hpp"
#include "launcher/process/spawner.hpp"

namespace ddp::launcher {
namespace {

constexpr std::chrono::seconds kStartAgainAfter{1};

}  // namespace

LaunchAgents::LaunchAgents(Settings settings, Events events)
    : settings_(std::move(settings)), events_(std::move(events)), line_(launch_line(own_build())) {}

LaunchAgents::~LaunchAgents() {
  kill_all(SIGKILL);
  for (const auto& [host, link] : links_) {
    if (link.pid() > 0) waitpid(link.pid(), nullptr, 0);
  }
}

void LaunchAgents::start(const std::vector<RankedHost>& hosts) {
  launch(hosts);
  for (const RankedHost& one : hosts) wanted_[one.rank] = {one, Clock::now()};
}

void LaunchAgents::launch(const std::vector<RankedHost>& hosts) {
  std::vector<WorkerCommand> commands;
  std::vector<std::pair<std::size_t, Link>> started;
  for (const auto& [rank, host] : hosts) {
    WorkerCommand command = command_of(host);
    command.environment = settings_.environment;
    command.limits = settings_.limits;
    started.emplace_back(rank, Link(command.arguments[0], events_of(rank))).second.connect(command);
    commands.push_back(std::move(command));
  }
  const Spawned spawned = spawn(std::move(commands));
  for (std::size_t i = 0; i < started.size(); ++i) {
    started[i].second.started(spawned.pids()[i]);
    links_.insert_or_assign(started[i].first, std::move(started[i].second));
  }
}

WorkerCommand LaunchAgents::command_of(const Host& host) const {
  if (is_this_machine(host, settings_.own_name)) {
    return {.path = "/proc/self/exe", .arguments = {"ddprun", kOnHost}};
  }
  std::vector<std::string> words = launch_command(settings_.words, host, line_);
  const auto path = words[0].find('/') != std::string::npos ? std::optional(words[0]) : find_in_path(words[0]);
  if (!path || access(path->c_str(), X_OK) != 0) {
    throw ProgramError(
        127, words[0] + ": not found; it starts ddprun on " + host.name + " (--launch-agent names another program)");
  }
  return {.path = *path, .arguments = std::move(words)};
}

Link::Events LaunchAgents::events_of(std::size_t host) {
  return {.progressed = [this, host] { events_.progressed(host); },
          .frame = [this, host](const rendezvous::Frame& frame) { events_.frame(host, frame); },
          .refused =
              [this, host](const std::string& why) {
                events_.refused(host, why);
                cut(host);
              }};
}

void LaunchAgents::send(std::size_t host, rendezvous::FrameKind kind, std::string_view payload) {
  const auto link = links_.find(host);
  if (link != links_.end() && link->second.is_ready()) link->second.send(kind, payload);
}

void LaunchAgents::beat() {
  for (auto& [host, link] : links_) {
    // If its last word has not gone out yet, a beat would only wait behind it.
    if (link.is_ready() && link.in() < 0) link.send(rendezvous::FrameKind::Beat, "");
  }
}

void LaunchAgents::cut(std::size_t host) {
  const auto link = links_.find(host);
  if (link != links_.end()) link->second.cut();
  const auto waiting = turned_away_.find(host);
  if (waiting != turned_away_.end()) waiting->second.is_cut = true;
}

void LaunchAgents::cut_all() {
  for (auto& [host, link] : links_) link.cut();
  for (auto& [host, waiting] : turned_away_) waiting.is_cut = true;
}

void LaunchAgents::kill(std::size_t host) {
  const auto link = links_.find(host);
  if (link != links_.end()) link->second.kill(SIGKILL);
  cut(host);
}

void LaunchAgents::kill_all(int signal) const {
  for (const auto& [host, link] : links_) link.kill(signal);
}

void LaunchAgents::watch(std::vector<pollfd>& events, bool may_take) const {
  for (const auto& [host, link] : links_) {
    events.push_back({link.in(), POLLOUT, 0});
    events.push_back({may_take ? link.out() : -1, POLLIN, 0});
    events.push_back({link.err(), POLLIN, 0});
  }
}

void LaunchAgents::handle(const std::vector<pollfd>& events) {
  std::set<int> ready;
  for (const pollfd& event : events) {
    if (event.fd >= 0 && event.revents != 0) ready.insert(event.fd);
  }
  if (ready.empty()) return;
  // What is read may have others started, which are not among the events.
  std::vector<std::size_t> hosts;
  for (const auto& [host, link] : links_) hosts.push_back(host);
  for (const std::size_t host : hosts) {
    Link& link = links_.at(host);
    if (link.in() >= 0 && ready.contains(link.in())) link.write_some();
    if (link.out() >= 0 && ready.contains(link.out())) link.read_out();
    if (link.err() >= 0 && ready.contains(link.err())) link.read_err();
  }
}

void LaunchAgents::reap() {
  std::vector<std::pair<std::size_t, std::string>> ended;
  const auto now = Clock::now();
  for (auto& [host, link] : links_) {
    int status = 0;
    if (waitpid(link.pid(), &status, WNOHANG) != link.pid()) continue;
    const std::string how = link.end(status);
    if (link.was_turned_away() && now < wanted_.at(host).since + kTurnedAwayFor) {
      turned_away_[host] = {how, now};
    } else {
      ended.emplace_back(host, how);
    }
  }
  for (const auto& [host, waiting] : turned_away_) links_.erase(host);
  for (const auto& [host, how] : ended) links_.erase(host);
  for (const auto& [host, how] : ended) events_.ended(host, how);
}

void LaunchAgents::tick(Clock::time_point now) {
  std::vector<RankedHost> again;
  std::vector<std::pair<std::size_t, std::string>> ended;
  for (const auto& [host, waiting] : turned_away_) {
    if (waiting.is_cut) {
      ended.emplace_back(host, waiting.how);
    } else if (now >= waiting.at + kStartAgainAfter) {
      again.push_back(wanted_.at(host).host);
    }
  }
  for (const auto& [host, how] : ended) turned_away_.erase(host);
  for (const RankedHost& one : again) turned_away_.erase(one.rank);
  try {
    if (!again.empty()) launch(again);
  } catch (const std::exception& error) {
    for (const RankedHost& one : again) ended.emplace_back(one.rank, error.what());
  }
  for (const auto& [host, how] : ended) events_.ended(host, how);
}

}  // namespace ddp::launcher
