// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/coordination/parts.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <new>
#include <sstream>
#include <utility>

#include "launcher/coordination/membership.hpp"
#include "launcher/local/agent_socket.hpp"
#include "launcher/process/limits.hpp"
#include "rendezvous/base/descriptor_message.hpp"
#include "rendezvous/base/error.hpp"
#include "rendezvous/base/file_limit.hpp"
#include "rendezvous/base/random_id.hpp"
#include "rendezvous/coordinator/coordinator.hpp"
#include "rendezvous/journal/file_journal.hpp"
#include "rendezvous/journal/memory_journal.hpp"

namespace ddp::launcher {

namespace asio = rendezvous::asio;
using rendezvous::Descriptor;
using rendezvous::RecordNode;

namespace {

// A line begins with a letter: a warning, or a node's record with fields up to a NUL.
constexpr char kWarning = 'W', kNode = 'N';
// What a coordinator that was given up waits for all agents to link.
constexpr std::chrono::seconds kGivenUpStaysFor{3};
// Larger than any round, so that agents take the end that this one tells for news.
constexpr int kAfterAllRounds = 1 << 30;

[[noreturn]] void fail(const std::string& what) {
  throw rendezvous::Error(rendezvous::ErrorCode::System, what + ": " + strerror(errno));
}

// Returns where the journal is, or would be; empty: this machine has no folder for it.
std::string journal_path(const std::string& id) { return agent_socket_folder() + "/journal-" + id; }

rendezvous::JobRecord given_up(const std::string& epoch, const std::string& why) {
  rendezvous::Directive exit;
  exit.kind = rendezvous::Directive::Kind::Exit;
  exit.epoch = epoch;
  exit.round = kAfterAllRounds;
  exit.exit_code = rendezvous::kStartAgain;
  exit.reason = why;
  exit.can_look = true;
  rendezvous::JobRecord record;
  record.phase = static_cast<int>(rendezvous::CoordinatorCore::Phase::Over);
  record.round = kAfterAllRounds;
  record.exit = exit;
  return record;
}

}  // namespace

Parts::Pair Parts::make_pair() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) fail("cannot make a pair of sockets");
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

