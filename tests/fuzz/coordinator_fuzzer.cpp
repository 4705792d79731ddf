// SPDX-License-Identifier: BSD-3-Clause
// libFuzzer for the link's codec and the coordinator's core together. An input is a job's shape and a script: what five
// agents do, which obey, lie, repeat old states, claim to be each other, come and go. The first is the
// coordinator's own, and honest. Lies and bytes pass the codec; the rest only accept(), for speed. After each step this
// must hold:
//   * Each directive is one that an agent accepts, as it is.
//   * The ranks of a round do not overlap and lie within the world.
//   * A job that is over stays over; every round follows from the one before.
//   * After a Tick the core asks for no other one at once.
//   * What it holds has a limit (CoordinatorCore::Held).
#include <algorithm>
#include <array>
#include <csignal>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rendezvous/base/check.hpp"
#include "rendezvous/coordinator/core/coordinator_core.hpp"
#include "rendezvous/link/accept.hpp"
#include "rendezvous/link/codec.hpp"
#include "tests/fuzz/coordinator_script.hpp"
#include "tests/fuzz/lies.hpp"

namespace ddp::fuzz {
namespace {

using namespace rendezvous;
using std::chrono::milliseconds;

constexpr std::size_t kOpenLinks = kPeers + 3;  // some of them half open

struct Peer {
  AgentState state;  // what it said last, or would say if it were honest
  std::vector<AgentState> said;
  std::optional<Directive> told;
  AgentId link = 0;      // 0: it has none
  FrameDecoder decoder;  // the coordinator's, of that link
};

class Run {
 public:
  explicit Run(Script& script) : script_(script), shape_(read_shape(script)), core_(config(shape_)) {
    for (std::size_t i = 0; i < kPeers; ++i) {
      AgentState& state = peers_[i].state;
      state.job = shape_;
      state.host = state.incarnation = "n" + std::to_string(i);
      state.addresses = {"10.0.0." + std::to_string(i)};
      state.endpoint_host = state.coordinator_address = "10.0.0.0";
      state.node_rank = static_cast<int>(i);
      state.role = "default";
      state.slots = 1 + static_cast<int>(i % 2);
    }
    open(0);
    say(0, peers_[0].state);
  }

  void step() {
    const unsigned head = script_.byte();
    const std::size_t i = (head & 7) % kPeers;
    Peer& peer = peers_[i];
    switch (static_cast<Step>(head >> 3 & 15)) {
      case Step::Open:
        return open(i);
      case Step::Close:
        return close(i);
      case Step::Honest:
        return say(i, peer.state);
      case Step::Obey:
        obey(peer);
        return say(i, peer.state);
      case Step::Succeed:
        peer.state.phase = WorkersPhase::Idle;
        peer.state.succeeded = peer.state.round > 0 && peer.state.failures.empty();
        return say(i, peer.state);
      case Step::Fail:
        if (peer.told && peer.state.failures.empty() && peer.state.round > 0) fail(peer);
        return say(i, peer.state);
      case Step::Lie:
        return lie(i, 1 + (head >> 7));
      case Step::LieForEver:  // it goes on from what it said
        if (i > 0) change(peer.state, script_);
        return say(i, peer.state);
      case Step::Repeat:
        if (!peer.said.empty()) say(i, peer.said[script_.byte() % peer.said.size()]);
        return;
      case Step::Claim: {
        AgentState claimed = peers_[script_.byte() % kPeers].state;
        if (i > 0) say(i, claimed);
        return;
      }
      case Step::Bytes:
        return feed(i, script_.bytes(script_.byte()));
      case Step::Beat:
        return feed(i, encode(Heartbeat{}));
      case Step::Wait:
        return wait(milliseconds(100) * (1 + script_.byte()));
      case Step::Store:
        return answer_store(head >> 7 != 0);
      case Step::Signal:
        peer.state.stop_signal = head >> 7 != 0 ? SIGKILL : SIGTERM;
        return say(i, peer.state);
      case Step::Leave:
        peer.state.left = true;
        say(i, peer.state);
        peer.state.left = false;
        return;
    }
  }

