// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/link/accept.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <limits>
#include <string_view>

#include "rendezvous/base/shallow_json.hpp"
#include "rendezvous/link/check_message.hpp"
#include "rendezvous/link/failures.hpp"
#include "rendezvous/link/printable.hpp"

namespace ddp::rendezvous {
namespace {

constexpr std::size_t kMaxIdBytes = 64;            // an epoch, an incarnation
constexpr std::size_t kMaxJobIdBytes = 128 << 10;  // --rdzv-id: as much as Linux lets a user give
constexpr std::size_t kMaxHostBytes = 255;         // a name in DNS, and HOST_NAME_MAX
constexpr std::size_t kMaxRoleBytes = 4096;
constexpr std::size_t kMaxAddresses = 1024;
constexpr std::size_t kMaxAddressBytes = 64;  // INET6_ADDRSTRLEN and a scope
// What is cut. The agent's own limits are lower.
constexpr std::size_t kMaxLines = 100;
constexpr std::size_t kMaxTextBytes = 2 * kMaxMessageBytes;
constexpr std::size_t kMaxUnkillable = 1024;
// From 300 ms on, as --rdzv-conf has it; with less, heartbeats would be all that the two ends do.
constexpr std::int64_t kLeastLostAfter = 300, kMostLostAfter = 1'000'000'000'000;
constexpr std::int64_t kYear10000 = 253'402'300'800'000;  // in ms since 1970
constexpr int kMaxSignal = 64;
constexpr std::int64_t kMostLooks = std::numeric_limits<std::int64_t>::max();

bool is_numeric(const std::string& address) {
  const std::string number = address.substr(0, address.find('%'));  // "fe80::1%eth0"
  unsigned char bytes[sizeof(in6_addr)];
  if (number.find('\0') != std::string::npos) return false;
  return inet_pton(AF_INET, number.c_str(), bytes) == 1 || inet_pton(AF_INET6, number.c_str(), bytes) == 1;
}

// Whether a text can be a name or an address: a worker gets it in its environment, and resolves it.
bool is_host(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte > ' ' && byte != 0x7f;
  });
}

void check_address(Check& check, const char* name, const std::string& address) {
  check.at_most(name, address.size(), kMaxAddressBytes);
  check.holds(name, is_numeric(address) && is_host(address), " is no address");
}

void check_host(Check& check, const char* name, const std::string& host) {
  check.at_most(name, host.size(), kMaxHostBytes);
  check.holds(name, is_host(host), " has characters that no name has");
}

void check_id(Check& check, const char* name, const std::string& id) {
  check.at_most(name, id.size(), kMaxIdBytes);
  check.holds(name, printable_line(id) == id, " is not printable");
}

void check_instance(Check& check, const std::string& instance, const std::string& epoch) {
  check_id(check, "instance", instance);
  check.holds(instance.empty() || is_number_epoch(epoch), "an instance whose epoch is no number");
}

void make_text(std::string& text) {
  if (text.size() > 4 * kMaxTextBytes) text = shortened(text, 4 * kMaxTextBytes);
  text = printable(text);
  if (text.size() > kMaxTextBytes) text = shortened(text, kMaxMessageBytes);
}

// Makes its words printable and cuts them.
void tidy(WorkerFailure& failure) {
  for (std::string* line : {&failure.host, &failure.stderr_log, &failure.flight_recorder, &failure.out_of_memory}) {
    make_line(*line);
  }
  make_text(failure.message);
  make_text(failure.hint);
  if (failure.stderr_tail.size() > kMaxLines) failure.stderr_tail.resize(kMaxLines);
  for (std::string& line : failure.stderr_tail) make_line(line);
  if (failure.error_record.size() > kMaxTextBytes) failure.error_record.clear();  // a part of it is of no use
}

void check_failure(Check& check, const WorkerFailure& failure) {
  check.in_range("failures.rank", failure.rank, 0, kMaxInt);
  check.in_range("failures.local_rank", failure.local_rank, 0, kMaxSlots - 1);
  check.in_range("failures.pid", failure.pid, 0, kMaxInt);
  check.in_range("failures.status.code", failure.status.code, 0, kMaxExitCode);
  check.in_range("failures.status.signal", failure.status.signal, 0, kMaxSignal);
  check.holds(!failure.status.success(), "a failure has exit code 0");
  check.holds(failure.status.code == 0 || failure.status.signal == 0, "a failure has an exit code and a signal");
  check.in_range("failures.time_ms", failure.time.time_since_epoch().count(), 0, kYear10000);
}