Parts::Parts(const LaunchConfig& config)
    : config_(config),
      journal_id_(rendezvous::random_id()),
      links_(make_pair()),
      own_(make_pair()),
      lines_(make_pair()),
      siblings_({{"ddp-coordinator", [this](const Siblings::Life& life) { return run_coordinator(life); }},
                 {"ddp-store", [this](const Siblings::Life& life) { return run_store(life); }}}) {
  void* const memory = mmap(nullptr, sizeof *clients_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail("cannot make shared memory");
  clients_ = new (memory) std::atomic<int>(0);
}

Parts::~Parts() { munmap(clients_, sizeof *clients_); }

void Parts::remove_files() const {
  const std::string path = journal_path(journal_id_);
  unlink(path.c_str());
  unlink((path + ".new").c_str());
}

// ---- In the agent ----

void Parts::start(const Plan& plan, const rendezvous::Listeners& listeners, int held) const {
  std::string text = plan.epoch + "\n" + std::to_string(listeners.sockets.size()) + "\n";
  for (const std::string& address : plan.addresses) text += address + "\n";
  std::vector<int> descriptors;
  for (const Descriptor& socket : listeners.sockets) descriptors.push_back(socket.get());
  if (held >= 0) descriptors.push_back(held);
  if (!siblings_.ask(text, descriptors)) fail("cannot ask the keeper for a coordinator");
}

Parts::Plan Parts::plan() const {
  std::istringstream text(siblings_.text());
  Plan plan;
  std::string line;
  std::getline(text, plan.epoch);
  std::getline(text, line);  // the number of listeners
  while (std::getline(text, line)) plan.addresses.push_back(line);
  return plan;
}

Descriptor Parts::link() const {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return Descriptor();
  const Descriptor coordinators(ends[0]);
  Descriptor own(ends[1]);
  if (!rendezvous::send_with_descriptors(own_.left.get(), "link", {coordinators.get()})) return Descriptor();
  return own;
}

std::unique_ptr<rendezvous::MessageChannel> Parts::read_lines(asio::io_context& io, Lines lines) const {
  return std::make_unique<rendezvous::MessageChannel>(
      io, lines_.right.get(), [lines = std::move(lines)](const rendezvous::DescriptorMessage& message) {
        const std::string text = message.text.substr(1);
        if (message.text.front() == kWarning) return lines.warning(text);
        std::vector<std::string> fields;
        std::istringstream rest(text);
        for (std::string field; std::getline(rest, field, '\0');) fields.push_back(field);
        fields.resize(4);
        if (fields[0].size() != 1) return;
        lines.record({static_cast<RecordNode::What>(fields[0][0] - '0'), fields[1], fields[2], fields[3]});
      });
}

// ---- In their processes ----

// Writes a line for the user; any thread may. A line for which there is no room is lost, as on a console that nobody
// reads.
void Parts::tell(const std::string& line) const {
  rendezvous::send_with_descriptors(lines_.left.get(), line.substr(0, rendezvous::kMaxChannelText), {});
}

rendezvous::Listeners Parts::listeners() const {
  std::istringstream text(siblings_.text());
  std::string line;
  std::getline(text, line);
  std::size_t count = 0;
  text >> count;
  rendezvous::Listeners listeners;
  for (std::size_t i = 0; i < count && i < siblings_.descriptors().size(); ++i) {
    listeners.sockets.emplace_back(fcntl(siblings_.descriptors()[i].get(), F_DUPFD_CLOEXEC, 0));
  }
  if (!listeners.sockets.empty()) listeners.port = rendezvous::port_of(listeners.sockets.front().get());
  return listeners;
}

// Where there is no folder for a file, the first coordinator goes on with what it has in its memory.
std::unique_ptr<rendezvous::Journal> Parts::make_journal(asio::io_context& io, const std::string& epoch,
                                                         bool is_first) const {
  try {
    make_agent_socket_folder();
  } catch (const rendezvous::Error& error) {
    if (!is_first) throw;
    tell(kWarning + std::string("the coordinator keeps no journal, so the job ends if it is killed: ") + error.what());
    return std::make_unique<rendezvous::MemoryJournal>(io, epoch);
  }
  return std::make_unique<rendezvous::FileJournal>(io, journal_path(journal_id_), epoch);
}

int Parts::run_store(const Siblings::Life& life) {
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
  options.server =
      rendezvous::server_options(config_.any_user, [this](const std::string& line) { tell(kWarning + line); });
  options.server.clients = clients_;
  siblings_.say_up();
  rendezvous::serve_stores({.channel = links_.left.get(),
                            .front = listeners(),
                            .options = std::move(options),
                            .why_before = life.why_before,
                            .clients_before = clients_before});
  return 1;
}

int Parts::run_coordinator(const Siblings::Life& life) {
  signal(SIGPIPE, SIG_IGN);
  raise_limits();
  const Plan plan = this->plan();
  const bool is_given = config_.job.node_ranks_given;
  rendezvous::Coordinator::Options options;
  options.addresses = plan.addresses;
  options.job = rendezvous::job_tag(config_.meeting_file.empty() ? config_.job.id : plan.epoch);
  options.hosts_workers_store = config_.workers_share_store;
  options.membership = find_membership(config_).membership;
  options.any_user = config_.any_user;
  options.master_addr = is_given ? config_.master_addr : config_.local_addr;
  options.log = [this](const std::string& line) { tell(kWarning + line); };
  options.record = [this](const RecordNode& node) {
    const std::string what = std::to_string(static_cast<int>(node.what));
    tell(kNode + what + '\0' + node.host + '\0' + node.address + '\0' + node.why);
  };
  options.stores = [this](asio::io_context& io, rendezvous::RemoteStores::Callbacks callbacks) {
    return std::make_unique<rendezvous::RemoteStores>(io, links_.right.get(), std::move(callbacks));
  };
  const bool gives_up = !life.gives_up_since.empty();
  if (gives_up) {
    options.begins_with = given_up(plan.epoch, life.gives_up_since);
  } else {
    options.journal = [&](asio::io_context& io) { return make_journal(io, plan.epoch, life.number == 1); };
  }
  options.on_claimed = [this] { siblings_.say_up(); };
  options.on_lost = [this](const std::string& why) {
    siblings_.say_why(why);
    _exit(1);
  };
  rendezvous::CoordinatorConfig config = {.job = config_.job,
                                          .epoch = plan.epoch,
                                          .own_is_here = false,
                                          .keeps_record = !gives_up,
                                          .join_timeout = config_.timeouts.join,
                                          .last_call = config_.timeouts.last_call,
                                          .lost_after = config_.timeouts.lost,
                                          .max_unheard_links = rendezvous::most_silent_links(),
                                          .seat_order = rendezvous::SeatOrder(config_.host_places)};
  if (gives_up) config.stays_over_for = kGivenUpStaysFor;
  if (life.number > 1 && !gives_up) tell(kWarning + ("the coordinator was started again: " + life.why_before));
  rendezvous::Coordinator coordinator(config, std::move(options));
  asio::io_context io{1};
  const rendezvous::MessageChannel own(io, own_.right.get(), [&](rendezvous::DescriptorMessage message) {
    if (!message.descriptors.empty()) coordinator.link_own(std::move(message.descriptors.front()));
  });
  io.run();
  return 1;
}

}  // namespace ddp::launcher
