// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/session/identity/worker_info.hpp"

#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "rendezvous/base/error.hpp"
#include "rendezvous/store/server.hpp"
#include "rendezvous/store/tcp_store.hpp"
#include "tests/support/process.hpp"

using Catch::Matchers::Contains;
using ddp::rendezvous::StoreServer;
using ddp::rendezvous::TcpStore;
using ddp::runtime::InitArguments;
using ddp::runtime::read_worker_info;
using ddp::runtime::RendezvousPoint;
using ddp::runtime::WorkerInfo;
using Variables = std::map<std::string, std::string>;

namespace {

WorkerInfo read(const Variables& variables, const InitArguments& arguments = {}) {
  return read_worker_info(arguments, [&](const char* name) -> std::optional<std::string> {
    const auto it = variables.find(name);
    return it != variables.end() ? std::optional(it->second) : std::nullopt;
  });
}

Variables job(const Variables& changes = {}) {
  Variables result = {{"RANK", "3"}, {"WORLD_SIZE", "8"}, {"MASTER_ADDR", "node-a"}, {"MASTER_PORT", "29500"}};
  for (const auto& [name, value] : changes) result[name] = value;
  return result;
}

}  // namespace

TEST_CASE("worker info: without settings a process is a world of one", "[runtime][unit]") {
  const WorkerInfo info = read({});
  CHECK(info.rank == 0);
  CHECK(info.world_size == 1);
  CHECK(info.local_world_size == 1);
}

TEST_CASE("worker info: reads what ddprun and torchrun set", "[runtime][unit]") {
  const WorkerInfo info = read(job({{"LOCAL_RANK", "1"},
                                    {"LOCAL_WORLD_SIZE", "2"},
                                    {"TORCHELASTIC_RESTART_COUNT", "4"},
                                    {"TORCHELASTIC_USE_AGENT_STORE", "True"}}));
  CHECK(info.rank == 3);
  CHECK(info.world_size == 8);
  CHECK(info.local_rank == 1);
  CHECK(info.local_world_size == 2);
  CHECK(info.restart_count == 4);
  CHECK(info.place.host == "node-a");
  CHECK(info.place.port == 29500);
  CHECK(info.place.launcher_hosts);
}

