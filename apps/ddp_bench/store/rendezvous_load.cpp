// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddp_bench/store/rendezvous_load.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "apps/ddp_bench/store/server_cost.hpp"
#include "rendezvous/base/pipe.hpp"
#include "rendezvous/link/client.hpp"
#include "rendezvous/net/asio.hpp"
#include "rendezvous/net/listen.hpp"

namespace ddp::bench {

namespace {

using namespace rendezvous;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kPatience{60};
constexpr char kJobId[] = "bench";

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Returns a port that was free a moment ago.
std::uint16_t free_port() { return listen_on({"127.0.0.1"}, 0).port; }

pid_t only_child(pid_t parent) {
  pid_t child = 0;
  const std::string pid = std::to_string(parent);
  std::ifstream("/proc/" + pid + "/task/" + pid + "/children") >> child;
  return child;
}

// A ddprun that is node 0, with one worker, which ends when its stdin does.
class NodeZero {
 public:
  NodeZero(const std::string& ddprun, int nodes, std::uint16_t port) {
    Pipe pipe = make_pipe("for ddprun's stdin");
    const std::vector<std::string> words = {ddprun,
                                            "--nnodes",
                                            std::to_string(nodes),
                                            "--node-rank",
                                            "0",
                                            "--master-port",
                                            std::to_string(port),
                                            "--rdzv-id",
                                            kJobId,
                                            "--secret",
                                            "none",
                                            "--max-restarts",
                                            "1",
                                            "--no-python",
                                            "cat"};
    guardian_ = fork();
    if (guardian_ == 0) {
      dup2(pipe.read_end.get(), STDIN_FILENO);
      std::vector<char*> argv;
      for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
      argv.push_back(nullptr);
      execvp(argv[0], argv.data());
      _exit(127);
    }
    stdin_ = std::move(pipe.write_end);
  }
  ~NodeZero() {
    end_worker();
    if (guardian_ > 0) {
      kill(guardian_, SIGKILL);
      waitpid(guardian_, nullptr, 0);
    }
  }
  NodeZero(const NodeZero&) = delete;
  NodeZero& operator=(const NodeZero&) = delete;

  void end_worker() { stdin_.close(); }
  void wait() {
    int status = 0;
    waitpid(std::exchange(guardian_, -1), &status, 0);
    if (status != 0) throw std::runtime_error("ddprun ended with status " + std::to_string(status));
  }
  // Returns the agent's cost. The guardian's only child is the keeper, whose only child is the agent.
  ServerCost cost() const { return cost_of(only_child(only_child(guardian_))); }

 private:
  pid_t guardian_ = -1;
  Descriptor stdin_;
};

class Load {
 public:
  Load(const RendezvousPlan& plan, const std::function<void(const RendezvousStep&)>& done)
      : nodes_(plan.nodes),
        beat_seconds_(plan.beat_seconds),
        done_(done),
        port_(free_port()),
        zero_(plan.ddprun, plan.nodes, port_) {
    for (int rank = 1; rank < nodes_; ++rank) agents_.push_back(std::make_unique<Agent>(*this, rank));
  }

  void run() {
    agents_[0]->start();
    until([&] { return agents_[0]->is_linked; }, "coordinate");

    measure("form", [&] {
      for (std::size_t i = 1; i < agents_.size(); ++i) agents_[i]->start();
      until([&] { return heard(Directive::Kind::Run, 1) == agents_.size(); }, "open round 1");
    });
    measure("beat", [&] {
      beating_ = true;
      beat();
      const auto begun = Clock::now();
      until([&] { return seconds_since(begun) >= beat_seconds_; }, "beat");
      beating_ = false;
    });
    measure("stop", [&] {
      failed_at_ = Clock::now();
      agents_[0]->fail();
      until([&] { return heard(Directive::Kind::Stop, 1) == agents_.size(); }, "stop round 1");
    });
    measure("restart", [&] {
      for (const auto& agent : agents_) agent->become_idle(false);
      until([&] { return heard(Directive::Kind::Run, 2) == agents_.size(); }, "open round 2");
    });
    measure("end", [&] {
      for (const auto& agent : agents_) agent->become_idle(true);
      zero_.end_worker();
      until([&] { return heard(Directive::Kind::Exit, 2) == agents_.size(); }, "end");
    });
    for (const auto& agent : agents_) agent->leave();
    until([&] { return true; }, "leave");
    zero_.wait();
  }

 private:
  using Told = std::pair<Directive::Kind, int>;  // a directive and its round