 private:
  static CoordinatorConfig config(const JobShape& shape) {
    return {.job = shape,
            .epoch = "epoch",
            .own_incarnation = "n0",
            .join_timeout = std::chrono::seconds(20),
            .last_call = std::chrono::seconds(1),
            .lost_after = std::chrono::seconds(6)};
  }

  void handle(const CoordinatorEvent& event) {
    const bool was_over = core_.over();
    const int round = core_.round();
    std::vector<CoordinatorAction> actions;
    core_.step(now_, event, actions);
    for (const CoordinatorAction& action : actions) {
      if (const auto* send = std::get_if<SendDirective>(&action)) on_directive(*send);
      if (const auto* close = std::get_if<CloseLink>(&action)) closed(close->agent);
      if (const auto* store = std::get_if<OpenStore>(&action)) store_wanted_ = store->round;
    }
    DDP_CHECK(!was_over || core_.over());
    DDP_CHECK(core_.round() == round || core_.round() == round + 1, round, core_.round());
    DDP_CHECK(core_.restarts() <= shape_.max_restarts, core_.restarts());
    const CoordinatorCore::Held held = core_.held();
    const auto nodes = static_cast<std::size_t>(shape_.max_nodes);
    DDP_CHECK(held.nodes <= nodes + kMaxSpares && held.links <= kOpenLinks && held.silent_links <= kOpenLinks);
    DDP_CHECK(held.failures <= nodes * kMaxSlots && held.losses <= nodes * 8, held.failures, held.losses);
  }

  void on_directive(const SendDirective& send) {
    Directive accepted = send.directive;
    const auto why = accept(accepted);
    DDP_CHECK(!why, *why);
    if (send.directive.kind == Directive::Kind::Run) check_ranks(send);
    for (Peer& peer : peers_) {
      if (peer.link != send.agent) continue;
      peer.told = send.directive;
      peer.state.epoch = send.directive.epoch;
    }
  }

  void check_ranks(const SendDirective& send) {
    const Assignment& place = send.directive.assignment;
    auto& places = rounds_[send.directive.round];
    const auto [other, is_new] = places.emplace(place.node_rank, place);
    DDP_CHECK(is_new || other->second == place, place.node_rank);
    for (auto a = places.begin(), b = std::next(a); b != places.end(); ++a, ++b) {
      DDP_CHECK(a->second.base_rank < b->second.base_rank, a->first, b->first);
      DDP_CHECK(a->second.world_size == b->second.world_size);
    }
    if (rounds_.size() > 4) rounds_.erase(rounds_.begin());
  }

  void open(std::size_t i) {
    if (i == 0 && peers_[0].link != 0) return;
    if (peers_[i].link != 0) half_open_.push_back(peers_[i].link);  // the coordinator may see its end later
    if (half_open_.size() > 2) end_half_open();
    peers_[i].link = next_link_++;
    peers_[i].decoder = {};
    handle(AgentLinked{peers_[i].link, address(i)});
  }
  void end_half_open() {
    const AgentId link = half_open_.front();
    half_open_.erase(half_open_.begin());
    handle(AgentGone{link, "reset"});
  }
  void close(std::size_t i) {
    if (i == 0 || peers_[i].link == 0) return;
    handle(AgentGone{std::exchange(peers_[i].link, 0), "reset"});
  }
  void closed(AgentId link) {
    for (Peer& peer : peers_) {
      if (peer.link == link) peer.link = 0;
    }
    std::erase(half_open_, link);
  }

  static std::string address(std::size_t i) { return i == 0 ? "" : "10.0.0." + std::to_string(i); }

