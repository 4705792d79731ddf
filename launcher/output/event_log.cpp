// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/output/event_log.hpp"

#include <utility>

#include "rendezvous/wire/json_text.hpp"

namespace ddp::launcher {

namespace {

std::string json_list(std::optional<int> number) { return "[" + (number ? std::to_string(*number) : "null") + "]"; }

}  // namespace

EventLog::EventLog(Job job, std::function<void(std::string)> write) : job_(std::move(job)), write_(std::move(write)) {}

void EventLog::round(const rendezvous::Assignment& assignment) {
  assignment_ = assignment;
  record("AGENT", "RENDEZVOUS", {}, {},
         std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - waiting_since_));
}

void EventLog::worker_started(int local_rank, int pid) {
  record("WORKER", "START", Worker{local_rank, pid, {}}, {}, {});
}

void EventLog::worker_ended(int local_rank, int pid, const rendezvous::WorkerFailure* failure) {
  if (!failure) return record("WORKER", "SUCCEEDED", Worker{local_rank, pid, 0}, {}, {});
  const std::string message = failure->message.empty() ? describe(*failure) : failure->message;
  record("WORKER", failure->stopped_by_ddprun ? "TERMINATED" : "FAILED",
         Worker{local_rank, pid, failure->status.python_code()},
         rendezvous::JsonObject().text("message", message).str(), {});
}

void EventLog::round_ended() { waiting_since_ = Clock::now(); }

void EventLog::agent_ended(const std::string& error) {
  if (error.empty()) return record("AGENT", "SUCCEEDED", {}, {}, {});
  record("AGENT", "FAILED", {}, error, {});
}

void EventLog::node(const char* state, const OtherNode& node) const {
  if (!write_) return;
  rendezvous::JsonObject more;
  more.text("address", node.address).text("proof", node.proof);
  rendezvous::JsonObject metadata;
  metadata.text("run_id", job_.run_id).text("role", job_.role).text("hostname", node.host).text("state", state);
  metadata.text("rdzv_backend", job_.rdzv_backend);
  if (node.why.empty()) {
    metadata.json("raw_error", "null");
  } else {
    metadata.text("raw_error", node.why);
  }
  metadata.text("metadata", more.str());
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  rendezvous::JsonObject event;
  event.text("name", std::string("ddprun.node.status.") + state).text("source", "COORDINATOR");
  event.number("timestamp", std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
  write_(event.json("metadata", metadata.str()).str());
}

void EventLog::record(const char* source, const char* state, const std::optional<Worker>& worker,
                      const std::optional<std::string>& raw_error, std::optional<std::chrono::microseconds> duration) {
  using std::chrono::duration_cast, std::chrono::milliseconds, std::chrono::seconds;
  if (!write_) return;
  const auto add_optional = [](rendezvous::JsonObject& object, const char* name,
                               const std::optional<std::string>& text) {
    text ? object.text(name, *text) : object.json(name, "null");
  };
  // In torch's records this is a string that contains JSON, with numbers in lists of one.
  rendezvous::JsonObject more;
  more.number("group_world_size", assignment_ ? std::optional(assignment_->node_count) : std::nullopt);
  more.text("entry_point", job_.entry_point);
  if (worker && assignment_) {
    more.json("local_rank", json_list(worker->local_rank));
    more.json("role_rank", json_list(assignment_->base_role_rank + worker->local_rank));
    more.json("role_world_size", json_list(assignment_->role_world_size));
    more.json("exit_code", json_list(worker->exit_code));
    more.json("worker_pid", json_list(worker->pid));
  }
  // The record's own fields.
  rendezvous::JsonObject metadata;
  metadata.text("run_id", job_.run_id);
  metadata.number("global_rank",
                  worker && assignment_ ? std::optional(assignment_->base_rank + worker->local_rank) : std::nullopt);
  metadata.number("group_rank", assignment_ ? std::optional(assignment_->node_rank) : std::nullopt);
  add_optional(metadata, "worker_id", worker ? std::optional(std::to_string(worker->pid)) : std::nullopt);
  metadata.text("role", job_.role).text("hostname", job_.host).text("state", state);
  metadata.number("total_run_time", duration_cast<seconds>(Clock::now() - started_).count());
  metadata.text("rdzv_backend", job_.rdzv_backend);
  add_optional(metadata, "raw_error", raw_error);
  metadata.text("metadata", more.str());
  metadata.number("agent_restarts", assignment_ ? assignment_->restart_count : 0);
  metadata.json("duration_ms", duration ? std::to_string(static_cast<double>(duration->count()) / 1000) : "null");

  const auto now = std::chrono::system_clock::now().time_since_epoch();
  rendezvous::JsonObject event;
  event.text("name", std::string("torchelastic.worker.status.") + state).text("source", source);
  event.number("timestamp", duration_cast<milliseconds>(now).count());
  write_(event.json("metadata", metadata.str()).str());
}

}  // namespace ddp::launcher
