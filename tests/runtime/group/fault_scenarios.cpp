// SPDX-License-Identifier: BSD-3-Clause
// A rank dies before, in or after an operation. The others print what they learn of it and when, and continue without
// it.
#include <chrono>
#include <csignal>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/runtime/job/scenario.hpp"

namespace ddp::test {
namespace {

constexpr std::size_t kSmall = 5;
constexpr std::size_t kLarge = 2'000'000;  // more than socket buffers hold, so that it takes some time

struct Fault {
  std::string operation;
  std::string when;
  int victim = 0;
};

struct Memory {
  Memory(std::size_t count, int ranks)
      : one(count, 1.0F), all(count * static_cast<std::size_t>(ranks), 1.0F), more(all) {}
  std::vector<float> one, all, more;
};

std::string now() {
  const auto since_boot = std::chrono::steady_clock::now().time_since_epoch();
  return std::to_string(std::chrono::duration_cast<std::chrono::microseconds>(since_boot).count());
}

// Returns the next rank, skipping the victim.
int neighbour(const ddp::ProcessGroup& world, int victim) {
  const int next = (world.rank() + 1) % world.size();
  return next == victim ? (next + 1) % world.size() : next;
}

// Issues the operation. The victim is the root or the sender, if there is one.
ddp::Work start(const ddp::ProcessGroup& world, const Fault& fault, Memory& m) {
  const std::string& name = fault.operation;
  const int victim = fault.victim;
  if (name == "all_reduce") return world.all_reduce_async(m.one);
  if (name == "reduce") return world.reduce_async(m.one, ddp::ReduceOp::Sum, victim);
  if (name == "broadcast") return world.broadcast_async(m.one, victim);
  if (name == "all_gather") return world.all_gather_async(m.one, m.all);
  if (name == "gather") return world.gather_async(m.one, m.all, victim);
  if (name == "scatter") return world.scatter_async(m.all, m.one, victim);
  if (name == "reduce_scatter") return world.reduce_scatter_async(m.all, m.one);
  if (name == "all_to_all") return world.all_to_all_async(m.all, m.more);
  if (name == "barrier") return world.barrier_async();
  if (name == "recv from the living") return world.irecv(m.one, neighbour(world, victim));  // which sends nothing
  if (name != "recv") throw std::runtime_error("no operation " + name);
  if (world.rank() != victim) return world.irecv(m.one, victim);
  ddp::Work last;
  for (int rank = 0; rank < world.size(); ++rank) {
    if (rank != victim) last = world.isend(m.one, rank);
  }
  return last;
}

std::vector<std::string> everyone_there(int world_size, int victim) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < world_size; ++rank) {
    if (rank != victim) keys.push_back("there/" + std::to_string(rank));
  }
  return keys;
}

[[noreturn]] void await_death() {
  for (;;) pause();
}

void be_the_victim(ddp::Session& session, const Fault& fault, Memory& memory) {
  if (fault.when == "inside") {
    session.store().wait(everyone_there(session.world_size(), fault.victim));
    const ddp::Work work = start(session.world(), fault, memory);
    work.wait_for(ddp::Milliseconds(1));  // polls once, so that it is under way
    say("dies at " + now());
    raise(SIGKILL);
  }
  say("ready");
  await_death();
}

void survive(ddp::Session& session, const Fault& fault, Memory& memory) {
  session.store().set("there/" + std::to_string(session.rank()), "");  // this rank has left the operations before
  say("ready");
  if (fault.when == "before") session.store().wait({"go"});
  const std::string began = now();
  try {
    if (fault.when != "after") start(session.world(), fault, memory).wait();
    session.world().barrier();  // a rank that had its part of the operation learns of the death at the next one
    expect(false, "a rank that is dead was not missed");
  } catch (const ddp::Error& e) {
    say("began at " + began + ", failed at " + now() + ": " + std::to_string(static_cast<int>(e.status())) + " " +
        e.what());
  }
  std::vector<int> survivors;
  for (int rank = 0; rank < session.world_size(); ++rank) {
    if (rank != fault.victim) survivors.push_back(rank);
  }
  std::vector<int> ones = {1};
  session.new_group(survivors).all_reduce(ones);
  expect(ones[0] == session.world_size() - 1, "the survivors' sum");
  say("recovered");
}

}  // namespace

// `words` is "OPERATION,WHEN,VICTIM".
void fault(ddp::Session& session, const std::string& words) {
  Fault fault;
  std::istringstream in(words);
  std::string victim;
  std::getline(in, fault.operation, ',');
  std::getline(in, fault.when, ',');
  std::getline(in, victim);
  fault.victim = std::stoi(victim);
  signal(SIGTERM, SIG_IGN);  // ddprun stops the others, which have something to print first
  Memory memory(fault.when == "inside" ? kLarge : kSmall, session.world_size());
  if (fault.when == "after") start(session.world(), fault, memory).wait();
  session.world().barrier();
  if (session.rank() == fault.victim) be_the_victim(session, fault, memory);
  survive(session, fault, memory);
}

}  // namespace ddp::test
