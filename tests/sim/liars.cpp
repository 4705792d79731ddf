// SPDX-License-Identifier: BSD-3-Clause
// Agents that are none of the job's, or lie: they obey for a while, lie, repeat old states, leave out and reorder what
// an honest agent would say, and claim to be others. What they say passes the link's codec, as in LinkStream. And a
// coordinator that lies to agents.
#include <algorithm>
#include <csignal>

#include <nlohmann/json.hpp>

#include "rendezvous/coordinator/core/job_record.hpp"
#include "rendezvous/link/accept.hpp"
#include "tests/fuzz/lies.hpp"
#include "tests/sim/world.hpp"

namespace ddp::sim {

using namespace rendezvous;

namespace {

constexpr std::size_t kRemembered = 8;
constexpr int kLinksKept = 3;  // links of one liar that it neither uses nor closes

// Changes some things in a message.
template <typename Message>
void tell_lies(Message& message, Random& random, int changes) {
  std::array<std::uint8_t, 64> bytes{};
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random.below(256));
  fuzz::Script script(bytes.data(), bytes.size());
  for (int i = 0; i < changes; ++i) fuzz::change(message, script);
}

}  // namespace

void World::start_liars() {
  const Plan& plan = scene_.plan;
  for (int i = 0; i < plan.liars; ++i) {
    Liar& liar = liars_.emplace_back(Liar{kFirstLiarsMachine + i, Random(plan.seed, {18, i}), {}, {}, {}});
    liar.state.job = plan.job;
    liar.state.host = "liar" + std::to_string(i);
    liar.state.incarnation = std::to_string(liar.random.below(100000)) + "." + liar.state.host;
    liar.state.addresses = {address_of(liar.machine, "10.1.")};
    liar.state.endpoint_host = endpoint_host(plan, 1);
    liar.state.coordinator_address = coordinator_address(plan, 1);
    liar.state.node_rank = liar.random.below(plan.job.max_nodes);
    liar.state.role = "trainer";
    liar.state.slots = liar.random.between(1, 3);
    queue_.at(now() + liar.random.between(Duration(0), milliseconds(plan.lies_until)),
              [this, liar_index = static_cast<std::size_t>(i)] { act(liar_index); });
  }
  if (plan.liars > 0) queue_.at(now() + plan.lies_until, [this] { end_liars(); });
  if (plan.liars > 0) faults_end_ = std::max(faults_end_, now() + plan.lies_until);
}

void World::end_liars() {
  for (LinkId id = 0; id < scene_.network.links(); ++id) {
    if (scene_.network.link(id).process < 0) break_coordinators_end(id, "closed by the agent");
  }
  liars_.clear();
}

Liar* World::liar_on(LinkId link) {
  const auto liar = std::find_if(liars_.begin(), liars_.end(), [link](const Liar& l) { return l.link == link; });
  return liar == liars_.end() ? nullptr : &*liar;
}

void World::act(std::size_t index) {
  if (index >= liars_.size()) return;
  Liar& liar = liars_[index];
  Random& random = liar.random;
  const Duration pause =
      random.percent(80) ? random.between(Duration(0), milliseconds(500)) : random.between(Duration(0), seconds(8));
  queue_.at(now() + pause, [this, index] { act(index); });
  if (!scene_.coordinator || !scene_.coordinator->alive) return;
  if (liar.link < 0 || random.percent(3)) return open_liars_link(liar);
  const int dice = random.below(100);
  if (dice < 35) {
    obey(liar);
    if (random.percent(20)) liar.state.left = false;
    say(liar, liar.state);
  } else if (dice < 60) {
    AgentState lie = liar.state;
    tell_lies(lie, random, random.between(1, 2));
    say(liar, lie);
  } else if (dice < 65) {
    tell_lies(liar.state, random, 1);  // from now on
    say(liar, liar.state);
  } else if (dice < 72 && !liar.said.empty()) {
    say(liar, AgentState(liar.said[static_cast<std::size_t>(random.below(static_cast<int>(liar.said.size())))]));
  } else if (dice < 80 && scene_.plan.lies == Lies::Claimants) {
    const int victim = random.below(static_cast<int>(scene_.processes.size()));
    AgentState claimed = scene_.process(victim).core.state();
    if (random.percent(50)) tell_lies(claimed, random, 1);
    say(liar, claimed);
  } else if (dice < 84) {
    std::string bytes;
    for (int i = random.between(1, 12); i > 0; --i) bytes += static_cast<char>(random.below(256));
    send_bytes(liar, bytes);
  } else if (dice < 90) {
    send_bytes(liar, encode(Heartbeat{}));
  } else if (dice < 94) {
    break_coordinators_end(liar.link, "Connection reset by peer");
    liar.link = -1;
  } else if (liar.told && liar.state.round > 0) {
    liar.state.phase = WorkersPhase::Idle;
    liar.state.succeeded = random.percent(70);
    if (liar.state.succeeded) liar.state.failures.clear();
    say(liar, liar.state);
  }
}

// Carries out the newest directive, as an honest agent would.
void World::obey(Liar& liar) {
  if (!liar.told) return;
  AgentState& state = liar.state;
  const Directive& told = *liar.told;
  state.epoch = told.epoch;
  const bool is_about_round = told.kind == Directive::Kind::Run || told.kind == Directive::Kind::Stop;
  if (is_about_round && told.round > state.round) {
    state.round = told.round;
    state.failures.clear();
    state.succeeded = false;
    state.phase = told.kind == Directive::Kind::Run ? WorkersPhase::Running : WorkersPhase::Idle;
  } else if (told.kind == Directive::Kind::Stop) {
    state.phase = WorkersPhase::Idle;
  }
  if (told.kind == Directive::Kind::Exit) {
    state.phase = WorkersPhase::Idle;
    state.left = true;
  }
}

