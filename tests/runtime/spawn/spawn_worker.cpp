// SPDX-License-Identifier: BSD-3-Clause
// A program that spawns processes: `spawn_worker SCENARIO [COUNT]`. It prints the outcome; a SpawnError is a line too.
#include <dlfcn.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>

#include "ddp/ddp.hpp"
#include "tests/runtime/job/scenario.hpp"
#include "tests/support/environment.hpp"

namespace {

using ddp::test::say;
using ddp::testing::variable;

[[noreturn]] void wait_for_the_end() {
  for (;;) pause();
}

ddp::SpawnOptions without_join(bool daemon = false) {
  ddp::SpawnOptions options;
  options.join = false;
  options.daemon = daemon;
  options.grace = std::chrono::milliseconds(100);
  return options;
}

void sum_up(int) {
  const ddp::Session session = ddp::init_process_group();
  float value = static_cast<float>(session.rank() + 1);
  session.world().all_reduce({&value, 1});
  say("rank " + std::to_string(session.rank()) + " of " + std::to_string(session.world_size()) + ": " +
      std::to_string(static_cast<int>(value)));
  session.world().barrier();
}

void all_reduce(int count) {
  ddp::spawn(sum_up, count);
  say("all ended");
}

void set(const char* name, const std::string& value) { setenv(name, value.c_str(), 1); }

void set_master() {
  set("MASTER_ADDR", "localhost");
  set("MASTER_PORT", variable("TEST_PORT"));
}

// Meets the others as PyTorch's examples do, which give the rank and the world's size themselves.
void sum_up_as(int rank, int world_size) {
  ddp::InitOptions options;
  options.rank = rank;
  options.world_size = world_size;
  const ddp::Session session = ddp::init_process_group(options);
  float value = static_cast<float>(rank + 1);
  session.world().all_reduce({&value, 1});
  say("rank " + std::to_string(rank) + " of " + std::to_string(world_size) + ": " +
      std::to_string(static_cast<int>(value)) + " at " + variable("MASTER_ADDR") + ":" + variable("MASTER_PORT"));
  session.world().barrier();
}

void master_inside(int count) {
  ddp::spawn(
      [&](int rank) {
        set_master();
        sum_up_as(rank, count);
      },
      count);
}

// One of two nodes, which TEST_NODE numbers; each spawns this many ranks.
void one_of_two_nodes(int count) {
  const int node = std::stoi(variable("TEST_NODE"));
  set_master();
  ddp::spawn([&](int rank) { sum_up_as(node * count + rank, 2 * count); }, count);
}

void environment(int count) {
  ddp::spawn(
      [](int rank) {
        char byte = 0;
        say(std::to_string(rank) + ": " + variable("RANK") + " " + variable("LOCAL_RANK") + " " +
            variable("WORLD_SIZE") + " " + variable("LOCAL_WORLD_SIZE") + " " + variable("MASTER_ADDR") + " " +
            (getpgrp() == getpgid(getppid()) ? "same group" : "another group") + " reads " +
            std::to_string(read(STDIN_FILENO, &byte, 1)));
      },
      count);
}

// One rank fails in this way while the others wait for it in a barrier.
std::function<void(int)> while_others_wait(const std::function<void()>& fail) {
  return [fail](int rank) {
    const ddp::Session session = ddp::init_process_group();
    session.world().barrier();
    if (rank == 1) fail();
    session.world().barrier();
  };
}

void fails(int count, const std::function<void()>& how) { ddp::spawn(while_others_wait(how), count); }

void crash(int number) {
  const rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);
  signal(number, SIG_DFL);
  raise(number);
}

