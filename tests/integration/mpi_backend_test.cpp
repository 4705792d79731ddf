// SPDX-License-Identifier: BSD-3-Clause
// The backend over MPI (tests/fixtures/mpi_backend.c) carries out libddp's collectives, under the mpirun of the
// MPI that it is compiled with (MPIRUN, BACKEND_FOLDER; MPI is its name) and under ddprun.
#include <algorithm>
#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "tests/support/process.hpp"

using namespace ddp::testing;

namespace {

Process::Options with_backend(std::map<std::string, std::string> further = {}) {
  Process::Options options;
  options.environment = std::move(further);
  options.environment["DDP_BACKEND_PATH"] = BACKEND_FOLDER;
  options.environment["OMPI_ALLOW_RUN_AS_ROOT"] = options.environment["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1";
  options.deadline = std::chrono::seconds(120);
  return options;
}

// Returns the command for a job of `ranks` ranks.
std::vector<std::string> mpirun_command(const std::string& ranks, const std::vector<std::string>& program) {
  std::vector<std::string> command = {MPIRUN, "-n", ranks};
#ifdef MPI_IS_OPEN_MPI
  command.insert(command.end(), {"--oversubscribe", "--bind-to", "none"});
#endif
  command.insert(command.end(), program.begin(), program.end());
  return command;
}

// Returns how a job of `ranks` ranks ends.
Result mpirun(const std::string& ranks, const std::vector<std::string>& program) {
  Process job(mpirun_command(ranks, program), with_backend());
  Result result = job.wait();
  CHECK(job.all_gone());
  return result;
}

}  // namespace

TEST_CASE("mpi backend, " MPI ": random collectives under mpirun give what they should", "[apps][integration]") {
  const Result result = mpirun("4", {RANDOM_WORKER, "7", "60", "mpi"});
  INFO(result.out << result.err);
  CHECK(result.out.empty());
  CHECK(result.code == 0);
}

TEST_CASE("mpi backend, " MPI ": messages and asynchronous work arrive", "[apps][integration]") {
  for (const char* scenario : {"messages", "async"}) {
    const Result result = mpirun("3", {COLLECTIVE_WORKER, scenario, "60000", "mpi"});
    INFO(scenario << ": " << result.out << result.err);
    CHECK(result.out.find("wrong") == std::string::npos);
    CHECK(result.out.find("error: ") == std::string::npos);
    CHECK(result.code == 0);
  }
}

TEST_CASE("mpi backend, " MPI ": a deadline ends a wait for a message that never comes", "[apps][integration]") {
  // The ranks end without MPI_Finalize, which would wait for the message. Then mpirun kills the others, and may itself
  // crash or wait for ever (Open MPI 4.1: in PMIx_server_finalize). So the ranks write to files, and only they must
  // end.
  const TemporaryFolder folder;
  const std::string to_file = "exec \"$0\" \"$@\" >" + folder.path() + "/$$";
  const Process job(mpirun_command("3", {"sh", "-c", to_file, COLLECTIVE_WORKER, "unanswered", "60000", "mpi"}),
                    with_backend());
  const auto written = [&] {
    std::string all;
    for (const auto& file : std::filesystem::directory_iterator(folder.path())) all += read_file(file.path());
    return all;
  };
  const auto rank_is_left = [&] {
    const std::vector<pid_t> left = job.left_over();
    return std::any_of(left.begin(), left.end(), [](pid_t pid) {
      return read_file("/proc/" + std::to_string(pid) + "/comm").rfind("collective_work", 0) == 0;
    });
  };
  wait_until([&] { return count(written(), "barrier failed") > 0 && !rank_is_left(); });
  const std::string out = written();
  INFO(out);
  CHECK(out.find("not done in 300 ms") != std::string::npos);
  CHECK(out.find("wrong") == std::string::npos);
}

#ifdef MPI_IS_OPEN_MPI  // MPICH's processes cannot connect to each other unless its own launcher has started them
TEST_CASE("mpi backend, " MPI ": ranks that ddprun starts meet through ompi-server, and say so if there is none",
          "[apps][integration]") {
  const std::vector<std::string> job = {DDPRUN_BINARY, "--nproc-per-node", "3", RANDOM_WORKER, "7", "60", "mpi"};
  const Result alone = run(job, with_backend());
  CHECK(alone.code == 1);
  CHECK(alone.out.find("ompi-server -r FILE") != std::string::npos);

  const TemporaryFolder folder;
  const std::string address = folder.path() + "/address";
  Process server({"ompi-server", "--no-daemonize", "-r", address}, with_backend());
  wait_until([&] { return std::ifstream(address).peek() != std::ifstream::traits_type::eof(); });
  Process together(job, with_backend({{"OMPI_MCA_pmix_server_uri", "file:" + address}}));
  const Result result = together.wait();
  INFO(result.out << result.err);
  CHECK(result.out.empty());
  CHECK(result.code == 0);
  CHECK(together.all_gone());
  server.signal(SIGTERM);
  server.wait();
}
#endif
