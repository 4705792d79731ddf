// SPDX-License-Identifier: BSD-3-Clause
// The gate between a worker's fork and its program: all workers of a round wait there until the
// last one exists. A second pipe takes what fails after the gate.
//
//     fork every worker ─▶ each waits at the gate ─▶ all exist: open ─▶ its program
//                                                 ─▶ one is missing, or the agent is gone: all exit, none ran a line
//
// A worker that reads a byte from the gate goes on; one that reads end of file exits. If a step
// between gate and program fails, the worker writes an ExecFailure to the status pipe.
#pragma once

#include <cstddef>

#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/base/pipe.hpp"

namespace ddp::launcher {

using rendezvous::Descriptor;

// The step that failed in worker `index` before its program ran. Three ints, which warm_parent.py
// writes too.
struct ExecFailure {
  enum class Step { Bind, Execute };
  int index = 0;
  Step step = Step::Execute;
  int error = 0;  // errno
};

class StartGate {
 public:
  // Throws rendezvous::Error if no pipe can be made.
  StartGate();

  int workers_end() const { return gate_.read_end.get(); }
  int status_end() const { return status_.write_end.get(); }
  // A forked worker closes this end, else the gate would not close when the agent dies.
  int agents_end() const { return gate_.write_end.get(); }

  // Lets the workers go on; for the agent, once every worker exists. Throws rendezvous::Error.
  void open(std::size_t workers);
  // Makes the workers at the gate exit.
  void close() { gate_.write_end.close(); }
  // Returns the non-blocking descriptor from which ExecFailures are read. It is at end of file once
  // every worker has executed its program or ended.
  Descriptor take_status();

 private:
  rendezvous::Pipe gate_;
  rendezvous::Pipe status_;
};

}  // namespace ddp::launcher
