// SPDX-License-Identifier: BSD-3-Clause
#include "tests/integration/etcd/cluster.hpp"

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "rendezvous/base/random_id.hpp"

namespace ddp::testing {

using rendezvous::EtcdAnswer;
using rendezvous::EtcdOutcome;
using rendezvous::EtcdRefusal;

namespace {

constexpr char kCannotBe[] = "ended with 77";

constexpr char kAddresses[] = "10.7.0.20";  // and a number: a host has at most 10.7.0.199

// Gives the host an address for each member.
Words with_addresses(const Hosts& hosts, int host, Words options) {
  for (const char* member : {"1", "2", "3"}) {
    const Result added =
        run(hosts.on(host, {"ip", "addr", "add", std::string(kAddresses) + member + "/24", "dev", "eth0"}));
    if (added.code != 0) throw std::runtime_error(added.err);
  }
  options.insert(options.end(), {"--addresses", kAddresses});
  return options;
}

std::string without_newline(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

}  // namespace

EtcdCluster::EtcdCluster() : folder_(ETCD_CLUSTER) {
  if (!std::filesystem::exists(file("endpoints"))) skip("there is no etcd; scripts/clusters/etcd says why");
}

EtcdCluster::EtcdCluster(Words before, const Words& options) : before_(std::move(before)), own_(std::in_place) {
  folder_ = *own_ / "etcd";
  Words up = {"bash", "-c", R"("$@"; echo "ended with $?"; exec sleep infinity)", "keeper", ETCD_SCRIPT, "up", folder_};
  up.insert(up.end(), {"--until-end-of", std::to_string(getpid())});
  up.insert(up.end(), options.begin(), options.end());
  keeper_.emplace(command(up));
  keeper_->wait_for("ended with");
  if (count(keeper_->out(), "ended with 0") == 1) return;
  if (count(keeper_->out(), kCannotBe) == 1) skip(keeper_->err());
  throw std::runtime_error(keeper_->out() + keeper_->err());
}

EtcdCluster::EtcdCluster(const Hosts& hosts, int host, const Words& options)
    : EtcdCluster(hosts.on(host, {}), with_addresses(hosts, host, options)) {}

EtcdCluster::~EtcdCluster() {
  if (own_) run(command({ETCD_SCRIPT, "down", folder_}));
}

Words EtcdCluster::command(const Words& words) const {
  Words all = before_;
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

std::string EtcdCluster::operator()(const std::string& order, const Words& more) const {
  const std::size_t blank = order.find(' ');
  Words words = {ETCD_SCRIPT, order.substr(0, blank), folder_};
  if (blank != std::string::npos) words.push_back(order.substr(blank + 1));
  words.insert(words.end(), more.begin(), more.end());
  const Result result = run(command(words));
  if (result.code != 0) throw std::runtime_error(order + ": " + result.out + result.err);
  return without_newline(result.out);
}

std::string EtcdCluster::endpoints() const { return without_newline(read_file(file("endpoints"))); }

rendezvous::EtcdSettings EtcdCluster::settings(std::chrono::milliseconds deadline) const {
  rendezvous::EtcdSettings settings;
  settings.endpoints = rendezvous::parse_etcd_endpoints(endpoints());
  settings.deadline = deadline;
  return settings;
}

void EtcdLoop::until(const std::function<bool()>& is_true, const std::string& what) {
  const auto deadline = std::chrono::steady_clock::now() + kDeadline;
  while (!is_true()) {
    if (std::chrono::steady_clock::now() > deadline) throw std::runtime_error("it does not come: " + what);
    io.run_one_for(std::chrono::milliseconds(5));
  }
}

EtcdOutcome EtcdLoop::ask(rendezvous::EtcdClient& client, rendezvous::EtcdRequest request) {
  std::optional<EtcdOutcome> came;
  client.ask(std::move(request), [&came](EtcdOutcome outcome) { came = std::move(outcome); });
  until([&came] { return came.has_value(); }, "an outcome");
  return *came;
}

EtcdAnswer EtcdLoop::answer(rendezvous::EtcdClient& client, rendezvous::EtcdRequest request) {
  EtcdOutcome outcome = ask(client, std::move(request));
  if (const auto* refusal = std::get_if<EtcdRefusal>(&outcome)) throw std::runtime_error(refusal->why);
  return std::get<EtcdAnswer>(outcome);
}

EtcdCandidate::EtcdCandidate(EtcdLoop& loop, rendezvous::EtcdSettings settings, rendezvous::LeaseConfig config)
    : loop_(loop) {
  journal.emplace(
      loop.io, std::move(settings), std::move(config),
      rendezvous::EtcdJournal::Watchers{.on_other = [this](std::int64_t, const std::string& note) { other = note; },
                                        .on_doubt = [this](const std::string&) { ++doubts; },
                                        .on_sure = [this] { ++sure; },
                                        .on_trouble = [this](const std::string& why) { troubles.push_back(why); }});
  journal->claim({.on_claimed = [this](rendezvous::JournalClaim claimed) { claim = std::move(claimed); },
                  .on_kept = [this](std::uint64_t number) { kept = number; },
                  .on_lost = [this](const std::string& why) { lost = why; }});
}

void EtcdCandidate::keep(const std::string& content) {
  journal->write(++written, content);
  loop_.until([this] { return kept == written || !lost.empty(); }, "that it is kept: " + words());
  if (!lost.empty()) throw std::runtime_error(lost);
}

std::string EtcdCandidate::words() const {
  std::string all = "lost: " + lost + "; other: " + other;
  for (const std::string& trouble : troubles) all += "; " + trouble;
  return all;
}

rendezvous::LeaseConfig lease_of_own_job() {
  rendezvous::LeaseConfig config{.job = "test/" + rendezvous::random_id(), .self = rendezvous::random_id()};
  config.note = "10.0.0.1:4711";
  return config;
}

rendezvous::LeaseConfig rival_of(rendezvous::LeaseConfig config) {
  config.self = rendezvous::random_id();
  config.note = "10.0.0.2:4711";
  return config;
}

}  // namespace ddp::testing
