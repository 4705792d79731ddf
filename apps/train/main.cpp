// SPDX-License-Identifier: BSD-3-Clause
// train, the example job. Run it under ddprun with any number of workers,
//
//     ddprun --nproc_per_node 8 train
//
// or alone: without a launcher a process is a job of one rank.
#include <cstdio>
#include <cstdlib>
#include <ddp/ddp.hpp>
#include <exception>
#include <string>

#include "apps/train/failure.hpp"
#include "apps/train/options.hpp"
#include "apps/train/trainer.hpp"

namespace {

// Under a launcher, its report shows the message once for all ranks. Without one, print it here.
int fail(int code, const std::string& message) {
  if (!ddp::record_error(message)) std::fprintf(stderr, "train: %s\n", message.c_str());
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const train::Options options = train::parse_options(argc, argv);
    if (!options.help.empty()) {
      // Print once per node. There is no session yet that knows the local rank.
      const char* local_rank = std::getenv("LOCAL_RANK");
      if (local_rank == nullptr || *local_rank == '0') std::fputs(options.help.c_str(), stdout);
      return 0;
    }
    train::train(options);
    return 0;
  } catch (const train::BadInput& e) {
    return fail(2, e.what());
  } catch (const std::exception& e) {  // train::Failure, or ddp::Error: names the collective and the rank at fault
    return fail(1, e.what());
  }
}