// The rank that lives prints the error of its collective.
void hears_why(int) {
  ddp::spawn(
      [](int rank) {
        signal(SIGTERM, SIG_IGN);
        const ddp::Session session = ddp::init_process_group();
        session.world().barrier();
        // All ranks must have left the barrier when rank 2 dies.
        if (rank == 2) {
          session.store().wait({"0", "1"});
          crash(SIGKILL);
        }
        session.store().set(std::to_string(rank), "is through");
        if (rank == 1) session.world().recv(ddp::Buffer(), 0);
        // A receive from rank 1, which lives: only the parent's report can end it.
        char nothing = 0;
        try {
          session.world().recv({&nothing, 1}, 1);
        } catch (const ddp::Error& e) {
          say(e.what());
        }
      },
      3);
}

void hangs(int) {
  ddp::SpawnOptions options;
  options.grace = std::chrono::milliseconds(50);
  ddp::spawn(
      [](int rank) {
        if (rank == 1) throw std::runtime_error("gives up");
        signal(SIGTERM, SIG_IGN);
        wait_for_the_end();
      },
      3, options);
}

void join_later(int count) {
  std::array<int, 2> gate = {};
  if (pipe(gate.data()) != 0) throw std::runtime_error("no pipe");
  ddp::SpawnContext context = ddp::spawn(
      [&](int rank) {
        close(gate[1]);
        char byte = 0;
        if (read(gate[0], &byte, 1) == 0) say("rank " + std::to_string(rank) + " goes on");
      },
      count, without_join());
  say(context.join(ddp::Milliseconds(0)) ? "ended" : "running");
  for (const int pid : context.pids()) say(kill(pid, 0) == 0 ? "alive" : "gone");
  close(gate[1]);
  context.join();
  say(context.join(ddp::Milliseconds(0)) ? "ended" : "running");
  ddp::spawn([](int) { say("another"); }, 1);  // nothing is left of the first spawn that would forbid it
}

void parent_waits(int count) {
  const ddp::SpawnContext context = ddp::spawn(
      [](int rank) {
        say("rank " + std::to_string(rank) + " runs");
        wait_for_the_end();
      },
      count, without_join());
  wait_for_the_end();
}

void daemons(int count) {
  {
    const ddp::SpawnContext context = ddp::spawn([](int) { wait_for_the_end(); }, count, without_join(true));
  }
  say("all ended");
}

void unheard(int count) {
  ddp::spawn([](int) { throw std::runtime_error("in the wood"); }, count, without_join());
}

void from_a_thread(int) {
  std::array<int, 2> gate = {};
  if (pipe(gate.data()) != 0) throw std::runtime_error("no pipe");
  std::thread other([&] {
    char byte = 0;
    if (read(gate[0], &byte, 1) < 0) std::abort();
  });
  try {
    ddp::spawn([](int) {}, 2);
  } catch (const ddp::Error& e) {
    say(e.what());
  }
  close(gate[1]);
  other.join();
  ddp::spawn([](int rank) { say("rank " + std::to_string(rank)); }, 1);
}

void in_a_job(int) {
  {
    const ddp::Session session = ddp::init_process_group();
    try {
      ddp::spawn([](int) {}, 2);
    } catch (const ddp::Error& e) {
      say(e.what());
    }
  }
  ddp::spawn([](int rank) { say("rank " + std::to_string(rank)); }, 1);
}

void with_cuda(int) {
  void* library = dlopen(variable("DDP_CUDA_LIBRARY").c_str(), RTLD_NOW);
  if (library == nullptr) throw std::runtime_error(dlerror());
  ddp::spawn([](int rank) { say("rank " + std::to_string(rank)); }, 1);  // CUDA is loaded but not used
  reinterpret_cast<int (*)(unsigned)>(dlsym(library, "cuInit"))(0);
  ddp::spawn([](int) {}, 1);
}

void nested(int) {
  ddp::spawn(
      [](int rank) {
        if (rank == 0) ddp::spawn(sum_up, 3);
        sum_up(rank);
      },
      2);
}

void nested_failure(int) {
  ddp::spawn([](int) { ddp::spawn([](int) { throw std::runtime_error("deep down"); }, 1); }, 1);
}