  struct Agent {
    Agent(Load& load, int rank)
        : link(load.io_, {.hosts = {"127.0.0.1"}, .ports = {load.port_}}, Membership(),
               {.on_up =
                    [this](const std::string&) {
                      is_linked = true;
                      report();
                    },
                .on_message = [this, &load](const Directive& directive) { load.told(*this, directive); },
                .on_heartbeat = [&load] { ++load.messages_; },
                .on_down = [](const std::string&) {},
                .on_unreachable = [](const std::string&) {},
                .on_refused = [](const std::string& why) { throw std::runtime_error(why); }}),
          load_(load) {
      state.job = {.id = kJobId,
                   .min_nodes = load.nodes_,
                   .max_nodes = load.nodes_,
                   .max_restarts = 1,
                   .node_ranks_given = true};
      state.incarnation = "agent" + std::to_string(rank);
      state.host = "host" + std::to_string(rank);
      state.addresses = {"10.0.0." + std::to_string(rank % 250), "fd00::" + std::to_string(rank)};
      state.node_rank = rank;
      state.slots = 8;
    }
    void start() { link.start(); }
    void report() {
      link.send(state);
      ++load_.messages_;
    }
    void fail() {
      state.failures.push_back({.rank = 1, .host = state.host, .pid = 1, .status = {.code = 0, .signal = SIGKILL}});
      report();
    }
    void become_idle(bool succeeded) {
      state.phase = WorkersPhase::Idle;
      state.succeeded = succeeded;
      report();
    }
    void leave() {
      state.left = true;
      report();
    }

    AgentState state;
    LinkClient link;
    bool is_linked = false;
    Told last;
    double told_ms = 0;  // from the failure to the directive to stop

   private:
    Load& load_;
  };

  void told(Agent& agent, const Directive& directive) {
    ++messages_;
    agent.state.epoch = directive.epoch;
    if (directive.kind == Directive::Kind::Run) {
      agent.state.round = directive.round;
      agent.state.phase = WorkersPhase::Running;
      agent.state.failures.clear();
      agent.report();
    } else if (directive.kind == Directive::Kind::Stop) {
      agent.told_ms = seconds_since(failed_at_) * 1000;
    }
    const Told now{directive.kind, agent.state.round};
    if (std::exchange(agent.last, now) != now) ++heard_[now];
  }

  // Returns how many agents got this directive.
  std::size_t heard(Directive::Kind kind, int round) { return heard_[{kind, round}]; }

  void beat() {
    for (const auto& agent : agents_) agent->link.send(Heartbeat{});
    messages_ += agents_.size();
    timer_.expires_after(std::chrono::seconds(1));
    timer_.async_wait([this](const auto& error) {
      if (!error && beating_) beat();
    });
  }

  template <typename Condition>
  void until(Condition condition, const char* what) {
    const auto deadline = Clock::now() + kPatience;
    while (!condition()) {
      io_.run_one_for(std::chrono::milliseconds(5));
      if (Clock::now() > deadline) throw std::runtime_error(std::string("ddprun did not ") + what + " within 60 s");
    }
  }

  template <typename Step>
  void measure(const char* name, Step step) {
    const ServerCost before = zero_.cost();
    const std::size_t messages_before = messages_;
    const auto start = Clock::now();
    step();
    RendezvousStep measured{.step = name, .nodes = nodes_, .seconds = seconds_since(start)};
    const ServerCost after = zero_.cost();
    measured.messages = messages_ - messages_before;
    measured.coordinator_cpu = (after.cpu_us - before.cpu_us) / 1e6;
    measured.resident_mb = static_cast<double>(after.resident) / (1 << 20);
    if (std::string(name) == "stop") {
      std::vector<double> times;
      for (const auto& agent : agents_) times.push_back(agent->told_ms);
      std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
      measured.median_ms = times[times.size() / 2];
    }
    done_(measured);
  }

  const int nodes_;
  const double beat_seconds_;
  const std::function<void(const RendezvousStep&)>& done_;
  const std::uint16_t port_;
  NodeZero zero_;
  asio::io_context io_{1};
  asio::steady_timer timer_{io_};
  bool beating_ = false;
  std::size_t messages_ = 0;
  std::map<Told, std::size_t> heard_;
  Clock::time_point failed_at_;
  std::vector<std::unique_ptr<Agent>> agents_;
};

}  // namespace

void rendezvous(const RendezvousPlan& plan, const std::function<void(const RendezvousStep&)>& done) {
  Load(plan, done).run();
}

}  // namespace ddp::bench
