// SPDX-License-Identifier: BSD-3-Clause
// Says which promises hold for honest nodes when somebody lies. A liar that the job has let in is one of its nodes: it
// may fail, leave and hold a seat, so what rounds cost, and how soon they come, is in its hand.
#include <algorithm>
#include <initializer_list>

#include "tests/sim/promises/invariants.hpp"

namespace ddp::sim {

namespace {

bool is_one_of(Promise promise, std::initializer_list<Promise> promises) {
  return std::find(promises.begin(), promises.end(), promise) != promises.end();
}

}  // namespace

bool holds_among(Lies lies, Promise promise) {
  if (lies == Lies::None) return true;
  // What an agent does with its own workers, and that nothing crashes or grows, holds with every liar.
  const bool is_own_affair = is_one_of(
      promise, {Promise::NewestRoundOnly, Promise::ReapedBeforeNext, Promise::IdleIsTrue, Promise::QuietIsTrue,
                Promise::ReportsAreTrue, Promise::GuardedOnly, Promise::NothingLeftRunning, Promise::SuccessIsClean,
                Promise::OwnSuccessIsTrue, Promise::ReasonsAreGiven, Promise::StateIsBounded, Promise::NoBusyLoop,
                Promise::CoresThrowNothing, Promise::EveryRunEnds, Promise::UserIsHeard, Promise::OverForEver,
                Promise::BudgetIsKept});
  if (lies == Lies::Database && promise == Promise::ReasonsAreGiven) return false;  // the record may have none
  if (lies == Lies::Coordinator ||
      lies == Lies::Database) {  // it may name any round, let nodes wait for ever, and its budget is its own affair
    return is_own_affair &&
           !is_one_of(promise, {Promise::NewestRoundOnly, Promise::EveryRunEnds, Promise::BudgetIsKept});
  }
  if (is_own_affair) return true;
  // So are these, if the liar cannot speak for an honest node.
  return lies == Lies::Strangers && is_one_of(promise, {Promise::RanksAreExact,
                                                        Promise::MembersAgree,
                                                        Promise::RunIsRepeated,
                                                        Promise::ZeroIsTheCoordinators,
                                                        Promise::GivenRankIsKept,
                                                        Promise::NodesWithinLimits,
                                                        Promise::OnlyMembersRun,
                                                        Promise::StopIsObeyed,
                                                        Promise::OneIncarnation,
                                                        Promise::QuietBeforeNext,
                                                        Promise::LostNodeIsQuiet,
                                                        Promise::LostAreKilled,
                                                        Promise::LostNotTooEarly,
                                                        Promise::LostOnlyInTrouble,
                                                        Promise::LeaseOnlyInTrouble,
                                                        Promise::SuccessIsTrue,
                                                        Promise::OneEnd,
                                                        Promise::CauseGivesCode,
                                                        Promise::HonestAreBelieved,
                                                        Promise::StopEndsInTime});
}

}  // namespace ddp::sim
