// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/coordination/sidecars.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <utility>
#include <variant>

#include "launcher/coordination/membership.hpp"
#include "launcher/local/agent_socket.hpp"
#include "launcher/process/limits.hpp"
#include "rendezvous/base/descriptor_message.hpp"
#include "rendezvous/base/error.hpp"
#include "rendezvous/base/exit_code.hpp"
#include "rendezvous/base/file_limit.hpp"
#include "rendezvous/base/random_id.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/etcd/client.hpp"
#include "rendezvous/journal/file_journal.hpp"
#include "rendezvous/journal/memory_journal.hpp"
#include "rendezvous/net/addresses/own_address.hpp"
#include "rendezvous/wire/message.hpp"

namespace ddp::launcher {

namespace asio = rendezvous::asio;
using rendezvous::Descriptor;
using rendezvous::RecordNode;
using rendezvous::to_frame;

namespace {

// At the end of a job the coordinator removes its record, which takes it a moment, and gives up by itself a little
// earlier than this.
constexpr std::chrono::milliseconds kReleasesWithin{5500}, kRevokesWithin{1000};
// What a coordinator that was given up waits for all agents to link.
constexpr std::chrono::seconds kGivenUpStaysFor{3};
constexpr std::chrono::seconds kBeyondTimeout{30};  // for stacks, last lines and killing after --shutdown-timeout
constexpr char kCannotPair[] = "cannot make a pair of sockets";
// Larger than any round, so that agents take the end that this one tells for news.
constexpr int kAfterAllRounds = 1 << 30;

// Returns where the journal is, or would be; empty: this machine has no folder for it.
std::string journal_path(const std::string& id) { return agent_socket_folder() + "/journal-" + id; }

// ---- Messages to the agent ----

// A line for the user, or news of etcd: it does not answer now (empty: it does again), or cannot be used.
struct Note {
  static constexpr rendezvous::FrameKind kKind = rendezvous::FrameKind::SidecarNote;
  enum class About { Warning, Trouble, Refused };
  About about = About::Warning;
  std::string text;
};
struct NodeNews : RecordNode {
  static constexpr rendezvous::FrameKind kKind = rendezvous::FrameKind::NodeNews;
};
struct LeaderNews : Leader {
  static constexpr rendezvous::FrameKind kKind = rendezvous::FrameKind::LeaderNews;
};

template <typename Json>
void members(Json& json, Note& note) {
  json.word("about", note.about, {"warning", "trouble", "refused"}).must("text", note.text);
}
template <typename Json>
void members(Json& json, NodeNews& node) {
  json.word("what", node.what, {"joined", "refused", "left"}).must("host", node.host);
  json.must("address", node.address).must("why", node.why);
}
template <typename Json>
void members(Json& json, LeaderNews& leader) {
  json.must("epoch", leader.epoch).must("node", leader.note.node).must("host", leader.note.host);
  json.must("addresses", leader.note.addresses).must("port", leader.note.port);
}

rendezvous::JobRecord given_up(const std::string& node, const std::string& epoch, const std::string& why) {
  rendezvous::Directive exit;
  exit.kind = rendezvous::Directive::Kind::Exit;
  exit.epoch = epoch;
  exit.round = kAfterAllRounds;
  exit.why = rendezvous::Why::CoordinatorLost;
  exit.exit_code = rendezvous::exit_code({.why = exit.why});
  exit.reason = why;
  exit.can_look = true;
  rendezvous::JobRecord record;
  record.node = node;  // the leader does not change
  record.phase = static_cast<int>(rendezvous::CoordinatorCore::Phase::Over);
  record.round = kAfterAllRounds;
  record.exit = exit;
  return record;
}

rendezvous::CoordinatorConfig coordinator_config(const LaunchConfig& launch, const std::string& node,
                                                 const std::string& epoch, bool gives_up) {
  rendezvous::CoordinatorConfig config = {.job = launch.job,
                                          .epoch = epoch,
                                          .node = node,
                                          .host = rendezvous::host_name(),
                                          .own_is_here = false,
                                          .keeps_record = !gives_up,
                                          .join_timeout = launch.timeouts.join,
                                          .last_call = launch.timeouts.last_call,
                                          .lost_after = launch.timeouts.lost,
                                          .stops_within = launch.shutdown_timeout + kBeyondTimeout,
                                          .max_unheard_links = rendezvous::most_silent_links(),
                                          .seat_order = rendezvous::SeatOrder(launch.host_places)};
  if (gives_up) config.stays_over_for = kGivenUpStaysFor;
  return config;
}

}  // namespace

Sidecars::Sidecars(const LaunchConfig& config)
    : config_(config),
      id_(rendezvous::random_id()),
      agent_(rendezvous::make_socket_pair(SOCK_SEQPACKET, kCannotPair)),
      store_(rendezvous::make_socket_pair(SOCK_SEQPACKET, kCannotPair)),
      supervisor_({{"ddp-coordinator", [this](const Supervisor::Life& life) { return run_coordinator(life); }},
                   {"ddp-store", [this](const Supervisor::Life& life) { return run_store(life); }}}) {}

void Sidecars::clear() {
  if (config_.etcd) return hand_over();
  const std::string path = journal_path(id_);
  unlink(path.c_str());
  unlink((path + ".new").c_str());
}

// A job that has ended in order is released by its coordinator, which ends then.
void Sidecars::finish() {
  if (candidacy_->lease()) supervisor_.wait_for_first(kReleasesWithin);
}

// If the coordinator has not released the lease, the job goes on, and another node can lead at once. A process of its
// own asks for that, since it needs a thread to look up names.
void Sidecars::hand_over() {
  const auto lease = candidacy_->lease();
  if (!lease) return;
  const pid_t asking = fork();
  if (asking == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    revoke(*lease);
    _exit(0);
  }
  if (asking > 0) waitpid(asking, nullptr, 0);
  candidacy_->release();
}

void Sidecars::revoke(const Candidacy::Inheritance& lease) const {
  try {
    rendezvous::revoke_lease(etcd_settings(*config_.etcd), lease.lease, kRevokesWithin);
  } catch (const rendezvous::Error&) {
    // It ends by itself.
  }
}

// ---- The plan ----

template <typename Json>
void members(Json& json, Sidecars::Plan& plan) {
  json.must("epoch", plan.epoch).must("addresses", plan.addresses);
}

void Sidecars::start(const Plan& plan, const rendezvous::Listeners& listeners, int kept_open) const {
  std::vector<int> descriptors;
  for (const Descriptor& socket : listeners.sockets) descriptors.push_back(socket.get());
  if (kept_open >= 0) descriptors.push_back(kept_open);
  if (!supervisor_.ask(rendezvous::json_of(plan), descriptors)) {
    rendezvous::system_error("cannot ask the keeper for a coordinator");
  }
}

Sidecars::Plan Sidecars::plan() const { return rendezvous::read_json<Plan>(supervisor_.text()).value_or(Plan()); }

rendezvous::Listeners Sidecars::listeners() const {
  rendezvous::Listeners listeners;
  for (const Descriptor& each : supervisor_.descriptors()) {
    const std::uint16_t port = rendezvous::port_of(each.get());
    if (port == 0) continue;  // the file that is kept open
    listeners.port = port;
    listeners.sockets.emplace_back(fcntl(each.get(), F_DUPFD_CLOEXEC, 0));
  }
  return listeners;
}

// ---- In the agent ----

Descriptor Sidecars::link() const {
  auto pair = rendezvous::try_socket_pair(SOCK_STREAM);
  if (!pair) return Descriptor();
  if (!rendezvous::send_with_descriptors(agent_.left.get(), "link", {pair->right.get()})) return Descriptor();
  return std::move(pair->left);
}

void Sidecars::ask_for_leader() const { rendezvous::send_with_descriptors(agent_.left.get(), "who leads", {}); }

std::unique_ptr<rendezvous::MessageChannel> Sidecars::read_lines(asio::io_context& io, Lines lines) const {
  return std::make_unique<rendezvous::MessageChannel>(
      io, agent_.left.get(), [lines = std::move(lines)](const rendezvous::DescriptorMessage& message) {
        const auto read = rendezvous::read_datagram<Note, NodeNews, LeaderNews>(message.text);
        if (const auto* node = std::get_if<NodeNews>(&read)) return lines.record(*node);
        if (const auto* leader = std::get_if<LeaderNews>(&read)) return lines.leader(*leader);
        const auto* const note = std::get_if<Note>(&read);
        if (!note) return;
        if (note->about == Note::About::Warning) lines.warning(note->text);
        if (note->about == Note::About::Trouble) lines.trouble(note->text);
        if (note->about == Note::About::Refused) lines.refused(note->text);
      });
}

// ---- In their processes ----

// Any thread may call these two. A message for which there is no room is lost, as on a console that nobody reads.
void Sidecars::tell(const std::string& frame) const {
  rendezvous::send_with_descriptors(agent_.right.get(), frame, {});
}
void Sidecars::warn(const std::string& line) const {
  tell(to_frame(Note{Note::About::Warning, line.substr(0, rendezvous::kMaxChannelWords)}));
}

// Where there is no place for a file, the first coordinator goes on with what it has in its memory. A later one needs
// what those before have written: without it, it would know nothing of the job and refuse every agent.
std::unique_ptr<rendezvous::Journal> Sidecars::make_journal(asio::io_context& io, const std::string& epoch,
                                                            bool must_exist) const {
  using Begins = rendezvous::FileJournal::Begins;
  const std::string path = journal_path(id_);
  try {
    make_agent_socket_folder();
    return std::make_unique<rendezvous::FileJournal>(io, path, epoch,
                                                     must_exist ? Begins::WhereItWasLeft : Begins::New);
  } catch (const rendezvous::Error& error) {
    if (must_exist) throw;
    unlink(path.c_str());  // the disk may have become full while it was made
    warn("the coordinator keeps no journal, so the job ends if it is killed: " + std::string(error.what()));
    return std::make_unique<rendezvous::MemoryJournal>(io, epoch);
  }
}

int Sidecars::run_store(const Supervisor::Life& life) {
  signal(SIGPIPE, SIG_IGN);
  raise_limits();
  // One connection from each worker and each agent.
  const auto connections = static_cast<rlim_t>(config_.job.max_nodes) * static_cast<rlim_t>(config_.workers + 1);
  reserve_files(0, 0, connections, config_.job.max_nodes);
  const int clients_before = clients_->exchange(0);
  rendezvous::LocalStores::Options options = {.addresses = plan().addresses,
                                              .has_several_nodes = true,
                                              .is_elastic = config_.job.min_nodes < config_.job.max_nodes,
                                              .hosts_workers_store = config_.workers_share_store};
  options.server = rendezvous::server_options(config_.any_user, [this](const std::string& line) { warn(line); });
  options.server.clients = clients_.get();
  supervisor_.say_up();
  rendezvous::serve_stores({.channel = store_.left.get(),
                            .front = listeners(),
                            .options = std::move(options),
                            .why_before = life.why_before,
                            .clients_before = clients_before});
  return 1;
}

int Sidecars::run_coordinator(const Supervisor::Life& life) {
  signal(SIGPIPE, SIG_IGN);
  raise_limits();
  const bool gives_up = !life.gives_up_since.empty();
  if (gives_up && config_.etcd) return watch(life.gives_up_since);
  const Plan plan = this->plan();
  const bool is_given = config_.job.node_ranks_given;
  rendezvous::Coordinator::Options options;
  options.addresses = plan.addresses;
  options.job = rendezvous::job_tag(config_.meeting_file.empty() ? config_.job.id : plan.epoch);
  options.hosts_workers_store = config_.workers_share_store;
  options.membership = find_membership(config_).membership;
  options.any_user = config_.any_user;
  options.master_addr = is_given ? config_.master_addr : config_.local_addr;
  options.log = [this](const std::string& line) { warn(line); };
  options.record = [this](const RecordNode& node) { tell(to_frame(NodeNews{node})); };
  options.stores = [this](asio::io_context& io, rendezvous::RemoteStores::Callbacks callbacks) {
    return std::make_unique<rendezvous::RemoteStores>(io, store_.right.get(), std::move(callbacks));
  };
  std::unique_ptr<Candidate> candidate;
  std::atomic<rendezvous::Coordinator*> serving = nullptr;
  if (gives_up) {
    options.begins_with = given_up(id_, plan.epoch, life.gives_up_since);
  } else {
    options.journal = [&](asio::io_context& io) { return make_journal(io, plan.epoch, life.was_up); };
  }
  options.on_claimed = [this] { supervisor_.say_up(); };
  options.on_lost = [this](const std::string& why) {
    supervisor_.say_why(why);
    _exit(1);
  };
  if (config_.etcd) {
    candidate = make_candidate([&serving] {
      if (rendezvous::Coordinator* const coordinator = serving) coordinator->stand_by();
    });
    use_etcd(*candidate, options);
  }
  if (!life.why_before.empty() && !gives_up && !config_.etcd) {
    warn("the coordinator was started again: " + life.why_before);
  }
  rendezvous::Coordinator coordinator(coordinator_config(config_, id_, plan.epoch, gives_up), std::move(options));
  serving = &coordinator;
  asio::io_context io{1};
  const rendezvous::MessageChannel own(io, agent_.right.get(), [&](rendezvous::DescriptorMessage message) {
    if (!message.descriptors.empty()) return coordinator.link_own(std::move(message.descriptors.front()));
    if (candidate) candidate->say_again();
  });
  io.run();
  return 1;
}

// ---- With etcd ----

std::unique_ptr<Candidate> Sidecars::make_candidate(std::function<void()> stand_by) {
  LeaderNote note{.node = id_, .host = rendezvous::host_name(), .addresses = {}, .port = listeners().port};
  note.addresses = rendezvous::offered_addresses(config_.local_addr);
  if (note.addresses.size() > kMostNoteAddresses) note.addresses.resize(kMostNoteAddresses);
  return std::make_unique<Candidate>(config_, *candidacy_.get(), std::move(note),
                                     Candidate::Callbacks{.leader =
                                                              [this](const Leader& leader) {
                                                                supervisor_.say_up();
                                                                tell(to_frame(LeaderNews{leader}));
                                                              },
                                                          .stand_by = std::move(stand_by),
                                                          .trouble =
                                                              [this](const std::string& why) {
                                                                tell(to_frame(Note{Note::About::Trouble, why}));
                                                              },
                                                          .warning = [this](const std::string& line) { warn(line); }});
}

void Sidecars::use_etcd(Candidate& candidate, rendezvous::Coordinator::Options& options) {
  options.job = rendezvous::job_tag(config_.job.id);
  options.journal = [&candidate](asio::io_context& io) { return candidate.make_journal(io, Candidate::Wants::ToLead); };
  options.own_epoch = [this] { return candidacy_->obeyed(); };
  options.on_claimed = [&candidate] { candidate.claimed(); };
  options.on_done = [] { _exit(Supervisor::kDone); };  // clear() revokes a lease that may be left
  options.on_lost = [this, &candidate](const std::string& why) {
    if (!candidate.has_begun()) return tell(to_frame(Note{Note::About::Refused, why}));  // the agent says so, and ends
    candidacy_->release();
    warn("this node does not coordinate any more: " + why);
    _exit(Supervisor::kAgain);
  };
}

// This node coordinates no more, but its agent has to know who does.
int Sidecars::watch(const std::string& why) {
  if (const auto lease = candidacy_->lease()) revoke(*lease);
  candidacy_->release();
  warn("this node cannot coordinate any more: " + why);
  asio::io_context io{1};
  const auto candidate = make_candidate([] {});
  const auto journal = candidate->make_journal(io, Candidate::Wants::ToWatch);
  const rendezvous::MessageChannel own(io, agent_.right.get(),
                                       [&](const rendezvous::DescriptorMessage&) { candidate->say_again(); });
  journal->claim({.on_claimed = [](const rendezvous::JournalClaim&) {},
                  .on_kept = [](std::uint64_t) {},
                  .on_lost =
                      [this](const std::string& reason) {
                        tell(to_frame(Note{Note::About::Trouble, reason}));
                      }});
  io.run();
  return 1;
}

}  // namespace ddp::launcher
