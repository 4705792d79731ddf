// SPDX-License-Identifier: BSD-3-Clause
// Holds the nodes of one job: what each reported last and over which link, which node rank it has or claims, since when
// it is silent, and how many of them are ready, idle or done. A value inside the coordinator's core: it sends nothing,
// has no clock and knows neither phases nor reasons.
//
// Invariant: each count is the sum over all nodes of what a node counts for. Only count() knows what that is, and a
// node changes only between two calls of it (see change()). So a question costs nothing and a report costs the work for
// one node, however many there are.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/link/messages.hpp"

namespace ddp::rendezvous {

using AgentId = int;              // one per link, given by the driver; a newer link has a higher one
using Incarnation = std::string;  // names one agent process

// What the coordinator knows about one agent process.
struct Node {
  AgentState state;              // its newest report; without a seat it has no failures, since no round has them
  std::string address;           // numeric, where its link comes from; empty: from this process
  std::string arrived_at;        // numeric, this machine's address at which that link arrived
  AgentId link = 0;              // its newest link
  std::optional<TimePoint> cut;  // when that broke; nothing: it is up
  std::string why_cut;
  std::chrono::milliseconds comes_back_within{0};  // after that, or it is lost
  TimePoint heard;                                 // when the newest report or heartbeat came
  struct Silence {
    TimePoint from, to;
  };
  std::optional<Silence> silence;    // the newest time in which neither came for long
  bool unheard_since_sleep = false;  // this process was stopped, and what had come meanwhile was nothing of this node
  TimePoint unheard_since;           // what its newest report tells happened after this
  int arrival = 0;                   // 1 for the first node that came
  Directive directive;               // what it has to do now; sent again when a link comes back
  int seat = -1;                     // its node rank in the newest round; -1: it is not a member
  int base_rank = 0;                 // the rank of its first worker there
  bool leaving = false;              // its user has stopped it, and the others go on
  Incarnation holder;                // the node that holds the node rank it claims; empty: it has none to wait for
  // When the first word came on this link since another node has claimed its node rank; nothing: none has come.
  std::optional<TimePoint> heard_since_claim;
};

inline constexpr std::size_t kNamesShown = 8;  // in one sentence

// Returns "b (10.0.0.2)".
std::string describe(const Node& node);
std::string describe(const std::string& host, const std::string& address);

// A node that was silent for long and speaks again may send a heartbeat first. What it reports, or that its link
// breaks, no later than this after it belongs to the silence.
inline constexpr std::chrono::seconds kAfterSilence{1};

// Time from the end of a node's lease until its workers are dead: its agent kills them, or its keeper a moment later.
inline constexpr std::chrono::milliseconds kKilledWithin{1000};
// Returns how long after the newest word that was answered a node's workers may act. Its lease is two thirds of
// `lost_after`, or shorter where its agent has seen that the link broke.
std::chrono::milliseconds acts_within(std::chrono::milliseconds lost_after);

// Interval between searches for nodes that have been silent for too long.
inline constexpr std::chrono::milliseconds kBetweenSilenceChecks{500};

class Roster {
 public:
  struct Options {
    Incarnation own;                // the agent of the coordinator's node, as long as it is known
    bool own_is_here = true;        // it is in this process: its silence does not count
    bool node_ranks_given = false;  // a node claims the rank it reports
    std::chrono::milliseconds lost_after{0};
    std::chrono::milliseconds back_within = kReconnectWindow;  // for a link that broke
  };
  // Returns since when a node that is found to be gone may have been gone.
  TimePoint gone_since(const Node& node, TimePoint now) const { return node.cut ? silent_since(node, *node.cut) : now; }

  // A node whose link has not come back in time, or that was silent for too long.
  struct Expired {
    Incarnation node;
    TimePoint silent_since;
    bool link_broke;
  };

  explicit Roster(Options options) : options_(std::move(options)) {}

  const std::map<Incarnation, Node>& nodes() const { return nodes_; }
  bool contains(const Incarnation& incarnation) const { return nodes_.contains(incarnation); }
  const Node& at(const Incarnation& incarnation) const { return nodes_.at(incarnation); }
  const Node* find(const Incarnation& incarnation) const;
  // Returns the node whose newest link this is; null: the link is unknown, or older.
  const Node* on_link(AgentId link) const;
  bool has_own() const { return contains(options_.own); }
  bool own_is_here() const { return options_.own_is_here; }
  const Incarnation& own() const { return options_.own; }
  // Another agent of the coordinator's node takes the place of the one before, which is no longer in the roster.
  void set_own(const Incarnation& own) { options_.own = own; }
  bool is_own(const Node& node) const { return node.state.incarnation == options_.own; }