TEST_CASE("worker info: a store that the program has opened is the launcher's if it is at the launcher's address",
          "[runtime][unit]") {
  const StoreServer server({"127.0.0.1"}, 0);
  const TcpStore store("127.0.0.1", server.port(), ddp::testing::kDeadline);
  InitArguments arguments;
  arguments.rank = 0;
  arguments.world_size = 2;
  arguments.store = &store;
  Variables here = job({{"MASTER_ADDR", "127.0.0.1"}, {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  CHECK_FALSE(read(here, arguments).place.launcher_hosts);
  here["MASTER_PORT"] = std::to_string(server.port());
  CHECK(read(here, arguments).place.launcher_hosts);
  CHECK(read(here, arguments).place.kind == RendezvousPoint::Kind::Given);
}

TEST_CASE("worker info: the launcher hosts the store only if it says exactly True", "[runtime][unit]") {
  CHECK_FALSE(read(job()).place.launcher_hosts);
  CHECK_FALSE(read(job({{"TORCHELASTIC_USE_AGENT_STORE", "False"}})).place.launcher_hosts);
  CHECK_FALSE(read(job({{"TORCHELASTIC_USE_AGENT_STORE", "true"}})).place.launcher_hosts);
}

TEST_CASE("worker info: an error names missing variables and says how to start", "[runtime][unit]") {
  CHECK_THROWS_WITH(
      read({{"RANK", "0"}, {"WORLD_SIZE", "2"}}),
      "a worker of a job needs MASTER_ADDR, MASTER_PORT too; given are only RANK, WORLD_SIZE: start this program "
      "with ddprun, for example: ddprun --nproc_per_node 2 PROGRAM");
  CHECK_THROWS_WITH(read({}, {.init_method = "", .rank = 0}),
                    Contains("needs WORLD_SIZE, MASTER_ADDR, MASTER_PORT too; given are only the argument rank: "));
}

TEST_CASE("worker info: an invalid value is quoted", "[runtime][unit]") {
  CHECK_THROWS_WITH(read(job({{"RANK", "8"}})), "RANK is \"8\": expected a whole number from 0 to 7");
  CHECK_THROWS_WITH(read(job({{"RANK", "-1"}})), Contains("RANK is \"-1\""));
  CHECK_THROWS_WITH(read(job({{"RANK", ""}})), Contains("RANK is \"\""));
  CHECK_THROWS_WITH(read(job({{"WORLD_SIZE", "2x"}})), Contains("WORLD_SIZE is \"2x\""));
  CHECK_THROWS_WITH(read(job({{"WORLD_SIZE", "0"}})), Contains("from 1 to"));
  CHECK_THROWS_WITH(read(job({{"MASTER_PORT", "65536"}})),
                    "MASTER_PORT is \"65536\": expected a whole number from 1 to 65535");
  CHECK_THROWS_WITH(read(job({{"MASTER_ADDR", ""}})), Contains("MASTER_ADDR is empty"));
  CHECK_THROWS_WITH(read(job({{"LOCAL_RANK", "x"}})), Contains("LOCAL_RANK is \"x\""));
}

TEST_CASE("worker info: a rank that is alone in a job of ddprun knows where others would meet it", "[runtime][unit]") {
  Variables alone = job({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  CHECK_FALSE(read(alone).place.launcher_hosts);
  alone["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  const WorkerInfo info = read(alone);
  CHECK(info.place.launcher_hosts);
  CHECK(info.place.host == "node-a");
  CHECK(info.place.port == 29500);
}

TEST_CASE("worker info: a world of one needs no place to meet", "[runtime][unit]") {
  CHECK(read({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).place.kind == RendezvousPoint::Kind::Nowhere);
  CHECK(read({}, {.init_method = "", .rank = 0, .world_size = 1}).world_size == 1);
}

// ---- Which setting takes precedence ----

TEST_CASE("worker info: arguments take precedence over the URL, and the URL over the environment", "[runtime][unit]") {
  const InitArguments url = {.init_method = "tcp://host:1?rank=1&world_size=4"};
  const WorkerInfo by_url = read(job({{"LOCAL_RANK", "3"}}), url);
  CHECK(by_url.rank == 1);
  CHECK(by_url.world_size == 4);
  CHECK(by_url.local_rank == 3);
  CHECK(by_url.place.host == "host");
  CHECK(by_url.place.port == 1);
  InitArguments all = url;
  all.rank = 5;
  all.world_size = 6;
  all.local_rank = 1;
  all.local_world_size = 2;
  const WorkerInfo by_arguments = read(job({{"LOCAL_RANK", "3"}, {"LOCAL_WORLD_SIZE", "8"}}), all);
  CHECK(by_arguments.rank == 5);
  CHECK(by_arguments.world_size == 6);
  CHECK(by_arguments.local_rank == 1);
  CHECK(by_arguments.local_world_size == 2);
  const WorkerInfo place_of_environment = read(job(), {.init_method = "env://?rank=7"});
  CHECK(place_of_environment.rank == 7);
  CHECK(place_of_environment.world_size == 8);
  CHECK(place_of_environment.place.host == "node-a");
}

TEST_CASE("worker info: a URL that says where ranks meet needs a rank and a world size as well", "[runtime][unit]") {
  const InitArguments file = {.init_method = "file:///shared/store"};
  const WorkerInfo info = read({{"RANK", "1"}, {"WORLD_SIZE", "2"}}, file);
  CHECK(info.place.kind == RendezvousPoint::Kind::File);
  CHECK(info.place.file == "/shared/store");
  CHECK(info.rank == 1);
  CHECK_THROWS_WITH(
      read({}, file),
      "init_method \"file:///shared/store\" says where ranks meet, but nothing gives this process's rank and "
      "world_size: give ?rank=0&world_size=2 in it, arguments, or the variables RANK and WORLD_SIZE");
  CHECK_THROWS_WITH(read({}, {.init_method = "tcp://a:1?rank=0"}), Contains("this process's world_size:"));
  CHECK_THROWS_WITH(read({{"WORLD_SIZE", "2"}}, {.init_method = "tcp://a:1"}), Contains("this process's rank:"));
}

TEST_CASE("worker info: an error names the source of the wrong value", "[runtime][unit]") {
  CHECK_THROWS_WITH(
      read({}, {.init_method = "tcp://a:1?rank=2&world_size=2"}),
      "rank in init_method \"tcp://a:1?rank=2&world_size=2\" is \"2\": expected a whole number from 0 to 1");
  CHECK_THROWS_WITH(read({}, {.init_method = "tcp://a:1", .rank = -1, .world_size = 2}),
                    "the argument rank is \"-1\": expected a whole number from 0 to 1");
  CHECK_THROWS_WITH(
      read({}, {.init_method = "", .rank = 0, .world_size = 2}),
      Contains("MASTER_ADDR, MASTER_PORT too; given are only the argument rank, the argument world_size"));
}

TEST_CASE("worker info: the launcher hosts a store at its own address only", "[runtime][unit]") {
  const Variables hosting = job({{"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  CHECK(read(hosting, {.init_method = "tcp://node-a:29500"}).place.launcher_hosts);
  CHECK_FALSE(read(hosting, {.init_method = "tcp://node-a:29501"}).place.launcher_hosts);
  CHECK_FALSE(read(hosting, {.init_method = "tcp://node-b:29500"}).place.launcher_hosts);
  CHECK_FALSE(read(hosting, {.init_method = "file:///shared/store"}).place.launcher_hosts);
}

TEST_CASE("worker info: a port other than ddprun's is one where rank 0 hosts the store, unless it is taken",
          "[runtime][unit]") {
  const auto hosting = [](const std::string& port) {
    return read(job({{"TORCHELASTIC_USE_AGENT_STORE", "True"}, {"DDPRUN_STORE_PORT", port}})).place;
  };
  CHECK(hosting("29500").launcher_hosts);
  CHECK_FALSE(hosting("29501").launcher_hosts);
  CHECK(hosting("29501").may_be_hosted);
  CHECK_FALSE(hosting("29500").may_be_hosted);
  CHECK_FALSE(read(job({{"DDPRUN_STORE_PORT", "29501"}})).place.may_be_hosted);
}

// ---- srun ----

namespace {

Variables srun(const Variables& changes = {}) {
  Variables result = {{"SLURM_JOB_ID", "1000"},
                      {"SLURM_STEP_ID", "2"},
                      {"SLURM_PROCID", "19"},
                      {"SLURM_NTASKS", "35"},
                      {"SLURM_STEP_NUM_TASKS", "35"},
                      {"SLURM_LOCALID", "3"},
                      {"SLURM_NODEID", "1"},
                      {"SLURM_STEP_TASKS_PER_NODE", "16(x2),3"},
                      {"SLURM_STEP_NODELIST", "gpu[03-04,12]"}};
  for (const auto& [name, value] : changes) result[name] = value;
  return result;
}

}  // namespace

TEST_CASE("worker info: a task of srun finds rank, size and the first node", "[runtime][unit]") {
  const WorkerInfo info = read(srun({{"SLURM_RESTART_COUNT", "2"}}));
  CHECK(info.rank == 19);
  CHECK(info.world_size == 35);
  CHECK(info.local_rank == 3);
  CHECK(info.local_world_size == 16);
  CHECK(info.restart_count == 2);
  CHECK(info.place.kind == RendezvousPoint::Kind::Address);
  CHECK(info.place.host == "gpu03");
  CHECK(info.place.port == 20000 + (1000 * 16 + 2) % 12000);
  CHECK(info.place.port_is_derived);
  CHECK(info.place.job == "slurm-1000.2");
  CHECK_FALSE(info.place.launcher_hosts);
}

TEST_CASE("worker info: neighbouring jobs and steps of Slurm get different ports", "[runtime][unit]") {
  std::set<std::uint16_t> ports;
  for (int job = 0; job < 50; ++job) {
    for (int step = 0; step < 16; ++step) {
      const auto text = [](int n) { return std::to_string(n); };
      ports.insert(read(srun({{"SLURM_JOB_ID", text(4711000 + job)}, {"SLURM_STEP_ID", text(step)}})).place.port);
    }
  }
  CHECK(ports.size() == 50 * 16);
  CHECK(*ports.begin() >= 20000);
  CHECK(*ports.rbegin() < 32000);
}

TEST_CASE("worker info: MASTER_ADDR and MASTER_PORT take precedence over Slurm's variables", "[runtime][unit]") {
  const WorkerInfo both = read(srun({{"MASTER_ADDR", "login"}, {"MASTER_PORT", "4711"}}));
  CHECK(both.place.host == "login");
  CHECK(both.place.port == 4711);
  CHECK_FALSE(both.place.port_is_derived);
  CHECK(read(srun({{"MASTER_PORT", "4711"}})).place.host == "gpu03");
  CHECK_THROWS_WITH(read(srun({{"MASTER_PORT", "0"}})), Contains("MASTER_PORT is \"0\""));
}

TEST_CASE("worker info: Slurm's variables count only in a step, and where RANK is not set", "[runtime][unit]") {
  Variables batch_script = {{"SLURM_JOB_ID", "1000"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "16"}};
  CHECK(read(batch_script).world_size == 1);
  batch_script["SLURM_STEP_ID"] = "4294967291";
  CHECK(read(batch_script).world_size == 1);
  CHECK(read(srun({{"SLURM_STEP_ID", "4294967290"}})).world_size == 1);  // salloc's shell
  CHECK(read(srun({{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}})).world_size == 1);
  Variables old = srun();
  old.erase("SLURM_STEP_NUM_TASKS");
  CHECK(read(old).world_size == 35);
  const WorkerInfo launched = read(job({{"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "0"}, {"SLURM_NTASKS", "4"}}));
  CHECK(launched.rank == 3);
  CHECK(launched.place.job.empty());
}

TEST_CASE("worker info: an error names variables that Slurm left out, and what to set instead", "[runtime][unit]") {
  Variables no_nodes = srun();
  no_nodes.erase("SLURM_STEP_NODELIST");
  CHECK_THROWS_WITH(read(no_nodes), Contains("SLURM_STEP_NODELIST not set") && Contains("set MASTER_ADDR"));
  no_nodes["SLURM_JOB_NODELIST"] = "a,b";
  CHECK(read(no_nodes).place.host == "a");
  Variables no_job = srun();
  no_job.erase("SLURM_JOB_ID");
  CHECK_THROWS_WITH(read(no_job), Contains("SLURM_JOB_ID") && Contains("set MASTER_PORT"));
  CHECK_THROWS_WITH(read(srun({{"SLURM_PROCID", "0"}})),
                    Contains("rank 0 is not on the step's first node gpu03") && Contains("set MASTER_ADDR"));
  CHECK_THROWS_WITH(read(srun({{"SLURM_PROCID", "35"}})),
                    "SLURM_PROCID is \"35\": expected a whole number from 0 to 34");
}

// ---- mpirun and mpiexec ----

namespace {

Variables mpirun(const Variables& changes = {}) {
  Variables result = {{"OMPI_COMM_WORLD_RANK", "1"},       {"OMPI_COMM_WORLD_SIZE", "4"},
                      {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                      {"PMIX_NAMESPACE", "4711"},          {"PMIX_SERVER_TMPDIR", "/tmp/ompi.vm.0/pid.1"}};
  for (const auto& [name, value] : changes) result[name] = value;
  return result;
}

Variables mpiexec(int size, int local_size, const Variables& changes = {}) {
  Variables result = {{"PMI_RANK", "1"},
                      {"PMI_SIZE", std::to_string(size)},
                      {"MPI_LOCALRANKID", "1"},
                      {"MPI_LOCALNRANKS", std::to_string(local_size)}};
  for (const auto& [name, value] : changes) result[name] = value;
  return result;
}

}  // namespace

TEST_CASE("worker info: ranks of Open MPI on one node meet in the folder of their mpirun", "[runtime][unit]") {
  const WorkerInfo info = read(mpirun());
  CHECK(info.rank == 1);
  CHECK(info.world_size == 4);
  CHECK(info.local_rank == 1);
  CHECK(info.local_world_size == 4);
  CHECK(info.place.kind == RendezvousPoint::Kind::PortInFile);
  CHECK(info.place.file == "/tmp/ompi.vm.0/pid.1/libddp.4711");
}

TEST_CASE("worker info: ranks of an MPI on several nodes whose store is not there need MASTER_ADDR and MASTER_PORT",
          "[runtime][unit]") {
  const Variables several = mpirun({{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
  CHECK_THROWS_WITH(
      read(several),
      "OMPI_COMM_WORLD_SIZE is 4, but MASTER_ADDR and MASTER_PORT are not set, not all ranks are on one "
      "node, and asking the starter of this process, by PMIx, for what rank 0 says: PMIX_NAMESPACE is not "
      "set: set them to the node of rank 0 and a port that is free there, for example: mpirun -x "
      "MASTER_ADDR=$(hostname) -x MASTER_PORT=29500 PROGRAM");
  CHECK_THROWS_WITH(read(mpiexec(4, 2)), Contains("PMI_SIZE is 4") && Contains("PMI_FD is not set") &&
                                             Contains("mpiexec -genv MASTER_ADDR $(hostname)"));
  CHECK_THROWS_WITH(read(mpirun({{"MASTER_ADDR", "a"}})),
                    "MASTER_PORT not set, though MASTER_ADDR is: set both, or neither");
  const WorkerInfo info = read(mpiexec(4, 2, {{"MASTER_ADDR", "node-a"}, {"MASTER_PORT", "4711"}}));
  CHECK(info.rank == 1);
  CHECK(info.local_world_size == 2);
  CHECK(info.place.kind == RendezvousPoint::Kind::Address);
  CHECK(info.place.host == "node-a");
  CHECK(info.place.port == 4711);
}

TEST_CASE("worker info: ranks of an MPI on one node that share nothing else get an error that says what to set",
          "[runtime][unit]") {
  Variables no_folder = mpirun();
  no_folder.erase("PMIX_SERVER_TMPDIR");
  CHECK_THROWS_WITH(read(no_folder), Contains("PMIX_SERVER_TMPDIR") && Contains("set them to the node of rank 0"));
  CHECK_THROWS_WITH(read(mpiexec(2, 2)), Contains("PMI_FD") && Contains("set them to the node of rank 0"));
  CHECK_THROWS_WITH(read(mpiexec(2, 2, {{"PMI_FD", "1000000"}})), Contains("PMI_FD"));
}

TEST_CASE("worker info: an MPI inside a Slurm step takes precedence over the step", "[runtime][unit]") {
  CHECK(read(srun(mpirun())).rank == 1);
  const Variables address = {{"MASTER_ADDR", "node-a"}, {"MASTER_PORT", "4711"}};
  CHECK(read(srun(mpiexec(4, 4, address))).rank == 1);
  // srun --mpi=pmi2 sets both, about the same tasks.
  const WorkerInfo pmi2 = read(srun({{"PMI_RANK", "19"}, {"PMI_SIZE", "35"}}));
  CHECK(pmi2.rank == 19);
  CHECK(pmi2.place.host == "gpu03");
}
