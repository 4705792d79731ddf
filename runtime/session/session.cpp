// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/session/session.hpp"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <utility>

#include "collectives/backend_loader.hpp"
#include "collectives/host/backend.hpp"
#include "rendezvous/base/error.hpp"
#include "rendezvous/base/text_stream.hpp"
#include "rendezvous/store/store.hpp"
#include "rendezvous/worker_contract.hpp"
#include "runtime/collective/make_operation.hpp"
#include "runtime/device/cuda_backend.hpp"
#include "runtime/diagnosis/flight_recorder.hpp"
#include "runtime/session/reachable_address.hpp"

namespace ddp::runtime {
namespace {

using collectives::BackendNames;
using collectives::parse_backend_names;
namespace contract = rendezvous::contract;
using rendezvous::Error;
using rendezvous::invalid_argument;
using std::chrono::milliseconds;

constexpr char kWorld[] = "world";
constexpr std::size_t kLongestList = 1000;  // longest list of members in a key of the store

// A peer that dies while this process writes to it must cause an error, not end this process. libddp's own writes see
// to that, those of Gloo and other libraries may not. A handler, unlike SIG_IGN, ends where the program starts a
// command.
void survive_sigpipe() {
  struct sigaction now = {};
  if (sigaction(SIGPIPE, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) return;
  now.sa_handler = [](int) {};
  now.sa_flags = SA_RESTART;
  sigaction(SIGPIPE, &now, nullptr);
}

// Returns the members as part of a key. Two long lists with the same key are told apart when their members meet.
std::string key_of(const Members& members) {
  const std::string list = to_string(members);
  if (list.size() <= kLongestList) return list;
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : list) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return list.substr(0, 100) + "..." + std::to_string(hash);
}

}  // namespace

// Registers a group that is being formed while this lives, so that a report of a failure ends the forming.
class Session::RegisteredForming {
 public:
  RegisteredForming(Session& session, GroupForming& forming) : session_(session), forming_(forming) {
    {
      const std::lock_guard lock(session_.mutex_);
      session_.formings_.push_back(&forming_);
    }
    // A failure may have been reported before.
    const auto failure =
        session_.failures_ != nullptr ? session_.failures_->wait_for_failure(milliseconds(0)) : std::nullopt;
    if (failure && session_.ends(*failure, forming_.plan().members)) forming_.end(failure->text);
  }
  ~RegisteredForming() {
    const std::lock_guard lock(session_.mutex_);
    std::erase(session_.formings_, &forming_);
  }
  RegisteredForming(const RegisteredForming&) = delete;
  RegisteredForming& operator=(const RegisteredForming&) = delete;

