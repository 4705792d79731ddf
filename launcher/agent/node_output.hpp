// SPDX-License-Identifier: BSD-3-Clause
// Holds everything that a node writes: its log, its workers' output, the folder of their files and the event log. They
// belong together because they report their troubles to one another. The log and record() are of any thread; the rest
// is of the loop's thread.
#pragma once

#include <string>

#include "launcher/config/launch_config.hpp"
#include "launcher/guardian/guardian.hpp"
#include "launcher/output/attempt_folder.hpp"
#include "launcher/output/event_log.hpp"
#include "launcher/output/log.hpp"
#include "launcher/output/output.hpp"
#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/coordinator/core/coordinator_events.hpp"

namespace ddp::launcher {

struct NodeOutput {
  // A folder that is to go with this process is left to guarded.remove_if_killed(). Throws rendezvous::Error if the log
  // folder or the event file cannot be used.
  NodeOutput(const LaunchConfig& config, const LogSettings& settings, const std::string& host, const Guarded& guarded);

  // Notes a node that joined the job, was refused or has left it, in the log and among the events. `proof` is what
  // nodes of this job prove: "secret", "munge" or "none". Any thread may call it.
  void record(const rendezvous::RecordNode& node, const std::string& proof);

  Log log;                          // writes to output, whose last warnings go to it: so it lives longer
  rendezvous::Descriptor guardian;  // without the guardian, output does not wait for the consoles
  Output output;
  AttemptFolder attempts;
  EventLog events;
};

}  // namespace ddp::launcher
