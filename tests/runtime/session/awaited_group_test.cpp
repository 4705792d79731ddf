// SPDX-License-Identifier: BSD-3-Clause
// In which jobs the world of a session awaits successors: an agent can only replace a worker whose group it knows.
#include "runtime/session/awaited_group.hpp"

#include <catch2/catch.hpp>
#include <map>
#include <optional>
#include <string>

using namespace ddp::runtime;
using ddp::collectives::BackendNames;

namespace {

using Variables = std::map<std::string, std::string>;

const Variables kJob = {{"WORLD_SIZE", "4"}, {"GROUP_WORLD_SIZE", "1"}, {"DDPRUN_KEPT_MEMORY", "1"}};

struct Job {
  WorkerInfo info = {.rank = 1, .world_size = 4, .place = {.launcher_hosts = true}};
  BackendNames backends = {.cpu = "ddp", .cuda = ""};
  DebugLevel debug = DebugLevel::Off;
  Variables variables = kJob;

  Succession succession() const {
    return succession_of(info, backends, debug, [this](const char* name) -> std::optional<std::string> {
      const auto found = variables.find(name);
      return found != variables.end() ? std::optional(found->second) : std::nullopt;
    });
  }
};

}  // namespace

TEST_CASE("awaited group: the world of a job on one node whose memory is kept awaits successors", "[runtime][unit]") {
  Job job;
  CHECK(job.succession() == Succession::Awaits);
  job.info.is_successor = true;
  CHECK(job.succession() == Succession::IsSuccessor);
}

TEST_CASE("awaited group: all other groups are as ever", "[runtime][unit]") {
  Job job;
  SECTION("memory is not kept") { job.variables.erase("DDPRUN_KEPT_MEMORY"); }
  SECTION("two nodes") { job.variables["GROUP_WORLD_SIZE"] = "2"; }
  SECTION("a group of some workers") { job.info.world_size = 2; }
  SECTION("one worker") {
    job.info.world_size = 1;
    job.variables["WORLD_SIZE"] = "1";
  }
  SECTION("rank 0 hosts the store") { job.info.place.launcher_hosts = false; }
  SECTION("another backend") { job.backends.cpu = "gloo"; }
  SECTION("a backend for GPUs, too") { job.backends.cuda = "nccl"; }
  SECTION("calls are compared") { job.debug = DebugLevel::Detail; }
  SECTION("the session only compares what is kept") { job.info.session_name = "ddprun.keep.1"; }
  CHECK(job.succession() == Succession::None);
}
