// SPDX-License-Identifier: BSD-3-Clause
// Asks the agent of this node something, over the socket that kAgentSocket in worker_contract.hpp names. A connection
// carries one request and one answer, each one message (SOCK_SEQPACKET): a JSON object on one line, whose `version` is
// kAgentSocketVersion.
//
//     {"version":1,"ask":"state"}                      -> what the job does here: launcher/local/job_view.hpp
//     {"version":1,"ask":"page","incarnation":"..."}   -> {"version":1,"local_rank":0}, and two descriptors: the memory
//                                                         of the node's page and of the workers' pages
//     {"version":1,"ask":"keep","incarnation":"...","layout":...,"name":"...","bytes":4096}
//                                                      -> {"version":1,"local_rank":0,"kept":0} without --keep-memory;
//                                                      or
//                                                         {...,"kept":1,"go_on":0,"step":-1} and the descriptor of the
//                                                         memory, with a second one of memory to take the tensors of:
//                                                         `layout` is kKeptVersion of kept/arena.hpp, `go_on` and
//                                                         `step` are those of the plan (kept/kept_core.hpp).
//                                                         With "parts":N the others are N, of memory whose shadows have
//                                                         the parts of the tensors, in their order
//     {"version":1,"ask":"calls","incarnation":"...","layout":...}
//                                                      -> {"version":1}, and the descriptor of memory in which the
//                                                         worker notes its calls (operation_records.hpp); none if it
//                                                         has it, or if `layout` is not kOperationRecordsVersion
//     {"version":1,"ask":"kept","incarnation":"...","name":"..."}
//                                                      -> {"version":1,"local_rank":0}, and the descriptor, for reading
//                                                         only, of what an earlier process of this worker has kept
//                                                         under the name, if there is something
//     {"version":1,"ask":"stacks"}                     -> {"version":1}, and the end of a pipe: what each worker does
//                                                         here, as launcher/diagnosis/stacks/stack_json.hpp shows it
//     {"version":1,"ask":"job"}                        -> {"version":1}, and the end of a pipe: the state of the whole
//                                                         job, as launcher/local/job_view.hpp shows it
//     {"version":1,"ask":"job_stacks"}                 -> {"version":1}, and the end of a pipe: what each node
//                                                         answers, as launcher/local/job_answers.hpp shows it; here
//                                                         its stacks
//     {"version":1,"ask":"job_report"}                 -> the same; what each node puts into a report
//     {"version":1,"ask":"job_stop"}                   -> the same; every node ends the job as SIGTERM does
//     {"version":1,"ask":"job_save:USR1"}              -> the same; every worker gets the signal, but none of a node
//                                                         where one would not handle it
//
// The rest is about survivors (ddprun --on-failure replace or shrink). An answer has nothing but the version, unless it
// says so.
//
//     {"version":1,"ask":"stay","incarnation":"...","stays":1}
//                                                      -> {"version":1,"stays":1,"lost_after_ms":15000}: when another
//                                                         worker fails, this one leaves its groups and waits for the
//                                                         next round; 0 in the answer if it cannot be had, in the
//                                                         question if no longer. A node counts as lost after a silence
//                                                         of lost_after_ms, 0: never; so long may it take until ddprun
//                                                         knows why a group has failed
//     {"version":1,"ask":"quiet","incarnation":"...","round":3}
//                                                         it has left the groups of this round of the page
//     {"version":1,"ask":"connections","incarnation":"...","others":0,"sockets":"123,456"}
//                                                      -> {"version":1,"ends_them":1}: when the round is revoked, the
//                                                         agent shuts these TCP sockets of the worker down, by inode,
//                                                         or with "others":1 all but these; 0 if it may not do that
//                                                         here
//     anything else                                    -> {"version":1,"error":"..."}
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/base/descriptor_message.hpp"

namespace ddp::rendezvous {

inline constexpr int kAgentSocketVersion = 1;

// Blocks until the answer is there. Throws Error, with code PeerLost if nobody listens at `path`, and Timeout if no
// answer comes within five seconds.
DescriptorMessage ask_agent(const std::string& path, const std::string& request);

// The two halves of it, for those who ask several agents at once. send_to_agent() returns the connection, which is
// readable once the answer is there; it waits for its place in the agent's queue, which is long. receive_answer() does
// not wait. Both throw as ask_agent() does.
Descriptor send_to_agent(const std::string& path, const std::string& request, std::chrono::milliseconds for_its_place);
DescriptorMessage receive_answer(int connection, const std::string& path);
inline constexpr std::chrono::seconds kAnswerWithin{5};
// Throws what ask_agent() does if no answer comes in time.
[[noreturn]] void throw_no_answer(const std::string& path);

// Return a member of an answer; nothing if there is none of this name and kind.
std::optional<std::int64_t> number_in(const std::string& answer, const std::string& name);
std::optional<std::string> text_in(const std::string& answer, const std::string& name);

}  // namespace ddp::rendezvous
