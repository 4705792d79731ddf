// SPDX-License-Identifier: BSD-3-Clause
// What another life of the coordinator has to know, and its form in a journal. It has what was decided. What agents say
// of themselves is not in it, since each agent says it again over its new link: what its workers do, and how they
// ended. It has no times either, only how long ago something was when the record was made: the next life may have
// another clock.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "rendezvous/link/messages.hpp"

namespace ddp::rendezvous {

struct JobRecord {
  using Age = std::chrono::milliseconds;

  // Where each life has an epoch of its own: names the job, all its lives from the first on. An agent belongs to it if
  // it says this name and no greater epoch than the newest life's. One name stands for any number of epochs.
  std::string instance;
  std::string node, host;  // the node whose coordinator wrote this (CoordinatorConfig), and its name

  int phase = 0;  // CoordinatorCore::Phase
  int round = 0;
  int restarts = 0;
  std::optional<WorkerFailure> cause;
  bool is_restart = false;
  Why why = Why::None;  // the kind of why_round
  std::string why_round;
  std::string who_makes_room;
  std::optional<Age> gathers_since;  // nodes are awaited, at most for `gathers_for`
  Age gathers_for{0};
  std::optional<Directive> run;   // Running: as node rank 0 has it
  std::optional<Directive> exit;  // Over
  std::string own;                // incarnation of the newest agent of the coordinator's node

  // About the newest round, once it is being stopped.
  struct Stop {
    int trigger = 0;  // Trigger
    Why why = Why::None;
    std::string reason;
    int exit_code = 1;
    bool at_once = false;
    int signal = 0;
    std::vector<int> dead;
    std::optional<WorkerFailure> cause;
    bool operator==(const Stop&) const = default;
  } stop;
  struct Failure {
    std::string node, name;
    Age seen{0};
    WorkerFailure failure;
    bool operator==(const Failure&) const = default;
  };
  std::vector<Failure> failures;
  struct Loss {
    Age noticed{0};
    std::string text, stopped_itself;
    int hang = 0;
    std::string name;
    Why why = Why::None;
    bool operator==(const Loss&) const = default;
  };
  std::vector<Loss> losses;

  std::vector<Age> spent;  // restarts of the budget, oldest first
  std::map<std::string, int> first_causes;

  // The job before this one that had the same id, and had ended when this one began: its nodes may not know yet.
  struct Before {
    std::string instance;
    Directive exit;
    bool operator==(const Before&) const = default;
  };
  std::optional<Before> before;

  // The newest round's nodes, by node rank. One without an incarnation is no longer there.
  struct Member {
    std::string incarnation, host, address, arrived_at, endpoint_host, coordinator_address, role;
    std::vector<std::string> addresses;
    int node_rank = 0, wanted_rank = -1, slots = 0;
    int base_rank = 0, base_role_rank = 0, role_world_size = 0;  // its place in the round
    bool can_look = false, leaving = false;
    Age heard{0};  // the newest word from it
    bool operator==(const Member&) const = default;
  };
  std::vector<Member> members;

  bool operator==(const JobRecord&) const = default;
};

// Returns what a node of the record said of itself, without the job and the epoch.
AgentState state_of(const JobRecord::Member& member);
// Returns `run` as the member with this node rank has it.
Directive run_for(const JobRecord::Member& member, std::size_t node_rank, Directive run);

std::string encode(const JobRecord& record);
// Returns the record, or why this is none: "version 2, this ddprun reads 1".
std::variant<JobRecord, std::string> decode_record(std::string_view text);
// Returns what is wrong with a record; nothing: it is accepted, and its words are printable (accept_record.cpp).
std::optional<std::string> accept(JobRecord& record);

}  // namespace ddp::rendezvous
