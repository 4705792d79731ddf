// SPDX-License-Identifier: BSD-3-Clause
// Asks the agent of this node something, over the socket that kAgentSocket in worker_contract.hpp names. A connection
// carries one request and one answer, each one message (SOCK_SEQPACKET) with one frame (wire/frame.hpp).
//
//     ask            members of the request        answer
//     state                                        an AgentView: what the job does here (launcher/local/job_view.hpp)
//     stacks                                       the end of a pipe: what each worker does here, as
//                                                  launcher/diagnosis/stacks/stack_json.hpp shows it
//     job                                          the end of a pipe: the whole job's state, as a JobView
//     job_stacks     job_report                    the end of a pipe: what each node answers, as
//                                                  launcher/local/job_answers.hpp shows it
//     job_stop       job_save:USR1                 the same; every node ends the job as SIGTERM does, or every worker
//                                                  gets the signal, but none of a node where one would not handle it
//
// Workers ask with their incarnation:
//
//     page                                         local_rank, and two descriptors: the memory of the node's page and
//                                                  of the workers' pages
//     calls          layout                        the descriptor of memory in which the worker notes its calls
//                                                  (operation_records.hpp); none if it has it, or if `layout` is not
//                                                  kOperationRecordsVersion
//     keep           layout, name, bytes           without --keep-memory nothing; or go_on and step of the plan
//                                                  (kept/kept_core.hpp) and the descriptor of the memory, with a second
//                                                  one of memory to take the tensors of. With `parts` the others are
//                                                  that many, of memory whose shadows have the parts of the tensors, in
//                                                  their order. `layout` is kKeptVersion of kept/arena.hpp
//     kept           name                          the descriptor, for reading only, of what an earlier process of this
//                                                  worker has kept under the name, if there is something
//     stay           stays                         stays, lost_after_ms: when another worker fails, this one leaves its
//                                                  groups and waits for the next round (--on-failure replace or
//                                                  shrink); false in the answer if it cannot be had, in the request if
//                                                  no longer. A node counts as lost after a silence of lost_after_ms,
//                                                  0: never; so long may it take until ddprun knows why a group failed
//     quiet          round                         nothing: the worker has left the groups of this round of the page
//     connections    others, sockets: "123,456"    ends_them: when the round is revoked, the agent shuts these TCP
//                                                  sockets of the worker down, by inode, or with `others` all but
//                                                  these; false if it may not do that here
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/base/descriptor_message.hpp"
#include "rendezvous/kept/kept_core.hpp"
#include "rendezvous/wire/frame.hpp"

namespace ddp::rendezvous {

struct AgentRequest {
  static constexpr FrameKind kKind = FrameKind::AgentRequest;
  std::string ask;
  std::string incarnation = {};
  std::uint64_t layout = 0;
  std::string name = {};
  std::int64_t bytes = 0;
  bool stays = false;
  int round = 0;
  bool others = false;
  std::string sockets = {};
};

struct AgentAnswer {
  static constexpr FrameKind kKind = FrameKind::AgentAnswer;
  std::string error = {};  // why the agent refuses; empty: it does not
  int local_rank = -1;
  GoOn go_on = GoOn::Nowhere;
  std::int64_t step = kNoStep;
  int parts = 0;
  bool stays = false;
  std::chrono::milliseconds lost_after{0};
  bool ends_them = false;
};

// Return a request and an answer as frames.
std::string encode(const AgentRequest& request);
std::string encode(const AgentAnswer& answer);
// Returns the request, or why there is none.
std::variant<Malformed, AgentRequest> decode_request(const std::string& text);
// Returns the JSON of an answer of either kind, or in words why it is none.
std::string payload_of(const std::string& answer);

// Blocks until the answer is there. Throws Error, with code PeerLost if nobody listens at `path`, and Timeout if no
// answer comes within five seconds.
DescriptorMessage ask_agent(const std::string& path, const std::string& request);

struct AgentReply {
  AgentAnswer answer;
  std::vector<Descriptor> descriptors;
};
AgentReply ask_agent(const std::string& path, const AgentRequest& request);

// The two halves of it, for those who ask several agents at once. send_to_agent() returns the connection, which is
// readable once the answer is there; it waits for its place in the agent's queue, which is long. receive_answer() does
// not wait. Both throw as ask_agent() does.
Descriptor send_to_agent(const std::string& path, const std::string& request, std::chrono::milliseconds for_its_place);
DescriptorMessage receive_answer(int connection, const std::string& path);
inline constexpr std::chrono::seconds kAnswerWithin{5};
// Throws what ask_agent() does if no answer comes in time.
[[noreturn]] void throw_no_answer(const std::string& path);

}  // namespace ddp::rendezvous