  void say(std::size_t i, AgentState state) {
    remember(i, state);
    if (peers_[i].link == 0) return;
    if (accept(state)) return handle(AgentGone{std::exchange(peers_[i].link, 0), "nonsense"});
    report(i, std::move(state));
  }
  void remember(std::size_t i, const AgentState& state) {
    peers_[i].said.push_back(state);
    if (peers_[i].said.size() > 8) peers_[i].said.erase(peers_[i].said.begin());
  }
  void report(std::size_t i, AgentState state) {
    handle(AgentReported{peers_[i].link, std::move(state), address(i), i == 0 ? "" : "10.0.0.0"});
  }

  void lie(std::size_t i, unsigned changes) {
    AgentState lie = peers_[i].state;
    for (unsigned n = 0; n < changes && i > 0; ++n) change(lie, script_);
    remember(i, lie);
    feed(i, encode(lie));
  }

  // Does what LinkStream and Coordinator do.
  void feed(std::size_t i, std::string_view bytes) {
    Peer& peer = peers_[i];
    if (peer.link == 0) return;
    peer.decoder.feed(bytes);
    while (peer.link != 0) {
      DecodedFrame next = peer.decoder.next();
      if (std::holds_alternative<NeedMore>(next)) return;
      if (auto* state = std::get_if<AgentState>(&next)) {
        report(i, std::move(*state));
      } else if (std::holds_alternative<Heartbeat>(next)) {
        handle(AgentBeat{peer.link});
      } else {
        return handle(AgentGone{std::exchange(peer.link, 0), "nonsense"});
      }
    }
  }

  static void obey(Peer& peer) {
    if (!peer.told || peer.told->round < peer.state.round) return;
    AgentState& state = peer.state;
    const bool is_new = peer.told->round > state.round;
    if (is_new && (peer.told->kind == Directive::Kind::Run || peer.told->kind == Directive::Kind::Stop)) {
      state.round = peer.told->round;
      state.failures.clear();
      state.succeeded = false;
      state.stopped_because.clear();
    }
    if (peer.told->kind == Directive::Kind::Run) state.phase = is_new ? WorkersPhase::Running : state.phase;
    if (peer.told->kind == Directive::Kind::Stop) state.phase = WorkersPhase::Idle;
    if (peer.told->kind == Directive::Kind::Exit) {
      state.phase = WorkersPhase::Idle;
      state.left = true;
    }
  }

  static void fail(Peer& peer) {
    WorkerFailure failure;
    failure.rank = peer.told->assignment.base_rank;
    failure.host = peer.state.host;
    failure.status.code = 7;
    failure.already_exiting = true;
    peer.state.failures.push_back(failure);
    peer.state.succeeded = false;
  }

  void answer_store(bool fails) {
    if (!store_wanted_) return;
    const int round = *std::exchange(store_wanted_, std::nullopt);
    handle(StoreOpened{round, "", 29500, fails ? "no port" : ""});
  }

  void wait(milliseconds time) {
    const TimePoint until = now_ + time;
    for (int ticks = 0; core_.wake_at() && *core_.wake_at() <= until; ++ticks) {
      DDP_CHECK(ticks < 1000);
      now_ = std::max(now_, *core_.wake_at());
      handle(CoordinatorTick{});
      DDP_CHECK(!core_.wake_at() || *core_.wake_at() > now_, static_cast<int>(core_.phase()));
    }
    now_ = until;
  }

  Script& script_;
  const JobShape shape_;
  CoordinatorCore core_;
  std::array<Peer, kPeers> peers_;
  std::vector<AgentId> half_open_;
  AgentId next_link_ = 1;
  std::optional<int> store_wanted_;
  std::map<int, std::map<int, Assignment>> rounds_;  // places by round and node rank
  TimePoint now_{std::chrono::seconds(1000)};
};

}  // namespace
}  // namespace ddp::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ddp::fuzz::Script script(data, size);
  ddp::fuzz::Run run(script);
  while (!script.ended()) run.step();
  return 0;
}
