// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/agent/local_service.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include "launcher/agent/job_looks.hpp"
#include "launcher/output/stream_route.hpp"
#include "rendezvous/base/error.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/operation_records.hpp"

namespace ddp::launcher {
namespace {

using rendezvous::AgentAnswer;
using rendezvous::AgentRequest;

constexpr std::string_view kOfJob = "job_";       // begins what is asked of all nodes
constexpr std::chrono::seconds kStacksWithin{7};  // for a program that asks; the tools get five

AgentSocket::Answer refusal(const std::string& why) { return {encode(AgentAnswer{.error = why})}; }

template <std::size_t N>
void copy_text(std::array<char, N>& to, const std::string& text) {
  to.fill(0);
  text.copy(to.data(), N - 1);
}

std::int64_t boot_time_ns() {
  timespec now = {};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

// Returns the numbers of a list with commas.
std::set<ino_t> inodes_in(const std::string& list) {
  std::set<ino_t> inodes;
  std::istringstream parts(list);
  for (std::string part; std::getline(parts, part, ',');) inodes.insert(std::strtoul(part.c_str(), nullptr, 10));
  return inodes;
}

}  // namespace

LocalService::LocalService(rendezvous::asio::io_context& io, const LaunchConfig& config, const std::string& host,
                           const std::string& incarnation, const Guarded& guarded, NodeOutput& out,
                           RoundProcesses& processes, const AgentCore& core, Sources sources)
    : config_(config),
      host_(host),
      out_(out),
      processes_(processes),
      core_(core),
      sources_(std::move(sources)),
      stack_helper_(io) {
  if (config.keep_memory != KeepMemory::No) {
    const int of_groups = config.workers;  // a control group for each
    kept_.emplace(config.workers,
                  static_cast<std::size_t>(of_groups + descriptors_of_streams(config.logs, config.workers)));
  }
  if (kept_ && config.job.max_restarts == 0 && config.job.min_nodes == config.job.max_nodes) {
    log_.warning("kept_memory", "--keep-memory is of use only with --max-restarts, since this job is never restarted");
  }
  try {
    page_ = std::make_unique<AgentPage>(config.workers);
    const std::string path = make_agent_socket_folder() + "/" + incarnation;
    guarded.remove_if_killed(path);
    socket_ = std::make_unique<AgentSocket>(
        io, path, [this](const rendezvous::DescriptorMessage& request) { return answer(request); });
  } catch (const rendezvous::Error& error) {
    log_.info("local", std::string(error.what()) + "; `ddprun ps` does not show this job");
    if (kept_) log_.warning("kept_memory", "--keep-memory has no effect: " + std::string(error.what()));
  }
}

void LocalService::begin_round(const rendezvous::AgentState& state, const rendezvous::Assignment& assignment) {
  round_began_ = std::chrono::steady_clock::now();
  step_rates_.clear();
  facts_.round = state.round;
  facts_.phase = rendezvous::NodePhase::Running;
  phase_.clear();
  facts_.node_rank = assignment.node_rank;
  facts_.node_count = assignment.node_count;
  facts_.base_rank = assignment.base_rank;
  facts_.local_world_size = config_.workers;
  facts_.world_size = assignment.world_size;
  facts_.restart_count = assignment.restart_count;
  facts_.master_port = assignment.master_port;
  copy_text(facts_.master_addr, assignment.master_addr);
  copy_text(facts_.epoch, state.epoch);
  plan_kept_memory(assignment);
  if (!page_) return;
  page_->clear_workers();
  page_->show(facts_);
}

void LocalService::show(const rendezvous::AgentState& state) {
  const rendezvous::WorkersPhase phase = state.phase;
  phase_ = phase == rendezvous::WorkersPhase::Quiet  ? "quiet"
           : phase != rendezvous::WorkersPhase::Idle ? ""
           : state.succeeded                         ? "done"
                                                     : "waiting";
  const auto shown = phase == rendezvous::WorkersPhase::Idle      ? rendezvous::NodePhase::Idle
                     : phase == rendezvous::WorkersPhase::Running ? rendezvous::NodePhase::Running
                                                                  : rendezvous::NodePhase::Stopping;
  const bool is_revoked = facts_.phase == rendezvous::NodePhase::Revoked && shown == rendezvous::NodePhase::Stopping;
  if (shown == facts_.phase || is_revoked) return;
  facts_.phase = shown;
  if (page_) page_->show(facts_);
}

void LocalService::revoke() {
  facts_.phase = rendezvous::NodePhase::Revoked;
  if (page_) page_->show(facts_);
}

void LocalService::show_stop() {
  facts_.phase = rendezvous::NodePhase::Stopping;
  if (page_) page_->show(facts_);
}

void LocalService::note_failure() {
  if (!failed_) failed_ = std::chrono::steady_clock::now();
}

void LocalService::plan_kept_memory(const rendezvous::Assignment& assignment) {
  const auto failed = std::exchange(failed_, std::nullopt);
  if (!kept_) return;
  for (std::string& line : kept_->begin_round(assignment.base_rank, assignment.world_size)) {
    if (failed) {
      const auto since =
          std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - *failed);
      line += "; " + std::to_string(since.count()) + " ms since the first failure";
    }
    log_.warning("kept_memory", line);
  }
}

bool LocalService::is_updating() const {
  if (!kept_) return false;
  const auto running = processes_.running_workers();
  return std::any_of(running.begin(), running.end(),
                     [this](const WorkerView& worker) { return kept_->is_updating(worker.rank - facts_.base_rank); });
}

void LocalService::stop() {
  if (socket_) socket_->stop();
}

AgentSocket::Answer LocalService::answer(const rendezvous::DescriptorMessage& message) {
  const auto request = rendezvous::decode_request(message.text);
  if (const auto* wrong = std::get_if<rendezvous::Malformed>(&request)) return refusal("the request is " + wrong->why);
  const auto* asked = std::get_if<AgentRequest>(&request);
  const std::string& ask = asked->ask;
  if (ask == "state") return {to_frame(rendezvous::FrameKind::AgentView, to_json(view()))};
  if (ask == "stacks") return take_stacks();
  if (ask.starts_with("job")) return look(ask == "job" ? "state" : ask.substr(std::min(ask.size(), kOfJob.size())));
  const std::set<std::string> of_workers = {"page", "calls", "keep", "kept", "stay", "quiet", "connections"};
  if (of_workers.count(ask) == 0) return refusal("nothing can be asked by this name: " + ask);
  const auto local_rank = processes_.local_rank_of(asked->incarnation);
  if (!local_rank) return refusal("no worker of this round has this incarnation");
  if (ask == "keep") return hand_out(*local_rank, *asked);
  if (ask == "calls") return hand_out_call_memory(*local_rank, *asked);
  if (ask == "kept") return show_kept(*local_rank, asked->name);
  if (ask != "page") return note_survivor(ask, *local_rank, *asked);
  return {encode(AgentAnswer{.local_rank = *local_rank}), {page_->node_memory(), page_->workers_memory()}};
}

AgentSocket::Answer LocalService::note_survivor(const std::string& ask, int local_rank, const AgentRequest& request) {
  AgentAnswer answer;
  if (ask == "quiet") {
    sources_.handle(WorkerQuiet{local_rank, request.round});
  } else if (ask == "connections") {
    answer.ends_them = processes_.end_when_revoked(local_rank, {inodes_in(request.sockets), request.others});
  } else {
    answer.stays = config_.job.survivors_stay && request.stays;
    answer.lost_after = core_.lost_after();
    sources_.handle(WorkerStays{local_rank, answer.stays});
  }
  return {encode(answer)};
}

AgentSocket::Answer LocalService::take_stacks() {
  const auto workers = processes_.workers_with_stacks();
  if (workers.empty()) return refusal("it has no workers here now");
  try {
    AgentSocket::Answer answer{encode(AgentAnswer{})};
    answer.own.push_back(stack_helper_.start(workers, kStacksWithin));
    return answer;
  } catch (const rendezvous::Error& error) {
    return refusal(error.what());
  }
}

AgentSocket::Answer LocalService::hand_out_call_memory(int local_rank, const AgentRequest& request) {
  AgentSocket::Answer answer{encode(AgentAnswer{})};
  if (request.layout != rendezvous::kOperationRecordsVersion) return answer;
  try {
    const int memory = sources_.call_memory(local_rank);
    if (memory >= 0) answer.descriptors.push_back(memory);
    return answer;
  } catch (const rendezvous::Error& error) {
    return refusal(error.what());
  }
}

AgentSocket::Answer LocalService::look(const std::string& what) {
  if (!is_question(what)) return refusal("nothing can be asked of a job by this name: " + what);
  try {
    AgentSocket::Answer answer{encode(AgentAnswer{})};
    answer.own.push_back(sources_.look(what));
    return answer;
  } catch (const rendezvous::Error& error) {
    return refusal(error.what());
  }
}

AgentSocket::Answer LocalService::hand_out(int local_rank, const AgentRequest& request) {
  AgentAnswer answer{.local_rank = local_rank};
  if (!kept_) return {encode(answer)};
  if (request.layout != rendezvous::kKeptVersion) {
    return refusal("this ddprun keeps memory of another layout (use ddprun and libddp of one release)");
  }
  const std::string& name = request.name;
  const auto handed = kept_->hand_out(local_rank, name, request.bytes);
  const int rank = facts_.base_rank + local_rank;
  if (const auto* why = std::get_if<std::string>(&handed)) {
    log_.warning("kept_memory", *why, rank);
    return refusal(*why);
  }
  const auto& memory = std::get<KeptMemories::Handed>(handed);
  if (memory.is_new) {
    log_.info("kept_memory",
              "rank " + std::to_string(rank) + " keeps memory \"" + name + "\"; " +
                  rendezvous::describe_bytes(kept_->bytes()) + " are kept on this node",
              rank);
  }
  answer.go_on = memory.go_on;
  answer.step = memory.step;
  answer.parts = static_cast<int>(memory.parts.size());
  std::vector<int> descriptors = {memory.own};
  if (memory.source >= 0) descriptors.push_back(memory.source);
  descriptors.insert(descriptors.end(), memory.parts.begin(), memory.parts.end());
  return {encode(answer), std::move(descriptors)};
}

AgentSocket::Answer LocalService::show_kept(int local_rank, const std::string& name) const {
  const int memory = kept_ ? kept_->find(local_rank, name) : -1;
  return {encode(AgentAnswer{.local_rank = local_rank}), memory >= 0 ? std::vector<int>{memory} : std::vector<int>()};
}

std::int64_t LocalService::step_at(int rank) const {
  const auto shown = page_ ? page_->worker(rank - facts_.base_rank) : std::nullopt;
  return shown && shown->step >= 0 ? shown->step_at : 0;
}

AgentView LocalService::view() {
  using std::chrono::duration_cast, std::chrono::seconds;
  const auto now = std::chrono::steady_clock::now();
  AgentView view = {.job = config_.job.id,
                    .program = config_.program.name,
                    .host = host_,
                    .pid = config_.launcher_pid,
                    .agent_pid = getpid(),
                    .seconds = duration_cast<seconds>(now - began_).count(),
                    .seconds_in_round = duration_cast<seconds>(now - round_began_).count(),
                    .epoch = facts_.epoch.data(),
                    .facts = facts_,
                    .phase = phase_,
                    .link = core_.link_delay(),
                    .log_folder = config_.logs.writes_logs() ? out_.attempts.root() : "",
                    .gpus = {},
                    .workers = processes_.running_workers()};
  for (const GpuUse& use : gpus_.newest()) {
    GpuView& gpu = view.gpus.emplace_back(GpuView{use.index, use.percent, use.memory, use.capacity});
    for (const WorkerView& worker : view.workers) {
      if (std::count(use.pids.begin(), use.pids.end(), worker.pid) > 0) gpu.ranks.push_back(worker.rank);
    }
  }
  for (WorkerView& worker : view.workers) {
    worker.local_rank = worker.rank - facts_.base_rank;
    worker.usage = usage_of(worker.pid);
    processes_.add_calls(worker);
    const auto shown = page_ ? page_->worker(worker.local_rank) : std::nullopt;
    if (!shown || shown->step < 0) continue;
    worker.step = shown->step;
    worker.seconds_since_step = std::max<std::int64_t>(0, boot_time_ns() - shown->step_at) / 1'000'000'000;
    worker.steps_per_second = step_rates_.note(worker.rank, shown->step, shown->step_at);
  }
  return view;
}

}  // namespace ddp::launcher
