// SPDX-License-Identifier: BSD-3-Clause
// Counts what the seeds have reached: which event met which phase of a core, and the rare branches that must be reached
// sometimes. A simulator that never gets there proves nothing.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "launcher/agent/agent_core.hpp"
#include "rendezvous/coordinator/core/coordinator_core.hpp"

namespace ddp::sim {

enum class Branch {
  RestartAfterFailure,
  RestartAfterLoss,
  RoundAfterMembership,
  SpareWaits,
  SpareTakesAPlace,
  SeatsCloseUp,
  ChallengerRefused,
  ChallengerBecomesHolder,
  ShapeRefused,
  SecretRefused,
  OtherEpochRefused,
  LostBySilence,
  LostByCut,
  CoordinatorDied,
  LinkCameBack,
  NewLinkOvertook,
  LostNodeCameBack,
  LeaseKill,
  KeeperKilled,
  DeadmanNoticed,
  LinkGivenUp,
  OwnSleepForgiven,
  BudgetUsedUp,
  JoinTimeout,
  NoReplacement,
  LastCall,
  AllSucceeded,
  ShutdownDeadline,
  NodeLeaves,
  UserStopsJob,
  SecondSignal,
  StopAtOnce,
  DecidedAlone,
  Unkillable,
  UnkillableEndsJob,
  TermIgnored,
  LeftoversIgnoreTerm,
  GuardianGone,
  StoreFailed,
  SpawnFailed,
  StopMetTheStart,
  AgentNeverJoined,
  CoordinatorGone,
  LossExplainsFailure,
  PeerReportedFirst,
  ProcessSlept,
  AddressesDiffer,
  NumericAddress,
  Revoked,
  Stayed,
  FaultyRuns,
  FaultyWaits,
  HangRestarts,
  HangEnds,
  WentOnWithFewer,
  WentOnWithMore,
  QuietInWait,
  AboutToEnd,
  CoordinatorKilled,
  UntoldIsKept,
  UntoldIsForgotten,
  TakenOver,
  Doubts,
  SureAgain,
  HolderLost,
  OlderIsFencedOff,
  WriteFencedOff,
  RecordRemoved,
  EndIsLeftToOthers,
  SteppedDown,
  RecordIsOfLivingJob,
  AnotherJobBegins,
  HeadGone,
  Count,
};

class Coverage {
 public:
  void event(const rendezvous::CoordinatorEvent& event, rendezvous::CoordinatorCore::Phase phase) {
    ++coordinator_[event.index()][static_cast<std::size_t>(phase)];
  }
  void event(const launcher::AgentEvent& event, launcher::AgentCore::Phase phase) {
    ++agent_[event.index()][static_cast<std::size_t>(phase)];
  }
  void reached(Branch branch) { ++branches_[static_cast<std::size_t>(branch)]; }

  void add(const Coverage& other);
  void print() const;
  // Returns a sentence for each thing that has to be reached and never was.
  std::vector<std::string> missing() const;

  // Sums over all seeds.
  std::uint64_t events = 0, rounds = 0, workers = 0;
  // Least times from the last act of a lost node's workers until the node counts as lost (because its link broke, or
  // because it was silent), and until the first worker of the next round starts.
  std::chrono::milliseconds least_margin_cut{1 << 30}, least_margin_silence{1 << 30}, least_margin_round{1 << 30};

 private:
  static constexpr std::size_t kCoordinatorEvents = std::variant_size_v<rendezvous::CoordinatorEvent>;
  static constexpr std::size_t kAgentEvents = std::variant_size_v<launcher::AgentEvent>;
  std::array<std::array<std::uint64_t, 5>, kCoordinatorEvents> coordinator_{};
  std::array<std::array<std::uint64_t, 9>, kAgentEvents> agent_{};
  std::array<std::uint64_t, static_cast<std::size_t>(Branch::Count)> branches_{};
};

}  // namespace ddp::sim