void twice(int count) {
  for (int i = 0; i < 3; ++i) ddp::spawn(sum_up, count);
}

void many(int count) {
  ddp::spawn([](int) {}, count);
  say("all ended");
}

void buffered(int count) {
  std::ios::sync_with_stdio(false);  // then cout has a buffer of its own
  std::cout << "of C++\n";
  std::printf("of C\n");
  ddp::spawn([](int rank) { std::printf("rank %d\n", rank); }, count);
}

int called = 0;
ddp_status c_function(int32_t rank, void* context, char* why, size_t why_size) {
  ++called;
  if (rank == 0) return ddp_all_reduce(nullptr, {}, {}, 0, nullptr);
  std::snprintf(why, why_size, "%s", static_cast<const char*>(context));
  return DDP_CORRUPT;
}

void from_c(int count) {
  char text[] = "the file is torn";
  ddp_spawned* spawned = nullptr;
  ddp_spawn_failure failure = {-1, -1, -1};
  if (ddp_spawn(&c_function, text, count, nullptr, &spawned) != DDP_OK) throw std::runtime_error(ddp_error_last());
  const ddp_status status = ddp_spawn_join(spawned, &failure);
  say(std::to_string(status == DDP_OK) + " " + std::to_string(failure.exit_code) + " " +
      std::to_string(failure.signal) + " " + std::to_string(called) + " " + ddp_error_last());
  say(ddp_spawn_pid(spawned, 0) > 0 && ddp_spawn_pid(spawned, count) == -1 ? "pids" : "no pids");
  ddp_spawn_destroy(spawned);
  say(ddp_spawn(nullptr, text, 1, nullptr, &spawned) == DDP_INVALID_ARGUMENT ? ddp_error_last() : "accepted");
  say(ddp_spawn(&c_function, text, 0, nullptr, &spawned) == DDP_INVALID_ARGUMENT ? ddp_error_last() : "accepted");
  ddp_spawn_destroy(nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, std::function<void(int)>> scenarios = {
      {"all_reduce", all_reduce},
      {"environment", environment},
      {"master inside", master_inside},
      {"one of two nodes", one_of_two_nodes},
      {"exception", [](int n) { fails(n, [] { throw std::runtime_error("the data is gone"); }); }},
      {"ddp error", [](int n) { fails(n, [] { throw ddp::Error(ddp::Status::Corrupt, "the file is torn"); }); }},
      {"no exception class", [](int n) { fails(n, [] { throw 42; }); }},
      {"long text", [](int n) { fails(n, [] { throw std::runtime_error(std::string(100'000, 'x')); }); }},
      {"segmentation fault", [](int n) { fails(n, [] { crash(SIGSEGV); }); }},
      {"killed", [](int n) { fails(n, [] { crash(SIGKILL); }); }},
      {"exit 3", [](int n) { fails(n, [] { _exit(3); }); }},
      {"exit 0", [](int n) { ddp::spawn([](int) { _exit(0); }, n); }},
      {"hears why", hears_why},
      {"hangs", hangs},
      {"join later", join_later},
      {"parent waits", parent_waits},
      {"daemons", daemons},
      {"unheard", unheard},
      {"from a thread", from_a_thread},
      {"in a job", in_a_job},
      {"with cuda", with_cuda},
      {"nested", nested},
      {"nested failure", nested_failure},
      {"twice", twice},
      {"many", many},
      {"buffered", buffered},
      {"from C", from_c},
  };
  try {
    scenarios.at(argv[1])(argc > 2 ? std::stoi(argv[2]) : 2);
    return 0;
  } catch (const ddp::SpawnError& e) {
    say("SpawnError " + std::to_string(e.rank()) + " " + std::to_string(e.exit_code()) + " " +
        std::to_string(e.signal()) + " " + std::to_string(static_cast<int>(e.status())) + " " + e.what());
  } catch (const std::exception& e) {
    say(std::string("error: ") + e.what());
  }
  return 1;
}
