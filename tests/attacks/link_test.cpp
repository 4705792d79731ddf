// SPDX-License-Identifier: BSD-3-Clause
// Attacks on the link between two nodes: from the path between them, from strangers, and from who has their port.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "rendezvous/base/text.hpp"
#include "rendezvous/link/codec.hpp"
#include "tests/attacks/relay.hpp"
#include "tests/integration/ddprun.hpp"
#include "tests/support/ports.hpp"

using Catch::Matchers::Contains;
using namespace ddp::testing;
using From = Relay::From;
using Part = Relay::Part;

namespace {

const Words kPlaceUntilTold = {"note=USR1", "place", "say=up", "until=USR1"};

// A secret file, and what gives it to a process.
class SecretFile {
 public:
  SecretFile() { REQUIRE(ddp::testing::run(ddprun_raw({"--make-secret", path()})).code == 0); }
  std::string path() const { return folder_ / "secret"; }
  Process::Options options() const {
    Process::Options options;
    options.environment = {{"DDPRUN_SECRET_FILE", path()}};
    return options;
  }

 private:
  TemporaryFolder folder_;
};

Process::Options without_secret() {
  Process::Options options;
  options.environment = {{"DDPRUN_SECRET_FILE", ""}};
  return options;
}

std::vector<std::string> node(int rank, int port, const Words& more = {}, const Words& verbs = kPlaceUntilTold) {
  return ddprun(Words{"--nnodes=2", "--node_rank=" + std::to_string(rank), "--master_addr=127.0.0.1",
                      "--master_port=" + std::to_string(port), "--rdzv-conf=keep_alive_interval=1"} +
                    more,
                verbs);
}

std::string pass_on(From, Part, const std::string& bytes) { return bytes; }

// Ends a coordinator that waits for a node, and checks that nothing of it is left.
Result stopped(Process& coordinator) {
  coordinator.signal(SIGTERM);
  Result result = coordinator.wait();
  CHECK(coordinator.left_over().empty());
  return result;
}

}  // namespace

TEST_CASE("link attacks: who listens between two nodes reads no name, address or message, with a secret and without",
          "[attacks][integration]") {
  const SecretFile secret;
  for (const bool has_secret : {false, true}) {
    const Process::Options options = has_secret ? secret.options() : without_secret();
    const int port = free_port();
    Relay relay(static_cast<std::uint16_t>(port), has_secret ? Relay::Proofs::Of32Bytes : Relay::Proofs::None, pass_on);
    Process first(node(0, port), options);
    Process second(node(1, relay.port()), options);
    second.wait_for("up");
    first.wait_for("up");
    for (const Process* each : {&first, &second}) tell_workers(*each);
    CHECK(first.wait().code == 0);
    CHECK(second.wait().code == 0);
    const std::string seen = relay.seen();
    REQUIRE(seen.size() > 1000);
    for (const std::string& word : {ddp::rendezvous::host_name(), std::string("127.0.0.1"), std::string("agent_state"),
                                    std::string("directive"), std::string("master_port"), std::to_string(port)}) {
      CAPTURE(has_secret, word);
      if (word.size() < 4) continue;  // a short host name comes up by chance in what is encrypted
      CHECK(seen.find(word) == std::string::npos);
    }
  }
}

