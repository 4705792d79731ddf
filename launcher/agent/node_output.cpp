// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/agent/node_output.hpp"

#include <fcntl.h>

#include <functional>
#include <utility>

namespace ddp::launcher {

namespace {

// Returns what writes a line of the event log; empty if nothing reads them.
std::function<void(std::string)> event_writer(const LogConfig& logs, Output& output) {
  if (!logs.events_on_stderr && logs.event_file.empty()) return nullptr;
  return [on_stderr = logs.events_on_stderr, &output](std::string line) {
    if (on_stderr) output.write_line(Console::Stderr, line);
    output.write_event(std::move(line));
  };
}

}  // namespace

NodeOutput::NodeOutput(const LaunchConfig& config, const LogSettings& settings, const std::string& host,
                       const Guarded& guarded)
    : log(output, settings, host),
      guardian(fcntl(guarded.guardian_fd, F_DUPFD_CLOEXEC, 0)),
      output([this](const std::string& line) { log.warning("output_lost", line); }, guardian.get()),
      attempts(
          config.logs, config.compatibility, config.job.id + (config.job.max_nodes > 1 ? "_" + host : ""),
          [this](const std::string& line) { log.warning("log_folder", line); },
          [&guarded](const std::string& folder) { guarded.remove_if_killed(folder); }),
      events({config.job.id, config.role, host, config.job.node_ranks_given ? "static" : "c10d", config.program.name},
             event_writer(config.logs, output)) {
  if (!config.logs.event_file.empty()) output.open_events(config.logs.event_file);
}

void NodeOutput::record(const rendezvous::RecordNode& node, const std::string& proof) {
  using What = rendezvous::RecordNode::What;
  const std::string who = (node.host.empty() ? "a host" : "node " + node.host) + " (" + node.address + ")";
  const std::string proved = proof == "none" ? "; it had to prove nothing" : "; it proved the job's " + proof;
  // What was refused in the handshake is in the log already, as a warning.
  if (node.what == What::Joined) log.info("node_joined", who + " joined" + proved);
  if (node.what == What::Refused && !node.host.empty()) log.info("node_refused", who + " was refused: " + node.why);
  if (node.what == What::Left) log.info("node_left", node.why);
  const char* const state = node.what == What::Joined ? "JOINED" : node.what == What::Refused ? "REFUSED" : "LEFT";
  // Only a node that has joined, or has said its name, has passed the handshake.
  events.node(state, {node.host, node.address, node.host.empty() ? "none" : proof, node.why});
}

}  // namespace ddp::launcher
