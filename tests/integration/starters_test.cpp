// SPDX-License-Identifier: BSD-3-Clause
// ddprun under the real mpirun and mpiexec. All of their processes are on this machine; the variable that says so is
// changed for each ddprun, which then takes itself for the only one of its host.
#include <catch2/catch.hpp>
#include <csignal>
#include <cstdlib>

#include "tests/integration/ddprun.hpp"
#include "tests/support/hosts.hpp"
#include "tests/support/process.hpp"

using namespace ddp::testing;
using Catch::Matchers::Contains;

namespace {

const Words kOpenMpi = {"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "2"};
const Words kMpich = {"mpiexec.hydra", "-n", "2"};

// Skips where the starter is not installed.
void need(const Words& starter) {
  if (run({"sh", "-c", "command -v " + starter.front()}).code != 0) skip(starter.front() + " is needed");
}

Words one_a_host(const Words& starter) {
  return starter + Words{"env", "OMPI_COMM_WORLD_LOCAL_SIZE=1", "MPI_LOCALNRANKS=1"};
}

void check_is_one_job(const Words& starter, const std::string& name) {
  need(starter);
  Process job(one_a_host(starter) +
              ddprun({"--nproc-per-node=2"}, {"meet", "env=OMPI_COMM_WORLD_RANK", "env=PMI_RANK", "env=PMI_FD"}));
  const Result result = job.wait();
  CAPTURE(result.out, result.err);
  CHECK(result.code == 0);
  CHECK(count(result.out, "met 4") == 4);
  for (const char* rank : {"0", "1"}) {
    CHECK_THAT(result.err, Contains("ddprun: from " + name + ": --nnodes 2 --node-rank " + rank + " --master-addr "));
  }
  CHECK_THAT(result.err, !Contains("may join this job, which has no secret"));
  // Workers do not take themselves for ranks of the starter.
  for (const char* variable : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMI_FD"}) {
    CHECK(count(result.out, std::string("[") + variable + "=(unset)]") == 4);
  }
  CHECK(job.all_gone());
}

void check_is_refused(const Words& starter, const std::string& line) {
  need(starter);
  Process job(starter + ddprun({}, {"say=started"}));
  const Result result = job.wait();
  // MPICH 4.0's mpiexec dies of SIGPIPE, and loses what was said, 4 times in 100 if all processes end at once with
  // another code than 0: also `mpiexec -n 2 sh -c "exit 2"`.
  if (starter == kMpich && result.code == 128 + SIGPIPE) return check_is_refused(starter, line);
  CAPTURE(result.out, result.err);
  CHECK(result.code == 2);
  CHECK_THAT(result.out + result.err, Contains(line) && !Contains("started]"));
  CHECK(job.all_gone());
}

}  // namespace

TEST_CASE("starters: one ddprun a host under Open MPI's mpirun is one job", "[launcher][integration]") {
  check_is_one_job(kOpenMpi, "Open MPI");
}

TEST_CASE("starters: one ddprun a host under Hydra's mpiexec is one job", "[launcher][integration]") {
  check_is_one_job(kMpich, "PMI");
}

TEST_CASE("starters: several ddprun on a host are refused with the line to type", "[launcher][integration]") {
  check_is_refused(kOpenMpi, "mpirun has started 2 ddprun on this host");
  check_is_refused(kMpich, "mpiexec has started 2 ddprun on this host");
}

TEST_CASE("starters: mpiexec ends with the exit code of the worker that failed", "[launcher][integration]") {
  need(kMpich);
  Process job(one_a_host(kMpich) + ddprun({"--nproc-per-node=1"}, {"meet", "exit=7"}));
  CHECK(job.wait().code == 7);
  CHECK(job.all_gone());
}
