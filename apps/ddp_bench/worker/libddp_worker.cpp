// SPDX-License-Identifier: BSD-3-Clause
// bench_worker: a worker that records when it reached which point; scripts/bench starts it, and kills some.
//
//   bench_worker FILE first           joins, makes one all_reduce, leaves
//   bench_worker FILE again           as first, but before the first restart it reduces until something ends it
//   bench_worker FILE hold MIB        joins; rank 1 takes that much memory; all ranks wait for a signal
//   bench_worker FILE hold MIB plain  as hold, but without joining, as any other program
#include <chrono>
#include <ddp/ddp.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "apps/ddp_bench/worker/stamps.h"

namespace {

void reduce(const ddp::Session& session) {
  const int size = session.world_size();
  double sum = session.rank() + 1;
  session.world().all_reduce({&sum, 1});
  if (sum != size * (size + 1) / 2.0) throw std::runtime_error("the sum is " + std::to_string(sum));
}

void reduce_once(const char* file, bool until_ended) {
  ddp::Session session = ddp::init_process_group();
  stamp(file, "joined");
  reduce(session);
  stamp(file, "reduced");
  if (!until_ended) return;
  while (true) {  // an error throws
    reduce(session);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // in place of a step's forward and backward
  }
}

[[noreturn]] void hold(const char* file, std::size_t mib) {
  const std::vector<char> memory(rank_in_environment() == 1 ? mib << 20 : 1, 'x');
  stamp(file, "ready");
  while (true) pause();
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv, argv + argc);
  try {
    if (argc == 3 && (words[2] == "first" || words[2] == "again")) {
      stamp(argv[1], "started");
      reduce_once(argv[1], words[2] == "again" && restart_in_environment() == 0);
      return 0;
    }
    if (argc == 4 && words[2] == "hold") {
      const ddp::Session session = ddp::init_process_group();
      hold(argv[1], std::stoul(words[3]));
    }
    if (argc == 5 && words[2] == "hold" && words[4] == "plain") hold(argv[1], std::stoul(words[3]));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_worker: %s\n", error.what());
    return 1;
  }
  std::fprintf(stderr, "usage: bench_worker FILE first|again, or FILE hold MIB [plain]\n");
  return 2;
}