TEST_CASE("link attacks: frames that are changed, repeated, left out, added or cut off do no harm to a running job",
          "[attacks][integration]") {
  ddp::rendezvous::Directive forged_end;
  forged_end.kind = ddp::rendezvous::Directive::Kind::Exit;
  const std::string forged = ddp::rendezvous::encode(forged_end);
  const std::string noticed = "what arrived is not what the other side sent";
  struct Case {
    std::string name;
    std::function<std::string(std::string)> change;
    std::string said;
  };
  const std::vector<Case> cases = {
      {"changed",
       [](std::string bytes) {
         bytes.back() = static_cast<char>(bytes.back() ^ 1);
         return bytes;
       },
       noticed},
      {"repeated", [](const std::string& bytes) { return bytes + bytes; }, noticed},
      {"left out", [](const std::string&) { return std::string(); }, "broke ("},  // there is no answer, then
      {"a forged end", [&](const std::string& bytes) { return bytes + forged + std::string(4096, '\0'); }, noticed},
      {"a forged end instead", [&](const std::string&) { return forged + std::string(4096, '\0'); }, noticed},
      {"cut off", [](const std::string& bytes) { return bytes.substr(0, bytes.size() / 2); }, "closed the connection"},
  };
  const SecretFile secret;
  for (const Case& each : cases) {
    for (const From victim : {From::Coordinator, From::Agent}) {
      CAPTURE(each.name, static_cast<int>(victim));
      const int port = free_port();
      std::atomic<bool> is_armed = false;
      Relay* relay_itself = nullptr;
      Relay relay(static_cast<std::uint16_t>(port), Relay::Proofs::Of32Bytes,
                  [&](From from, Part part, const std::string& bytes) {
                    if (part != Part::Frame || from != victim || !is_armed.exchange(false)) return bytes;
                    if (each.name == "cut off") relay_itself->cut();
                    return each.change(bytes);
                  });
      relay_itself = &relay;
      Process first(node(0, port), secret.options());
      Process second(node(1, relay.port()), secret.options());
      second.wait_for("up");
      first.wait_for("up");
      is_armed = true;  // the next heartbeat
      // The end that found out closes the connection; the agent says that its link broke, and makes another one.
      if (victim == From::Coordinator) {
        second.wait_for("broke (");
        CHECK_THAT(second.err(), Contains(each.said));
      } else {
        first.wait_for("the link to node");
        CHECK_THAT(first.err(), Contains(each.said));
      }
      for (const Process* job : {&first, &second}) tell_workers(*job);
      for (Process* job : {&first, &second}) {
        const Result result = job->wait();
        CAPTURE(result.err);
        CHECK(result.code == 0);
        CHECK(count(result.out, "USR1") == 1);  // the worker was not stopped before
        CHECK(count(result.out, "127.0.0.1:" + std::to_string(port)) == 1);
        CHECK(job->left_over().empty());
      }
    }
  }
}

TEST_CASE("link attacks: nobody on the path can talk two nodes into another mode, version or key",
          "[attacks][integration]") {
  struct Case {
    std::function<std::string(std::string)> change;  // what it does to both prefaces
    std::string said;
  };
  const auto set = [](std::size_t at, char byte) {
    return [at, byte](std::string bytes) {
      bytes[at] = byte;
      return bytes;
    };
  };
  const std::vector<Case> cases = {
      {set(7, 1), "is of another version of ddprun (its agent link is version 1, this node's version 4)"},
      {set(7, 3), "is of another version of ddprun (its agent link is version 3, this node's version 4)"},
      {set(8, 0), "has no secret, this node has one"},
      {set(8, 2), "has MUNGE"},
      {[](std::string bytes) { return bytes.replace(17, 32, std::string(31, 'k') + "\1"); }, "differ"},
  };
  const SecretFile secret;
  const int port = free_port();
  Process first(node(0, port), secret.options());
  first.wait_for("1 of 2 there");
  for (const Case& each : cases) {
    Relay relay(
        static_cast<std::uint16_t>(port), Relay::Proofs::Of32Bytes,
        [&](From, Part part, const std::string& bytes) { return part == Part::Preface ? each.change(bytes) : bytes; });
    const Result result = ddp::testing::run(node(1, relay.port()), secret.options());
    CAPTURE(each.said, result.err);
    CHECK(result.code == 1);
    CHECK(count(result.err, each.said) == 1);
    CHECK(result.out.empty());
  }
  const Result result = stopped(first);
  CHECK(result.out.empty());  // no worker was started for any of them
}

