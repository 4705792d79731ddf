// SPDX-License-Identifier: BSD-3-Clause
// Where nodes get what they prove to each other: a file that is mounted, or MUNGE with a munged on each host.
#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "tests/integration/nodes/nodes.hpp"

using namespace ddp::testing;

namespace {

Process::Options with(std::map<std::string, std::string> environment) {
  Process::Options options;
  options.environment = std::move(environment);
  options.environment.emplace("DDPRUN_SECRET_FILE", "");
  return options;
}

// Gives a host a folder /run of its own, and runs a command there.
Words in_own_run(const Hosts& hosts, int host, const std::string& command) {
  return hosts.on(host, {"sh", "-ec", "mount -t tmpfs -o mode=755 tmpfs /run\n" + command});
}

// A munged on each host. Skips the test where munged is not installed.
class Munged {
 public:
  Munged(const Hosts& hosts, const TemporaryFolder& folder, int other_keys) {
    if (run({"sh", "-c", "command -v munged munge setpriv"}).code != 0) skip("munged (package munge) is needed");
    for (int host = 0; host < hosts.count(); ++host) {
      const bool is_other = host >= hosts.count() - other_keys;
      const std::string key = folder / (is_other ? "other.key" : "munge.key");
      REQUIRE(run({"sh", "-c", "test -e " + key + " || { umask 077; head -c 128 /dev/urandom >" + key + "; }"}).code ==
              0);
      daemons_.push_back(std::make_unique<Process>(in_own_run(
          hosts, host,
          "mkdir -m 755 /run/munge\nexec munged --foreground --force --key-file=" + key +
              " --pid-file=/run/munge/pid --seed-file=/run/munge/seed --log-file=/run/munge/log --num-threads=1")));
      wait_until([&] { return run(hosts.on(host, {"munge", "--no-input"})).code == 0; });
    }
  }
  ~Munged() {
    for (const auto& daemon : daemons_) daemon->signal(SIGTERM);
    for (const auto& daemon : daemons_) daemon->wait();
  }
  Munged(const Munged&) = delete;
  Munged& operator=(const Munged&) = delete;

 private:
  std::vector<std::unique_ptr<Process>> daemons_;
};

const std::map<std::string, std::string> kSlurm = {{"SLURM_JOB_ID", "4711"}, {"SLURM_STEP_ID", "0"}};

}  // namespace

TEST_CASE("nodes: a secret that is mounted at /run/secrets/ddprun/secret is taken without any option",
          "[launcher][integration]") {
  const Hosts hosts(2);
  const TemporaryFolder folder;
  REQUIRE(run(ddprun_raw({"--make-secret", folder / "secret"})).code == 0);
  for (const int host : {0, 1}) {
    REQUIRE(run(in_own_run(hosts, host,
                           "mkdir -p /run/secrets/ddprun\ncp " + (folder / "secret") +
                               " /run/secrets/ddprun/secret\nchmod 440 /run/secrets/ddprun/secret"))
                .code == 0);
  }
  NodesJob job(hosts, c10d_job("2") + Words{"--log-level=info"}, {"meet"});
  for (const int host : {0, 1}) job.start(host, {}, with({}));
  for (const int host : {0, 1}) {
    const Result result = job.on(host).wait();
    CAPTURE(host, result.err);
    CHECK(result.code == 0);
    CHECK(count(result.err, "the job's secret: the file /run/secrets/ddprun/secret\n") == 1);
    CHECK(count(result.err, "has no secret") == 0);
  }
  // A node that was told to use none is not let in.
  NodesJob mixed(hosts, c10d_job("2"), {"say=started"});
  mixed.start(0, {}, with({})).wait_for("1 of 2 there");
  const Result none = mixed.start(1, {"--secret=none"}, with({})).wait();
  CHECK(none.code == 1);
  CHECK(count(none.err, "the coordinator at node0:29400 wants a secret") == 1);
  mixed.on(0).signal(SIGTERM);
  CHECK(mixed.on(0).wait().code == 128 + SIGTERM);
  CHECK(hosts.all_gone());
}

TEST_CASE("nodes: in a step of Slurm MUNGE lets in the nodes of the same user, and nobody else",
          "[launcher][integration]") {
  const Hosts hosts(3);
  const TemporaryFolder folder;
  {
    const Munged munged(hosts, folder, /*other_keys=*/1);
    NodesJob job(hosts, c10d_job("2") + Words{"--log-level=info"}, {"meet"});
    Process& coordinator = job.start(0, {}, with(kSlurm));
    coordinator.wait_for("1 of 2 there");

    const Result other_cluster = job.start(2, {}, with(kSlurm)).wait();
    CAPTURE(other_cluster.err);
    CHECK(other_cluster.code == 1);
    CHECK(count(other_cluster.err, "the coordinator at node0:29400 does not accept this node's credential of MUNGE") ==
          1);

    const Result outside = job.start(1, {}, with({})).wait();
    CAPTURE(outside.err);
    CHECK(outside.code == 1);
    CHECK(count(outside.err, "this node has no secret, the coordinator at node0:29400 has MUNGE") == 1);

    job.start(1, {}, with(kSlurm));
    for (const int host : {0, 1}) {
      const Result result = job.on(host).wait();
      CAPTURE(host, result.err);
      CHECK(result.code == 0);
      CHECK(count(result.err, "the job's secret: MUNGE, in a step of Slurm") == 1);
      if (host == 0) CHECK(count(result.err, "MUNGE refuses its credential: Invalid credential") == 1);
      if (host == 0) CHECK(count(result.err, "(10.7.0.2) joined; it proved the job's munge") == 1);
    }

    // Root is let in everywhere, so two other users are needed.
    if (geteuid() == 0) {
      const auto as = [](const std::string& uid, std::vector<std::string> command) {
        const Words words = {"setpriv", "--reuid=" + uid, "--regid=" + uid, "--clear-groups"};
        command.insert(command.begin(), words.begin(), words.end());
        return command;
      };
      const Words job_of_echo = c10d_job("2") + Words{"echo", "started"};  // they may not see into root's folders
      Process first(hosts.on(0, as("65533", ddprun_raw(job_of_echo))), with(kSlurm));
      first.wait_for("1 of 2 there");
      const Result mallory = run(hosts.on(1, as("65534", ddprun_raw(job_of_echo))), with(kSlurm));
      CAPTURE(mallory.err);
      CHECK(mallory.code == 1);
      first.wait_for("it is of another user by MUNGE: uid 65534, this node's is 65533");
      first.signal(SIGTERM);
      CHECK(count(first.wait().out, "started") == 0);
    }
  }
  // Without a munged a node goes on without a secret, and says why.
  NodesJob none(hosts, c10d_job("2") + Words{"--log-level=info"}, {"say=started"});
  Process& alone = none.start(0, {}, with(kSlurm));
  alone.wait_for("the job's secret: none: in a step of Slurm, but MUNGE is not there (");
  alone.wait_for("may join this job, which has no secret");
  alone.wait_for("1 of 2 there");
  alone.signal(SIGTERM);
  CHECK(alone.wait().code == 128 + SIGTERM);
  CHECK(hosts.all_gone());
}
