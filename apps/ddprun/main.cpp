// SPDX-License-Identifier: BSD-3-Clause
// ddprun: parse, fork the agent under its guardian, run the job, exit with its code.
//
// Exit codes: 0 success; 1 ddprun failed; 2 wrong usage; 126/127 the program cannot be executed / was not found; else
// that of the first worker that failed, or 128 + the signal that ended it or ddprun.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <variant>

#include "apps/ddprun/options.hpp"
#include "launcher/agent.hpp"
#include "launcher/error_file.hpp"
#include "launcher/guardian.hpp"
#include "launcher/program.hpp"
#include "rendezvous/worker_contract.hpp"

namespace {

constexpr int kWrongUsage = 2;

// A launcher that started this ddprun is told as well, but for wrong usage, as with torchrun.
int fail(int exit_code, const char* what) {
  fprintf(stderr, "ddprun: %s\n", what);
  const char* path = getenv(ddp::rendezvous::contract::kErrorFile);
  if (exit_code != kWrongUsage && path && *path != '\0') {
    ddp::launcher::write_error_file(path, ddp::launcher::record_for_parent(what, time(nullptr)));
  }
  return exit_code;
}

// With 0, 1 or 2 closed, the next pipe would get that number and be taken for the console.
void open_standard_descriptors() {
  int fd = open("/dev/null", O_RDWR);
  while (fd >= 0 && fd <= STDERR_FILENO) fd = dup(fd);
  if (fd > STDERR_FILENO) close(fd);
}

int run(const ddp::apps::Launch& launch) {
  return ddp::launcher::run_guarded([&](const ddp::launcher::Guarded& guarded) {
    try {
      return ddp::launcher::run_agent(launch.config, launch.log, guarded);
    } catch (const std::exception& error) {
      return fail(1, error.what());
    }
  });
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_descriptors();
  try {
    const std::string own_folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
    const auto options = ddp::apps::parse_options({argv + 1, argv + argc}, own_folder);
    if (const auto* print = std::get_if<ddp::apps::JustPrint>(&options)) {
      fputs(print->text.c_str(), stdout);
      return 0;
    }
    return run(std::get<ddp::apps::Launch>(options));
  } catch (const ddp::apps::UsageError& error) {
    fail(kWrongUsage, error.what());
    fputs("usage: ddprun [options] program [arguments]; ddprun --help explains them\n", stderr);
    return kWrongUsage;
  } catch (const ddp::launcher::ProgramError& error) {
    return fail(error.exit_code(), error.what());
  } catch (const std::exception& error) {
    return fail(1, error.what());
  }
}
