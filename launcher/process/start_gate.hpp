// SPDX-License-Identifier: BSD-3-Clause
// What stands between a worker that was forked and its program: a gate where all of a round wait until the last is
// there, and a pipe for what fails after it.
//
//     fork every worker ─▶ each waits at the gate ─▶ all there: open ─▶ its program
//                                                  ─▶ one missing, or the agent is gone: they leave, none ran a line
//
// A worker reads one byte: it may go. End of file: it may not. What fails between gate and program it writes to the
// status pipe, as an ExecFailure.
#pragma once

#include <cstddef>

#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/base/pipe.hpp"

namespace ddp::launcher {

using rendezvous::Descriptor;

// What failed in worker `index` before its program ran. Three ints: warm_parent.py writes it too.
struct ExecFailure {
  enum class Step { Bind, Execute };
  int index = 0;
  Step step = Step::Execute;
  int error = 0;  // errno
};

class StartGate {
 public:
  // Throws rendezvous::Error if there are no files for it.
  StartGate();

  int workers_end() const { return gate_.read_end.get(); }
  int status_end() const { return status_.write_end.get(); }
  // A forked worker closes it, else the gate would not close with the agent.
  int agents_end() const { return gate_.write_end.get(); }

  // In the agent, once every worker is there. Throws rendezvous::Error.
  void open(std::size_t workers);
  // Or not: those who wait leave.
  void close() { gate_.write_end.close(); }
  // Where ExecFailures can be read, without blocking; at its end once no worker has anything more to say.
  Descriptor take_status();

 private:
  rendezvous::Pipe gate_;
  rendezvous::Pipe status_;
};

}  // namespace ddp::launcher
