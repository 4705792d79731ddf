// SPDX-License-Identifier: BSD-3-Clause
// --numa-binding with real processes. A fake NVML provides GPUs, and a mount namespace gives ddprun
// a /sys with two NUMA nodes.
#include <sched.h>

#include <catch2/catch.hpp>

#include "launcher/placement/topology.hpp"
#include "tests/integration/ddprun.hpp"
#include "tests/support/fake_sysfs.hpp"
#include "tests/support/hosts.hpp"

using namespace ddp::testing;
using ddp::launcher::allowed_cpus;
using ddp::launcher::CpuSet;
using ddp::launcher::to_cpu_list;

namespace {

// Returns two CPUs that this process may use; with fewer there is nothing to bind to.
std::pair<std::string, std::string> two_cpus() {
  const CpuSet allowed = allowed_cpus();
  if (allowed.size() < 2) skip("one CPU only");
  return {std::to_string(*allowed.begin()), std::to_string(*std::next(allowed.begin()))};
}

// GPU 0 is on node 1, GPU 1 on node 0; each node has one CPU.
struct TwoNodes {
  TwoNodes() : cpus(two_cpus()) {
    sysfs.node(0, cpus.first);
    sysfs.node(1, cpus.second);
    sysfs.device("000a:00:00.0", 1);
    sysfs.device("000a:10:00.0", 0);
    nvml.environment = {{"LD_LIBRARY_PATH", FAKE_NVML_FOLDER}, {"FAKE_NVML_GPUS", "2"}};
  }

  // Runs the command on those two CPUs only, because the machine's other CPUs are on neither node.
  Result run(const std::vector<std::string>& command) const {
    const std::string mount = "mount --bind " + sysfs.path() + " /sys";
    if (ddp::testing::run({"unshare", "-m", "sh", "-c", mount}).code != 0) skip("may not mount");
    std::vector<std::string> words = {"unshare", "-m", "sh", "-c", mount + " && exec \"$@\"", "sh"};
    words.insert(words.end(), {"taskset", "-c", cpus.first + "," + cpus.second});
    words.insert(words.end(), command.begin(), command.end());
    return ddp::testing::run(words, nvml);
  }

  std::pair<std::string, std::string> cpus;
  FakeSysfs sysfs;
  Process::Options nvml;
};

}  // namespace

TEST_CASE("numa: on a machine with one NUMA node, workers have all of it, or their own cores",
          "[launcher][integration]") {
  const std::string all = to_cpu_list(allowed_cpus());
  const Result shared = run(ddprun({"--nproc-per-node=2", "--numa-binding=socket"}, {"cpus"}));
  CHECK(shared.code == 0);
  CHECK(count(shared.out, "cpus ") == 2);

  const Result unbound = run(ddprun({"--nproc-per-node=2"}, {"cpus"}));
  CHECK(count(unbound.out, "cpus " + all + "\n") == 2);
}

TEST_CASE("numa: each worker runs on the CPUs of its GPU's node", "[launcher][integration]") {
  const TwoNodes machine;
  const auto [low, high] = machine.cpus;
  const Result by_index = machine.run(ddprun({"--nproc-per-node=2", "--numa-binding=node"}, {"cpus"}));
  CHECK(by_index.code == 0);
  CHECK(count(by_index.out, "rank 0 cpus " + high + "\n") == 1);
  CHECK(count(by_index.out, "rank 1 cpus " + low + "\n") == 1);

  const Result by_uuid =
      machine.run(ddprun({"--gpus", "GPU-1,GPU-0", "--nproc-per-node=2", "--numa-binding=node"}, {"cpus"}));
  CHECK(count(by_uuid.out, "rank 0 cpus " + low + "\n") == 1);
  CHECK(count(by_uuid.out, "rank 1 cpus " + high + "\n") == 1);
}

TEST_CASE("numa: the binding survives a restart", "[launcher][integration]") {
  const TwoNodes machine;
  const Result result = machine.run(
      ddprun({"--nproc-per-node=2", "--numa-binding=core-complex", "--max-restarts=1"}, {"cpus", "0/0:exit=1"}));
  CHECK(result.code == 0);
  CHECK(count(result.out, "rank 0 cpus " + machine.cpus.second + "\n") == 2);
}

TEST_CASE("numa: --print bindings shows GPU, node and CPUs of each worker, and starts nothing",
          "[launcher][integration]") {
  const TwoNodes machine;
  const Result result = machine.run(ddprun_raw({"--nproc-per-node=2", "--numa-binding=exclusive", "--print=bindings"}));
  CHECK(result.code == 0);
  CHECK(result.out == "LOCAL_RANK  GPU  NUMA NODE  CPUS\n0           0    1          " + machine.cpus.second +
                          "\n1           1    0          " + machine.cpus.first + "\n");
  const Result here = run(ddprun({"--nproc-per-node=2", "--print=bindings"}, {"say=started"}));
  CHECK(here.code == 0);
  CHECK(count(here.out, "\n") == 3);
  CHECK(count(here.out, "started") == 0);
}

TEST_CASE("numa: an impossible binding is reported before anything starts", "[launcher][integration]") {
  const auto refused = [](const Result& result, int code, const std::string& why) {
    CHECK(result.code == code);
    CHECK(count(result.err, why) == 1);
    CHECK(count(result.out, "started") == 0);
  };
  refused(run(ddprun({"--numa-binding=nearest"}, {"say=started"})), 2, "node, socket, exclusive or core-complex");
  refused(run(ddprun({"--numa-binding=exclusive", "--nproc-per-node=4097"}, {"say=started"})), 1, "start fewer");

  const TwoNodes machine;
  machine.sysfs.device("000a:00:00.0", 7);
  refused(machine.run(ddprun({"--numa-binding=node"}, {"say=started"})), 1,
          "GPU 0 is on NUMA node 7, of whose CPUs this process may use none");
  refused(machine.run(ddprun({"--gpus=2", "--numa-binding=node"}, {"say=started"})), 1, "NVML knows no GPU '2'");
}