TEST_CASE("link attacks: a relay that passes a handshake on cannot use it for a second connection",
          "[attacks][integration]") {
  const SecretFile secret;
  const int port = free_port();
  std::string agents;  // what the agent sent, to be sent again
  std::mutex mutex;
  Relay relay(static_cast<std::uint16_t>(port), Relay::Proofs::Of32Bytes,
              [&](From from, Part, const std::string& bytes) {
                const std::lock_guard lock(mutex);
                if (from == From::Agent) agents += bytes;
                return bytes;
              });
  Process first(node(0, port), secret.options());
  Process second(node(1, relay.port()), secret.options());
  second.wait_for("up");
  first.wait_for("up");
  {
    const std::lock_guard lock(mutex);
    auto replay = ddp::rendezvous::RawConnection::to(static_cast<std::uint16_t>(port));
    CHECK(replay.send(agents));
    // The coordinator's preface, the refusal of the proof, the end.
    const std::string answer = replay.receive(1000);
    CHECK(answer.size() == 49 + 32);
    CHECK(answer.substr(49) == std::string(32, '\0'));
  }
  for (const Process* job : {&first, &second}) tell_workers(*job);
  CHECK(first.wait().code == 0);
  CHECK(second.wait().code == 0);
}

TEST_CASE("link attacks: a node without the secret takes no rank, and all that came is on record",
          "[attacks][integration]") {
  const SecretFile secret, other;
  const TemporaryFolder folder;
  const std::string events = folder / "events";
  const int port = free_port();
  Process first(node(0, port, {"--event-log-file=" + events, "--log-level=info"}), secret.options());
  first.wait_for("1 of 2 there");
  CHECK(count(first.err(), "the job's secret: the file " + secret.path() + " (DDPRUN_SECRET_FILE)") == 1);
  for (const Process::Options& options : {without_secret(), other.options()}) {
    const Result stranger = ddp::testing::run(node(1, port), options);
    CAPTURE(stranger.err);
    CHECK(stranger.code == 1);
    CHECK(stranger.out.empty());
  }
  // One with the secret that is of another job.
  const Result lost = ddp::testing::run(node(1, port, {"--max-restarts=7"}), secret.options());
  CHECK(lost.code == 1);
  Process second(node(1, port), secret.options());
  second.wait_for("up");
  first.wait_for("up");
  for (const Process* job : {&first, &second}) tell_workers(*job);
  CHECK(second.wait().code == 0);
  const Result result = first.wait();
  CHECK(result.code == 0);
  CHECK(count(result.err, "node_joined") == 0);
  CHECK(count(result.err, "(127.0.0.1) joined; it proved the job's secret") == 1);
  CHECK(count(result.err, "(127.0.0.1) was refused: --max-restarts is 7 on this host") == 1);
  CHECK(count(result.err, "(127.0.0.1) left the job") == 1);
  const std::string records = ddp::testing::read_file(events);
  CAPTURE(records);
  const auto recorded = [&](const std::string& state) {
    return count(records, R"("name": "ddprun.node.status.)" + state + R"(", "source": "COORDINATOR")");
  };
  CHECK(recorded("JOINED") == 1);
  CHECK(recorded("LEFT") == 1);
  CHECK(recorded("REFUSED") >= 2);  // those of the handshake at most once a second
  CHECK(count(records, R"(\"address\": \"127.0.0.1\", \"proof\": \"secret\")") == 3);
  CHECK(count(records, R"(\"address\": \"127.0.0.1\", \"proof\": \"none\")") >= 1);
}

TEST_CASE("link attacks: a secret file that others may read or change is refused", "[attacks][integration]") {
  const SecretFile secret;
  for (const mode_t mode : {0644U, 0640U, 0622U}) {
    REQUIRE(::chmod(secret.path().c_str(), mode) == 0);
    const Result result = ddp::testing::run(node(0, free_port()), secret.options());
    CAPTURE(result.err);
    CHECK(result.code == 1);
    CHECK(count(result.err, "cannot use the secret file " + secret.path() + ": others than its owner may ") == 1);
    CHECK(result.out.empty());
  }
  REQUIRE(::chmod(secret.path().c_str(), 0600) == 0);
  if (::geteuid() != 0) return;
  REQUIRE(::chown(secret.path().c_str(), 65534, 65534) == 0);
  const Result result = ddp::testing::run(node(0, free_port()), secret.options());
  CHECK(result.code == 1);
  CHECK_THAT(result.err, Contains("it belongs to uid 65534"));
}

