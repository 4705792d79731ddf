// SPDX-License-Identifier: BSD-3-Clause
// train: the example job. Run it under ddprun with any number of workers,
//
//     ddprun --nproc_per_node 8 train
//
// or alone: without a launcher a process is a world of its own.
#include <cstdio>
#include <cstdlib>
#include <ddp/ddp.hpp>
#include <exception>
#include <string>

#include "apps/train/failure.hpp"
#include "apps/train/options.hpp"
#include "apps/train/trainer.hpp"

namespace {

// A launcher's report says it once for all ranks; without a launcher we do.
int fail(int code, const std::string& message) {
  if (!ddp::record_error(message)) std::fprintf(stderr, "train: %s\n", message.c_str());
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const train::Options options = train::parse_options(argc, argv);
    if (!options.help.empty()) {
      // Once on each node; asked before a session could tell.
      const char* local_rank = std::getenv("LOCAL_RANK");
      if (local_rank == nullptr || *local_rank == '0') std::fputs(options.help.c_str(), stdout);
      return 0;
    }
    train::train(options);
    return 0;
  } catch (const train::BadInput& e) {
    return fail(2, e.what());
  } catch (const std::exception& e) {  // train::Failure, or ddp::Error: which collective, whom it blames
    return fail(1, e.what());
  }
}