 private:
  Session& session_;
  GroupForming& forming_;
};

Session::Session(const SessionOptions& options, const Environment& environment)
    : info_(read_worker_info(options.arguments, environment)),
      options_(options),
      debug_(read_debug_level(environment)),
      flight_recorder_size_(flight_recorder_size(environment)) {
  // Check backends and the device first, so that errors appear before other ranks wait for this one.
  if (info_.world_size > 1 && !options.backends.cpu.empty()) collectives::load_backend(options.backends.cpu);
  device_for(options.backends);
  names_.insert(kWorld);
  join(environment);
}

// Joins the job, then starts what watches and records it.
void Session::join(const Environment& environment) {
  store_ = std::make_unique<JobStore>(info_, JobStore::Timeouts{options_.init_timeout, options_.timeout});
  // A rank that is alone has no peer that could fail; one that stays hears from the launcher that others have come.
  if (info_.world_size > 1 || stays_) watch_for_failures(environment);
  if (info_.world_size > 1 && debug_ == DebugLevel::Detail) {
    call_log_ = std::make_unique<CallLog>(store_->connect_again(), store_->key("calls/"), info_.rank);
  }
  const std::string error_file = environment(contract::kErrorFile).value_or("");
  place_flight_recorder(error_file.empty() ? "" : contract::flight_recorder_file(error_file, info_.rank), info_.rank,
                        info_.world_size);
  form_world(environment);
}

void Session::watch_for_failures(const Environment& environment) {
  if (!info_.place.launcher_hosts) return;
  failures_ = std::make_unique<FailureWatch>(
      store_->connect_again(), [this](const ReportedFailure& failure) { on_failure(failure); },
      environment(contract::kLivenessWord).value_or(""));
}

Session::~Session() {
  for (auto group = groups_.rbegin(); group != groups_.rend(); ++group) (*group)->operations->drain();
  const bool in_good_order = world_ != nullptr && world().alive();
  failures_.reset();
  while (!groups_.empty()) groups_.pop_back();  // closes connections: ranks that still wait for this one fail now
  if (store_ != nullptr) store_->leave(in_good_order);
}

// ---- Groups ----

// Returns the prefix of the group's keys in the store.
std::string Session::key_prefix(const Group& group) const {
  return store_->key(group.id == kWorld ? "" : "groups/" + group.id + "/");
}

GroupPlan Session::plan(const Group& group) {
  if (group.members.size() > 1 && to_string(group.backends) != collectives::host_backend().name) survive_sigpipe();
  GroupPlan plan;
  plan.name = group.name;
  plan.key_prefix = key_prefix(group);
  plan.members = group.members;
  plan.rank = rank_in(group.members, info_.rank);
  plan.init_timeout = options_.init_timeout;
  plan.hint = group.id == kWorld ? kWasItStarted : "does every member make this group?";
  plan.ask_for_cause = [this](milliseconds timeout) { return ask_for_cause(timeout); };
  if (group.members.size() > 1 && !group.backends.cpu.empty()) {
    plan.backend = &collectives::load_backend(group.backends.cpu);
  }
  plan.device = device_for(group.backends);
  return plan;
}

void Session::form_world(const Environment& environment) {
  auto group = std::make_unique<Group>();
  group->id = kWorld;
  group->name = kWorld;
  group->members = all_members(info_.world_size);
  group->backends = options_.backends;
  group->timeout = options_.timeout;
  world_ = group.get();
  if (info_.world_size == 1) {
    const GroupPlan planned = plan(*group);
    add(std::move(group), planned, connect_alone(planned));
    return;
  }
  GroupForming forming(plan(*group), store_->connection());
  const RegisteredForming underway(*this, forming);
  try {
    address_ = reachable_address(*store_, environment);
    forming.agree();
  } catch (const Error&) {
    forming.throw_if_ended();
    throw;
  }
  add(std::move(group), forming.plan(), forming.connect(address_));
}

ProcessGroup* Session::form(GroupPointer group, std::unique_ptr<DeviceCollectives> device) {
  GroupPlan planned = plan(*group);
  if (device != nullptr) planned.device = nullptr;
  GroupConnections connections;
  if (group->members.size() == 1) {
    connections = connect_alone(planned);
    if (device != nullptr) connections.device = std::move(device);
    return add(std::move(group), planned, std::move(connections)).operations.get();
  }
  const std::unique_ptr<rendezvous::Store> store = store_->connect_again();
  GroupForming forming(std::move(planned), *store);
  const RegisteredForming underway(*this, forming);
  forming.meet();
  connections = forming.connect(address_);
  if (device != nullptr) connections.device = std::move(device);
  return add(std::move(group), forming.plan(), std::move(connections)).operations.get();
}

void Session::log_formed(const Group& group) const {
  const std::string over = group.members.size() > 1 ? " over " + group.backend : "";
  const std::string line = "libddp: the group " + group.name + " is formed: " + describe(group.members) + over + "\n";
  std::fputs(line.c_str(), stderr);
}

// Makes the connections of a group of one: none but NCCL's, which works on GPU memory.
GroupConnections Session::connect_alone(const GroupPlan& plan) const {
  if (plan.device == nullptr) return {};
  try {
    const auto deadline = std::chrono::steady_clock::now() + plan.init_timeout;
    return {nullptr, join_nccl(plan.device, {0, 1}, {nullptr, deadline, nullptr})};
  } catch (const Error& e) {
    throw Error(e.code(), plan.name + ": joining on cuda:" + std::to_string(plan.device->index()) + ": " + e.what());
  }
}

// Returns the device, which is opened for the first group that needs it.
std::shared_ptr<collectives::CudaDevice> Session::device_for(const BackendNames& backends) {
  if (backends.cuda.empty()) return nullptr;
  const std::lock_guard lock(mutex_);
  if (device_ == nullptr) device_ = open_device(backends.cuda, options_.device, info_.local_rank);
  return device_;
}

Session::Group& Session::add(GroupPointer group, const GroupPlan& plan, GroupConnections connections) {
  // Describe the group to its operations.
  ProcessGroup::Config config;
  config.name = plan.name;
  config.rank = plan.rank;
  config.size = static_cast<int>(plan.members.size());
  config.timeout = group->timeout;
  config.backend = plan.backend;
  config.connection = connections.host;
  config.on_device = std::move(connections.device);
  config.flight_recorder_size = flight_recorder_size_;
  if (call_log_ != nullptr && connections.host != nullptr) {
    config.call_log.emplace(*call_log_, group->id, group->members);
  }
  if (config.size > 1) {
    config.open_store = [this] { return store_->connect_again(); };
    config.key_prefix = plan.key_prefix;
    config.ask_for_cause = plan.ask_for_cause;
    config.publish_cause = [this, prefix = plan.key_prefix](const std::string& why) {
      return store_->publish_cause(prefix, why);
    };
  }
  // Register the group, so that failures reach it.
  group->backend = to_string(group->backends);
  group->operations = std::make_unique<ProcessGroup>(std::move(config), deadlines_);
  if (debug_ != DebugLevel::Off && plan.rank == 0) log_formed(*group);
  Group& added = *group;
  {
    const std::lock_guard lock(mutex_);
    groups_.push_back(std::move(group));
  }
  // A failure may have been reported after the forming checked for it last.
  const auto failure = failures_ != nullptr ? failures_->wait_for_failure(milliseconds(0)) : std::nullopt;
  if (failure && ends(*failure, added.members)) added.operations->lose_peer(failure->text);
  return added;
}

ProcessGroup* Session::new_group(const Members& members, const GroupOptions& options) {
  if (rank_in(members, info_.rank) < 0) return nullptr;
  auto group = std::make_unique<Group>();
  group->members = members;
  group->backends = options.backend.empty() ? world_->backends : parse_backend_names(options.backend);
  group->timeout = options.timeout.count() > 0 ? options.timeout : options_.timeout;
  name_new(*group, options.name);
  return form(std::move(group));
}

// Names a group made by new_group. All members count groups of the same members alike, even groups that failed to form.
void Session::name_new(Group& group, const std::string& given) {
  const std::lock_guard lock(mutex_);
  if (given.empty()) {
    const std::string list = key_of(group.members);
    const int before = made_of_[list]++;
    group.id = "of/" + list + "/" + std::to_string(before);
    group.name = describe(group.members) + (before > 0 ? " (" + std::to_string(before + 1) + ")" : "");
    return;
  }
  if (given.find('/') != std::string::npos)
    invalid_argument("new_group: the group name \"" + given + "\" must not contain a slash");
  if (!names_.insert(given).second) {
    invalid_argument("new_group: the name \"" + given +
                     "\" has been given to a group already (give each group a name of "
                     "its own, or none)");
  }
  group.id = "named/" + given;
  group.name = given;
}

// Returns what every member of the parent has chosen. A parent without a CPU backend uses the store for it.
std::vector<SplitChoice> Session::exchange(Group& parent, const SplitChoice& mine, int split) {
  const std::size_t members = parent.members.size();
  std::vector<SplitChoice> choices(members, mine);
  if (members == 1) return choices;
  if (!parent.backends.cpu.empty()) {
    SplitChoice copy = mine;
    constexpr std::size_t kWords = sizeof(SplitChoice) / sizeof(std::int64_t);
    const ddp_buffer input = {&copy, kWords, DDP_INT64, {DDP_CPU, 0}};
    const ddp_buffer output = {choices.data(), kWords * members, DDP_INT64, {DDP_CPU, 0}};
    parent.operations->run(make_all_gather(input, output, parent.operations->place()));
    return choices;
  }
  const std::unique_ptr<rendezvous::Store> store = store_->connect_again();
  const std::string prefix = key_prefix(parent) + "choices/" + std::to_string(split) + "/";
  const auto own_rank = static_cast<std::size_t>(parent.operations->rank());
  store->set(prefix + std::to_string(own_rank), std::to_string(mine.color) + " " + std::to_string(mine.key));
  for (std::size_t rank = 0; rank < members; ++rank) {
    rendezvous::TextStream choice(store->get(prefix + std::to_string(rank), options_.init_timeout));
    choice >> choices[rank].color >> choices[rank].key;
  }
  return choices;
}

ProcessGroup* Session::split(ProcessGroup& parent, std::int64_t color, std::int64_t key, const GroupOptions& options) {
  // Learn what every member has chosen, which decides the members of each part.
  Group& from = find(parent);
  const int split = from.splits++;
  const std::vector<SplitChoice> choices = exchange(from, SplitChoice{color, key}, split);
  std::unique_ptr<DeviceCollectives> device;
  if (!from.backends.cuda.empty() && options.backend.empty()) {
    const Members members = members_of_color(choices, color, from.members);
    const GroupPlace place = {rank_in(members, info_.rank), static_cast<int>(members.size())};
    const auto deadline = std::chrono::steady_clock::now() + options_.init_timeout;
    device = parent.split_device(static_cast<int>(color), place, deadline);  // ranks without a color take part
  }
  // Form the part that this rank is in, if it chose one.
  if (color < 0) return nullptr;
  const std::string part = std::to_string(split) + "/" + std::to_string(color);
  auto group = std::make_unique<Group>();
  group->id = from.id + "/split/" + part;
  group->name = options.name.empty() ? from.name + " split " + part : options.name;
  group->members = members_of_color(choices, color, from.members);
  group->backends = options.backend.empty() ? from.backends : parse_backend_names(options.backend);
  group->timeout = options.timeout.count() > 0 ? options.timeout : from.timeout;
  return form(std::move(group), std::move(device));
}

void Session::destroy(ProcessGroup& group) {
  if (&group == &world()) invalid_argument("the world cannot be destroyed: it ends with its session");
  find(group).operations->drain();
  GroupPointer leaving;  // destroyed after the lock is released, since what it waits for may need the lock
  {
    const std::lock_guard lock(mutex_);
    const auto at = std::find_if(groups_.begin(), groups_.end(),
                                 [&](const GroupPointer& each) { return each->operations.get() == &group; });
    leaving = std::move(*at);
    groups_.erase(at);
  }
}

bool Session::owns(const ProcessGroup& group) {
  const std::lock_guard lock(mutex_);
  return std::any_of(groups_.begin(), groups_.end(),
                     [&](const GroupPointer& each) { return each->operations.get() == &group; });
}

Session::Group& Session::find(const ProcessGroup& group) {
  const std::lock_guard lock(mutex_);
  for (const GroupPointer& each : groups_) {
    if (each->operations.get() == &group) return *each;
  }
  invalid_argument("this group is not one of the session's (was it destroyed?)");
}

const Members& Session::members_of(const ProcessGroup& group) { return find(group).members; }
const std::string& Session::backend_of(const ProcessGroup& group) { return find(group).backend; }

// ---- Failures ----

void Session::on_failure(const ReportedFailure& failure) {
  const std::lock_guard lock(mutex_);
  for (GroupForming* forming : formings_) {
    if (ends(failure, forming->plan().members)) forming->end(failure.text);
  }
  for (const GroupPointer& group : groups_) {
    if (ends(failure, group->members)) group->operations->lose_peer(failure.text);
  }
}

// Whether a group of these ranks ends. Where this process stays, all of the round do.
bool Session::ends(const ReportedFailure& failure, const Members& members) const {
  return stays_ || failure.concerns(members);
}

bool Session::say_stays(bool stays) {
  if (!stays && stays_.exchange(false)) survival_->forgo();
  if (!stays || stays_) return stays_;
  const InitArguments& given = options_.arguments;
  const bool is_given = given.world_size || given.store != nullptr || !given.init_method.empty();
  const bool is_ddpruns = !is_given && info_.session_name.empty() && info_.place.launcher_hosts;
  const bool is_alone = info_.world_size == 1;
  if (is_alone && !is_ddpruns) return false;  // a world of its own, which no round can change
  survival_ = Survival::of_this_process();
  stays_ = survival_.has_value();
  if (!stays_) return false;
  if (is_ddpruns && groups_.size() == 1) {
    if (is_alone) watch_for_failures(process_environment);
    const auto failure = failures_->wait_for_failure(milliseconds(0));
    if (failure) on_failure(*failure);  // when it was reported, this process did not stay yet
    return true;
  }
  stays_ = false;
  survival_->forgo();
  invalid_argument(
      is_ddpruns ? "staying in the job: the session has groups besides the world, which would end: make them later"
                 : "staying in the job: only a session that joins it as ddprun's variables say, without a "
                   "name, can do that");
}

// Ends what hangs on the round: groups, the watch for failures, connections to the store.
void Session::leave_round(const std::string& why) {
  for (const GroupPointer& group : groups_) group->operations->lose_peer(why);
  for (auto group = groups_.rbegin(); group != groups_.rend(); ++group) (*group)->operations->drain();
  failures_.reset();
  call_log_.reset();
  std::vector<GroupPointer>
      leaving;  // destroyed after the lock is released, since what they wait for may need the lock
  {
    const std::lock_guard lock(mutex_);
    world_ = nullptr;
    leaving.swap(groups_);
    names_ = {kWorld};
    made_of_.clear();
  }
  leaving.clear();
  store_.reset();
}

void Session::rejoin() {
  if (!stays_) invalid_argument("this process has not said that it stays in the job");
  std::string why = ask_for_cause(std::chrono::milliseconds(0));
  if (why.empty()) why = "this process leaves the round";
  while (true) {
    leave_round(why);
    const NextRound next = survival_->await_next_round(why);
    info_.rank = next.rank;
    info_.world_size = next.world_size;
    info_.local_world_size = next.local_world_size;
    info_.restart_count = next.restart_count;
    info_.place.host = next.master_addr;
    info_.place.port = next.master_port;
    info_.is_first_session = true;
    try {
      return join(process_environment);
    } catch (const Error& error) {
      why = error.what();  // if another process has died, there is another round
    }
  }
}

// Returns the cause of a failure as the launcher reports it, or "" without a launcher or a report.
std::string Session::ask_for_cause(milliseconds timeout) {
  const auto failure = failures_ != nullptr ? failures_->wait_for_failure(timeout) : std::nullopt;
  return failure ? failure->text : "";
}

}  // namespace ddp::runtime