TEST_CASE("link attacks: a squatter on the job's port gets none of its nodes, and its owner says who has the port",
          "[attacks][integration]") {
  const SecretFile secret;
  const int port = free_port();
  Process squatter(node(0, port, {"--secret=none"}, {"say=mallory's", "wait"}));
  squatter.wait_for("1 of 2 there");
  // The owner cannot coordinate, and says who does.
  const Result owner = ddp::testing::run(node(0, port), secret.options());
  CAPTURE(owner.err);
  CHECK(owner.code == 1);
  std::vector<pid_t> holders = children_of(keeper_of(squatter));
  holders.push_back(keeper_of(squatter));
  CHECK(std::any_of(holders.begin(), holders.end(), [&](pid_t pid) {
    return count(owner.err, "port " + std::to_string(port) + " is taken by pid " + std::to_string(pid) + " (") == 1;
  }));
  // Another node of the job is not led into the squatter's.
  const Result second = ddp::testing::run(node(1, port), secret.options());
  CAPTURE(second.err);
  CHECK(second.code == 1);
  CHECK(count(second.err, "has no secret, this node has one (DDPRUN_SECRET_FILE)") == 1);
  CHECK(second.out.empty());
  // Where nodes find out by themselves which one coordinates, the owner would follow: it says whom it has met.
  const Result elastic = ddp::testing::run(
      ddprun({"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:" + std::to_string(port)},
             {"say=started"}),
      secret.options());
  CAPTURE(elastic.err);
  CHECK(elastic.code == 1);
  CHECK(count(elastic.err, "port " + std::to_string(port) + " of this machine is taken by pid ") == 1);
  CHECK(elastic.out.empty());
  const Result result = stopped(squatter);
  CHECK(result.out.empty());
}

TEST_CASE("link attacks: no node follows a coordinator of another user of its machine", "[attacks][integration]") {
  if (::geteuid() != 0) {
    WARN("only root can start a squatter of another user");
    return;
  }
  const int port = free_port();
  Process squatter(Words{"setpriv", "--reuid=65534", "--clear-groups"} +
                   node(0, port, {"--secret=none"}, {"say=mallory's", "wait"}));
  squatter.wait_for("1 of 2 there");
  const Result second = ddp::testing::run(node(1, port, {"--secret=none"}), without_secret());
  CAPTURE(second.err);
  CHECK(second.code == 1);
  CHECK(count(second.err, "port " + std::to_string(port) + " of this machine belongs to nobody (uid 65534)") == 1);
  CHECK(second.out.empty());
  stopped(squatter);
}

TEST_CASE("link attacks: a port that another user has is refused, also without a secret", "[attacks][integration]") {
  if (::geteuid() != 0) {
    WARN("only root can start a squatter of another user");
    return;
  }
  const int port = free_port();
  std::vector<std::string> command = {"setpriv", "--reuid=65534", "--clear-groups", FAKE_PEER_BINARY};
  command.insert(command.end(), {"listen", std::to_string(port), "x"});
  Process squatter(command);
  squatter.wait_for("listening");
  const Result elastic = ddp::testing::run(
      ddprun({"--nnodes=1:2", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:" + std::to_string(port)},
             {"say=started"}),
      without_secret());
  CAPTURE(elastic.err);
  CHECK(elastic.code == 1);
  CHECK(count(elastic.err, "is taken by pid " + std::to_string(squatter.pid()) + " (fake_peer) of uid 65534") == 1);
  CHECK(elastic.out.empty());
  squatter.signal(SIGKILL);
}
