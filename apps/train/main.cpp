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

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// Leaves the message where the launcher's report finds it, and prints it if this rank is one to speak.
int fail(int code, const std::string& message, bool print) {
  ddp::record_error(message);
  if (print) std::fprintf(stderr, "train: %s\n", message.c_str());
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  // What all ranks meet alike is said once on each node. Asked before a session could tell.
  const bool first_here = environment("LOCAL_RANK").empty() || environment("LOCAL_RANK") == "0";
  try {
    const train::Options options = train::parse_options(argc, argv);
    if (!options.help.empty()) {
      if (first_here) std::fputs(options.help.c_str(), stdout);
      return 0;
    }
    const train::Corpus corpus(options.data);
    const ddp::Session session = ddp::init_process_group();
    train::Trainer(options, corpus, session).run();
    return 0;
  } catch (const train::Failure& e) {
    return fail(e.exit_code(), e.what(), first_here);
  } catch (const std::exception& e) {  // ddp::Error among them: says which collective failed and whom it blames
    return fail(1, "rank " + environment("RANK") + ": " + e.what(), true);
  }
}