  // Members of the newest round, by node rank; empty: that node is no longer there.
  const std::vector<Incarnation>& seats() const { return seats_; }
  // Whether this node rank has a holder.
  bool is_held(int node_rank) const { return holders_.contains(node_rank); }
  // Returns the nodes that claim the node rank of `holder`.
  std::vector<Incarnation> challengers_of(const Incarnation& holder) const;
  // Notes that a word of the holder of a claimed node rank came, and returns whether the holder lives. What a dead
  // process had sent may arrive late, but all at once; a word more than a heartbeat after another is of a living one.
  bool is_heard_again(const Incarnation& holder, TimePoint now);
  std::vector<Expired> expired(TimePoint now) const;

  // May take a seat in the next round: no process acts on it, its link is up, its node rank is its own.
  bool is_ready(const Node& node) const;
  bool own_is_ready() const;
  // Is ready and not a member of the newest round.
  bool is_spare(const Node& node) const { return is_ready(node) && node.seat < 0; }
  // Is a member of the newest round in which no process of it acts any more.
  bool is_idle(const Node& node) const;
  // Is idle, and all of its workers exited with code 0.
  bool has_succeeded(const Node& node) const { return is_idle(node) && node.state.succeeded; }

  int ready() const { return counts_.ready; }
  int spares() const { return counts_.spares; }
  int members() const { return counts_.members; }
  int succeeded() const { return counts_.succeeded; }
  int idle() const { return counts_.idle; }
  // Returns the number of members with workers that wait for the next round.
  int quiet() const { return counts_.quiet; }
  // Returns the number of members on which a worker is done with all that others need it for.
  int ending() const { return counts_.ending; }
  bool has_broken_link() const { return counts_.cut > 0; }

  // Adds a node that has made its first report, over this link.
  const Node& add(TimePoint now, AgentId link, const AgentState& state, const std::string& address,
                  const std::string& arrived_at = {});
  // Takes in a further report of a node, over its newest link or one that is newer still.
  const Node& update(TimePoint now, AgentId link, const AgentState& state, const std::string& address,
                     const std::string& arrived_at = {});
  void mark_heard(const Incarnation& incarnation, TimePoint now);
  void mark_cut(const Incarnation& incarnation, TimePoint now, const std::string& why);
  void mark_leaving(const Incarnation& incarnation);
  void set_directive(const Incarnation& incarnation, const Directive& directive);
  void set_base_rank(const Incarnation& incarnation, int rank) { nodes_.at(incarnation).base_rank = rank; }
  // Removes a node and gives its node rank to the first that claims it.
  void remove(const Incarnation& incarnation);
  // Gives each node of `seats` its place as its node rank, and the others none.
  void begin_round(int round, std::vector<Incarnation> seats);
  // Restores the nodes of a round that another life of the coordinator had, by node rank, all of them with a broken
  // link; one without an incarnation is no longer there.
  void restore(TimePoint now, int round, const std::vector<Node>& members, const std::string& why_cut);
  // This process was stopped for this long: adds it to every deadline, since what the nodes sent lay unread.
  void forgive_sleep(TimePoint::duration slept);

 private:
  struct Counts {
    int ready = 0, spares = 0, cut = 0, members = 0, idle = 0, quiet = 0, succeeded = 0, ending = 0, challengers = 0;
  };

  void count(const Node& node, int sign);
  template <typename Change>
  const Node& change(const Incarnation& incarnation, Change change) {
    Node& node = nodes_.at(incarnation);
    count(node, -1);
    change(node);
    count(node, 1);
    return node;
  }
  void claim_rank(Node& node);
  bool is_long(TimePoint::duration silence) const { return silence >= options_.lost_after / 3; }
  TimePoint silent_since(const Node& node, TimePoint until) const;

  Options options_;
  std::map<Incarnation, Node> nodes_;
  std::map<AgentId, Incarnation> links_;
  std::map<int, Incarnation> holders_;  // by node rank, if those are given
  std::vector<Incarnation> seats_;
  int round_ = 0;  // the newest
  int arrivals_ = 0;
  Counts counts_;
};

}  // namespace ddp::rendezvous