void World::open_liars_link(Liar& liar) {
  Coordinator& coordinator = *scene_.coordinator;
  const auto open = std::count_if(coordinator.links.begin(), coordinator.links.end(), [&](const auto& entry) {
    const Link& link = scene_.network.link(entry.second);
    return link.process < 0 && link.machine == liar.machine;
  });
  if (open > kLinksKept || scene_.coordinators_process().asleep) return;
  const LinkId id = scene_.network.open(now(), -1, liar.machine, false);
  Link& link = scene_.network.link(id);
  link.agent_id = scene_.next_agent++;
  coordinator.links[link.agent_id] = id;
  liar.link = id;
  liar.decoder = {};
  mark(7, liar.machine);
  deliver_to(coordinator, [this, &coordinator, id] {
    const Link& linked = scene_.network.link(id);
    if (linked.coordinator_open) handle(coordinator, AgentLinked{linked.agent_id, address_of(linked.machine)});
  });
}

void World::say(Liar& liar, const AgentState& state) {
  if (liar.said.size() == kRemembered) liar.said.erase(liar.said.begin());
  liar.said.push_back(state);
  send_bytes(liar, encode(liar.said.back()));
}

void World::send_bytes(Liar& liar, const std::string& bytes) {
  const auto index = static_cast<std::size_t>(&liar - liars_.data());
  const auto time = scene_.network.arrival(now(), liar.link, Way::Up);
  if (!time) return;
  queue_.at(*time, [this, index, link = liar.link, bytes] {
    if (!scene_.coordinator) return;
    deliver_to(*scene_.coordinator, [this, index, link, bytes] { bytes_arrive(index, link, bytes); });
  });
}

// Does what LinkStream and Coordinator do.
void World::bytes_arrive(std::size_t index, LinkId id, const std::string& bytes) {
  if (index >= liars_.size() || liars_[index].link != id) return;
  liars_[index].decoder.feed(bytes);
  const Link link = scene_.network.link(id);
  while (index < liars_.size() && liars_[index].link == id && scene_.network.link(id).coordinator_open) {
    DecodedFrame next = liars_[index].decoder.next();
    if (std::holds_alternative<NeedMore>(next)) return;
    if (auto* state = std::get_if<AgentState>(&next)) {
      note("liar", [&] { return state->host + " says something on link " + std::to_string(link.agent_id); });
      handle(*scene_.coordinator,
             AgentReported{link.agent_id, std::move(*state), address_of(link.machine), arrived_at(scene_.plan, 1)});
    } else if (std::holds_alternative<Heartbeat>(next)) {
      handle(*scene_.coordinator, AgentBeat{link.agent_id});
    } else {
      const auto* malformed = std::get_if<Malformed>(&next);
      liars_[index].link = -1;
      return break_coordinators_end(id, malformed ? malformed->why : "the other direction's message");
    }
  }
}

// Changes some things in the record with which a coordinator begins. A record that it refuses ends the job with a word,
// and is as it was here.
void World::lie_about_job(const Coordinator& coordinator, std::variant<JobRecord, std::string>& read) {
  Random random(scene_.plan.seed, {20, coordinator.index, coordinator.life});
  auto lie = nlohmann::json::parse(*coordinator.kept);
  for (int changes = random.between(0, 3); changes > 0; --changes) {
    const auto parts = lie.flatten();
    const auto one = std::next(parts.begin(), random.below(static_cast<int>(parts.size())));
    const auto other = std::next(parts.begin(), random.below(static_cast<int>(parts.size())));
    auto& changed = lie[nlohmann::json::json_pointer(one.key())];
    if (changed.is_array() || one.key().ends_with("/pid")) continue;  // by which the simulator finds its workers
    if (changed.is_number() && random.percent(90)) {
      changed = random.pick<std::int64_t>({-1, 0, 1, 2, 4, 99, 65535, 2147483647, -4611686018427387904});
    } else if (changed.is_boolean() && random.percent(90)) {
      changed = !changed.get<bool>();
    } else {
      changed = random.percent(20) ? nlohmann::json("\x1b]0;x\x07") : *other;
    }
  }
  for (auto* const list : {&lie["members"], &lie["failures"], &lie["losses"]}) {
    if (list->empty() || !random.percent(20)) continue;
    if (random.percent(50)) {
      list->erase(list->size() - 1);
    } else {
      list->push_back(list->front());
    }
  }
  auto changed = decode_record(lie.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  const auto* const why = std::get_if<std::string>(&changed);
  note("database", [&] { return why ? "it is not believed: " + *why : "it lies about the job"; });
  if (!why) read = std::move(changed);
}

// Sends a directive to an agent, often a changed one. One that the agent does not accept breaks the link.
void World::lie_to_agent(LinkId id, const Directive& directive, Time arrives) {
  Random random(scene_.plan.seed,
                {19, id, static_cast<int>(scene_.network.link(id).newest[1].time_since_epoch().count())});
  Directive lie = directive;
  const bool is_own = scene_.network.link(id).local;
  if (!is_own && now() < kStart + scene_.plan.lies_until && random.percent(30)) {
    tell_lies(lie, random, random.between(1, 2));
    lie.lost_after = std::min<milliseconds>(lie.lost_after, kLongestLie);
  }
  if (const auto why = rendezvous::accept(lie)) {
    queue_.at(arrives, [this, id, said = *why] { break_agents_end(id, said); });
    queue_.at(arrives + milliseconds(1), [this, id] { break_coordinators_end(id, "closed by the agent"); });
    return;
  }
  queue_.at(arrives, [this, id, lie] { directive_arrives(id, lie); });
}

}  // namespace ddp::sim