void check_failures(Check& check, std::vector<WorkerFailure>& failures) {
  std::size_t bytes = 0;
  for (WorkerFailure& failure : failures) {
    if (!check.passed()) return;
    check_failure(check, failure);
    tidy(failure);
    bytes += text_bytes(failure);
  }
  check.at_most("the text of the failures", bytes, 2 * kMaxFailuresBytes);
}

void check_assignment(Check& check, const Assignment& place) {
  check.in_range("node_count", place.node_count, 1, kMaxInt);
  check.in_range("node_rank", place.node_rank, 0, std::int64_t{place.node_count} - 1);
  check.in_range("world_size", place.world_size, place.node_count,
                 std::min<std::int64_t>(kMaxInt, std::int64_t{place.node_count} * kMaxSlots));
  check.in_range("base_rank", place.base_rank, place.node_rank, std::int64_t{place.world_size} - 1);
  check.in_range("role_world_size", place.role_world_size, 1, place.world_size);
  check.in_range("base_role_rank", place.base_role_rank, 0,
                 std::min<std::int64_t>(place.base_rank, std::int64_t{place.role_world_size} - 1));
  check.in_range("max_restarts", place.max_restarts, 0, kMaxInt);
  check.in_range("restart_count", place.restart_count, 0, kMaxInt);
  check.in_range("master_port", place.master_port, 1, 65535);
  check_host(check, "master_addr", place.master_addr);
}

}  // namespace

std::optional<std::string> accept(AgentState& state) {
  Check check;
  check.at_most("job.id", state.job.id.size(), kMaxJobIdBytes);
  check.in_range("job.min_nodes", state.job.min_nodes, 1, state.job.max_nodes);
  check.in_range("job.max_restarts", state.job.max_restarts, 0, kMaxInt);
  check.in_range("job.exclude_after", state.job.exclude_after, 0, kMaxInt);
  check.in_range("job.restart_window_ms", state.job.restart_window.count(), 0, kMostLostAfter);
  check.in_range("wanted_rank", state.wanted_rank, -1, kMaxInt);
  check_id(check, "epoch", state.epoch);
  check_instance(check, state.instance, state.epoch);
  check_id(check, "incarnation", state.incarnation);
  check.holds(!state.incarnation.empty(), "incarnation is empty");
  check.at_most("host", state.host.size(), kMaxHostBytes);
  check.at_most("addresses", state.addresses.size(), kMaxAddresses);
  if (!check.passed()) return check.reason();
  for (const std::string& address : state.addresses) check_address(check, "addresses", address);
  if (!state.coordinator_address.empty()) check_address(check, "coordinator_address", state.coordinator_address);
  check_host(check, "endpoint_host", state.endpoint_host);
  check.at_most("role", state.role.size(), kMaxRoleBytes);
  check.in_range("round", state.round, 0, kMaxInt);
  check.in_range("hang", static_cast<int>(state.hang), 0, static_cast<int>(Hang::End));
  check.in_range("stop_signal", state.stop_signal, 0, kMaxNamedSignal);
  const bool has_run = state.round > 0;
  const bool is_idle = state.phase == WorkersPhase::Idle;
  check.holds(has_run || (is_idle && !state.succeeded && state.failures.empty()), "workers ran in no round");
  check.holds(!has_run || !state.epoch.empty(), "a round without an epoch");
  check.holds(!state.succeeded || (is_idle && state.failures.empty()), "succeeded, and workers failed or run");
  for (const int pid : state.unkillable) check.in_range("unkillable", pid, 0, kMaxInt);
  if (!check.passed()) return check.reason();

  if (state.unkillable.size() > kMaxUnkillable) state.unkillable.resize(kMaxUnkillable);
  make_line(state.host);
  make_line(state.stopped_because, kMaxLineBytes / 4);  // the coordinator's reasons quote it
  check_failures(check, state.failures);
  if (!check.passed() || state.failures.empty()) return check.reason();
  std::vector<bool> has_failed(static_cast<std::size_t>(std::clamp(state.slots, 0, kMaxSlots)));
  for (const WorkerFailure& failure : state.failures) {
    const auto local_rank = static_cast<std::size_t>(failure.local_rank);
    if (local_rank >= has_failed.size()) return "a failure of local rank " + std::to_string(local_rank);
    if (has_failed[local_rank]) return "two failures of local rank " + std::to_string(local_rank);
    if (failure.host != state.host) return "a failure of another node";
    has_failed[local_rank] = true;
  }
  return std::nullopt;
}

