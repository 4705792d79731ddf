// SPDX-License-Identifier: BSD-3-Clause
// What the coordinator's core is made with (CoordinatorConfig), what happens to it (events), and what it has its driver
// do (actions).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/coordinator/core/job_record.hpp"
#include "rendezvous/coordinator/core/roster.hpp"
#include "rendezvous/coordinator/core/seats.hpp"
#include "rendezvous/link/messages.hpp"

namespace ddp::rendezvous {

struct CoordinatorConfig {
  JobShape job;
  std::string epoch;             // names this life of the coordinator
  bool epoch_is_number = false;  // each life has one of its own, and the next one may be on another node
  // Where it may: a random id of this node's ddprun, its name, and the newest epoch that one of its agents has obeyed.
  // Empty: they have obeyed none, so this node is no part of a job yet.
  std::string node, host, own_epoch = {};
  // The agent of the coordinator's node, which has node rank 0. Where it is in this process, it is never lost. Else it
  // may die alone, and another one takes its place: the one that reports without an address.
  std::string own_incarnation;
  bool own_is_here = true;
  bool keeps_record = false;                                           // decisions are recorded before they are sent
  std::chrono::milliseconds join_timeout = std::chrono::seconds(600);  // for the first nodes, and for a replacement
  std::chrono::milliseconds last_call = std::chrono::seconds(30);      // elastic: wait for more nodes than min
  std::chrono::milliseconds lost_after = std::chrono::seconds(15);     // a node that is silent for this long is lost
  // A node that is told to stop its workers has done so by then; 0: this is not watched.
  std::chrono::milliseconds stops_within{0};
  std::chrono::milliseconds stays_over_for{0};  // at least, once the job is over: for nodes that it does not know
  std::size_t max_unheard_links = 1024;         // links without a node that may be open
  SeatOrder seat_order = SeatOrder();           // ranks nodes that come together
};

// ---- events ----
struct AgentLinked {  // a link is up, and nobody has reported over it
  AgentId agent;
  std::string address = {};  // as in AgentReported
  std::string share = {};    // share_of() this address
};
struct AgentReported {  // the first report on a link says which agent it is
  AgentId agent;
  AgentState state;
  std::string address = {};     // numeric, where the link comes from; empty: from this process
  std::string arrived_at = {};  // numeric, this machine's address at which it arrived
};
struct AgentBeat {  // a heartbeat
  AgentId agent;
};
struct AgentGone {  // the link broke
  AgentId agent;
  std::string why;
};
struct StoreOpened {  // the answer to OpenStore
  int round;
  std::string address;  // MASTER_ADDR, if it was given; empty: it follows from how the nodes reached this one
  std::uint16_t port;
  std::string why_not = {};  // why there is no store; empty: there is one
};
struct CoordinatorTick {};  // the time has come that wake_at() named
// Before any other event: what another life of this coordinator has left. Nothing: there is no record, though there may
// have been another life.
struct Recovered {
  std::optional<JobRecord> record = {};
  std::chrono::milliseconds age{0};  // at least this old is the record
};
struct StoreLost {  // the process with the store was killed, and another one has an empty store
  int clients = 0;  // connections of workers that it had
  std::string why;  // "the store (pid 4711) was killed by SIGKILL"
};
using CoordinatorEvent =
    std::variant<AgentLinked, AgentReported, AgentBeat, AgentGone, StoreOpened, CoordinatorTick, Recovered, StoreLost>;

// ---- actions ----
struct SendDirective {
  AgentId agent;
  Directive directive;
};
struct AnswerBeat {  // answer a heartbeat with one
  AgentId agent;
};
struct CloseLink {  // without a message: the node has a newer link or is lost, or what it said cannot be true
  AgentId agent;
};
struct OpenStore {  // open an empty store for this round; connections to the one before are closed
  int round;
  std::vector<std::string> addresses;  // numeric, the members'; connections from elsewhere are refused
};
struct PublishFailure {  // write into the store, for the workers that are still running, why their round ends
  std::string text;
  std::vector<int> ranks;  // that died, in order; of a lost node all of its ranks; none if a node comes or leaves
};
struct CoordinatorLogLine {  // for the user, on the coordinator's node
  std::string text;
  bool is_about_stranger = false;  // strangers can cause any number of lines
};
struct RecordNode {  // for the job's records: another node came in, was refused, or is no longer part of the job
  enum class What { Joined, Refused, Left };
  What what = What::Joined;
  std::string host;
  std::string address;  // numeric
  std::string why;      // a sentence; empty if it joined
};
// Keep this in the journal: none of the actions after it may be carried out before it is kept, but for AnswerBeat,
// which tells no decision (RecordGate). Numbers grow by one, from 1.
struct Record {
  std::uint64_t number = 0;
  std::string content;  // encode(JobRecord)
};
// The job is over, and the agent of the coordinator's node has left, last of all: the coordinator ends. Only where the
// next one may be on another node. If each node has heard how the job ended, the record is to go; else it says so to
// the others for as long as it is there.
struct JobDone {
  bool may_be_forgotten = false;
};
// The coordinator's own node has left, and the others go on: the coordinator ends, and gives up what it holds, so that
// another node can coordinate. Only where it may be another one.
struct StepDown {};
using CoordinatorAction = std::variant<SendDirective, AnswerBeat, CloseLink, OpenStore, PublishFailure,
                                       CoordinatorLogLine, RecordNode, Record, JobDone, StepDown>;
using CoordinatorActions = std::vector<CoordinatorAction>;

}  // namespace ddp::rendezvous
