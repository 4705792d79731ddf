// SPDX-License-Identifier: BSD-3-Clause
// An agent's part when somebody looks at the whole job. It asks the coordinator for a program at its socket, and puts
// the answers of all nodes together; and it answers the coordinator for its own node.
//
//     program ── "job" ──▶ agent ── LookRequest ──▶ coordinator ──▶ all agents, this one included
//        ◀── pipe: JSON ───┘ ◀─ LookAnswers, LookEnd ──┘ ◀──────────────┘
//
// Each question has a deadline of its own here, since the link may break. Where the coordinator cannot be asked, the
// answer has this node alone, and says so. Nothing runs while nobody looks. All calls are made on io's thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/diagnosis/nodes/hang_judge.hpp"
#include "launcher/diagnosis/stack_helper.hpp"
#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/link/messages.hpp"
#include "rendezvous/net/asio.hpp"

namespace ddp::launcher {

class LocalService;
class RoundProcesses;

// An order to end the job, as by a SIGTERM to ddprun.
inline constexpr char kStopOrder[] = "stop";
// Asks for what a node puts into a report.
inline constexpr char kReportQuestion[] = "report";
// Returns the signal of an order such as "save:USR1", for all workers; nothing if it is none.
std::optional<int> signal_of_order(const std::string& order);
// Returns whether a program may ask this: "state", "stacks", "report" or an order.
bool is_question(const std::string& what);

class JobLooks {
 public:
  struct Sources {
    std::function<bool(const rendezvous::LookRequest&)> ask;    // the coordinator; false: it cannot be asked now
    std::function<void(const rendezvous::LookAnswer&)> answer;  // the coordinator
    // Carries out an order about this node, such as "stop"; returns what is answered, as JSON. Empty: no such order.
    std::function<std::string(const rendezvous::LookRequest& order)> obey;
  };
  using Answered = HangJudge::Answered;

  // `local` and `processes` are what this node answers from.
  JobLooks(rendezvous::asio::io_context& io, std::string incarnation, LocalService& local,
           const RoundProcesses& processes, Sources sources);
  ~JobLooks();
  JobLooks(const JobLooks&) = delete;
  JobLooks& operator=(const JobLooks&) = delete;

  // Asks the whole job. Returns the end of a pipe where the answer comes as JSON, and then the pipe's end. Throws
  // rendezvous::Error if too many ask at the same time, or there is no descriptor left.
  rendezvous::Descriptor begin(const std::string& what);

  // Asks the whole job for this agent itself: `text` is what the question has to say. `answered` is called once, with
  // the nodes of the round; with none if the coordinator cannot be asked.
  void ask(const std::string& what, const std::string& text, Answered answered);

  void on_request(const rendezvous::LookRequest& request);
  void on_answer(rendezvous::LookAnswer answer);
  void on_end(rendezvous::LookEnd end);

  // Tells the coordinator's own agent, unasked, what the workers of this node did before they were stopped: the report
  // of the job's failure there has the stacks of all nodes. On that node itself it does nothing.
  void volunteer(const std::vector<WorkerStacks>& stacks);
  // Returns what the other nodes have told in this way.
  std::vector<WorkerStacks> volunteered() const;
  void forget_volunteered() { volunteered_.clear(); }

  // Gives up all questions, so that nothing here keeps io running.
  void stop();

 private:
  struct Look;

  void wait_for_end(std::int64_t number, bool is_asked);
  void finish(std::int64_t number, rendezvous::LookEnd end);
  static void hand_over(Look& look, const rendezvous::LookEnd& end);
  void take_stacks(std::int64_t number);
  std::string put_together(Look& look, rendezvous::LookEnd end) const;

  rendezvous::asio::io_context& io_;
  const std::string incarnation_;
  LocalService& local_;
  const RoundProcesses& processes_;
  const Sources sources_;
  std::map<std::int64_t, std::shared_ptr<Look>> asking_;  // by number
  std::map<std::int64_t, std::shared_ptr<Look>> writing_;
  std::map<std::int64_t, std::shared_ptr<StackHelper>> taking_;  // by the coordinator's number
  std::map<std::string, std::string> volunteered_;               // JSON, by incarnation
  std::int64_t next_number_ = 1;
};

}  // namespace ddp::launcher