std::optional<std::string> accept(Directive& directive) {
  using Kind = Directive::Kind;
  Check check;
  check_id(check, "epoch", directive.epoch);
  check_instance(check, directive.instance, directive.epoch);
  check.in_range("back_within_ms", directive.back_within.count(), kLeastLostAfter, kMostLostAfter);
  check.holds(!directive.epoch.empty(), "epoch is empty");
  if (directive.lost_after.count() != 0) {
    check.in_range("lost_after_ms", directive.lost_after.count(), kLeastLostAfter, kMostLostAfter);
  }
  const bool is_about_round = directive.kind == Kind::Run || directive.kind == Kind::Stop;
  check.in_range("round", directive.round, is_about_round ? 1 : 0, kMaxInt);
  const bool is_stop = directive.kind == Kind::Stop;
  check.in_range("stop_signal", directive.stop_signal, is_stop ? 1 : 0, is_stop ? kMaxNamedSignal : 0);
  check.holds(!directive.survivors_stay || is_stop, "survivors of what is not stopped");
  check.in_range("restarts_left", directive.restarts_left.value_or(0), 0, directive.kind == Kind::Run ? kMaxInt : 0);
  check.in_range("exit_code", directive.exit_code, 0, directive.kind == Kind::Exit ? kMaxExitCode : 0);
  if (directive.kind == Kind::Run) check_assignment(check, directive.assignment);
  check.holds(!directive.reason.empty() || directive.kind == Kind::Wait || directive.kind == Kind::Run, "no reason");
  make_line(directive.reason);
  if (directive.cause) {
    check_failure(check, *directive.cause);
    tidy(*directive.cause);
  }
  check_failures(check, directive.failures);
  if (directive.kind != Kind::Exit || !check.passed()) return check.reason();
  const bool has_failed = directive.cause || !directive.failures.empty();
  check.holds(directive.exit_code != 0 || !has_failed, "exit_code is 0, and workers failed");
  check.holds(!directive.cause || directive.exit_code == directive.cause->status.shell_code(),
              "exit_code and the cause's code differ");
  return check.reason();
}

std::optional<std::string> accept(LookRequest& request) {
  Check check;
  check.in_range("number", request.number, 0, kMostLooks);
  check_id(check, "what", request.what);
  check.at_most("text", request.text.size(), kMaxQuestionBytes);
  return check.reason();
}

std::optional<std::string> accept(LookAnswer& answer) {
  Check check;
  check.in_range("number", answer.number, 0, kMostLooks);
  check_id(check, "node", answer.node);
  check.at_most("text", answer.text.size(), kMaxLookBytes);
  check.holds(is_shallow(answer.text, kMaxLookDepth), "text is JSON that is nested too deeply");
  return check.reason();
}

std::optional<std::string> accept(LookEnd& end) {
  Check check;
  const JobFacts& facts = end.facts;
  check.in_range("number", end.number, 0, kMostLooks);
  check_id(check, "phase", facts.phase);
  check_id(check, "coordinator", facts.coordinator);
  for (const int number : {facts.round, facts.restarts, facts.max_restarts, facts.min_nodes, facts.max_nodes}) {
    check.in_range("facts", number, 0, kMaxInt);
  }
  check.at_most("nodes", facts.nodes.size(), kMaxNodesShown);
  if (!check.passed()) return check.reason();
  make_line(end.error);
  for (JobFacts::Node& node : end.facts.nodes) {
    check_id(check, "nodes.incarnation", node.incarnation);
    check_id(check, "nodes.state", node.state);
    if (!node.address.empty()) check_address(check, "nodes.address", node.address);
    check.in_range("nodes.node_rank", node.node_rank, -1, kMaxInt);
    check.in_range("nodes.base_rank", node.base_rank, 0, kMaxInt);
    check.in_range("nodes.slots", node.slots, 0, kMaxSlots);
    make_line(node.host, kMaxHostBytes);
  }
  return check.reason();
}

std::optional<std::string> accept(ClockReading& reading) {
  if (reading.agent_ns > 0 && reading.coordinator_ns >= 0) return std::nullopt;
  return "clocks that show " + std::to_string(reading.agent_ns) + " and " + std::to_string(reading.coordinator_ns);
}

}  // namespace ddp::rendezvous
