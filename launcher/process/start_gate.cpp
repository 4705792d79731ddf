// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/process/start_gate.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "rendezvous/base/error.hpp"

namespace ddp::launcher {

using rendezvous::system_error;

StartGate::StartGate()
    : gate_(rendezvous::make_pipe("to start workers")),
      status_(rendezvous::make_pipe("to start workers", O_NONBLOCK)) {}

void StartGate::open(std::size_t workers) {
  const std::string go(workers, 'g');
  if (write(gate_.write_end.get(), go.data(), go.size()) == static_cast<ssize_t>(go.size())) return;
  system_error("cannot open the gate for the workers");
}

Descriptor StartGate::take_status() {
  status_.write_end.close();
  return std::move(status_.read_end);
}

}  // namespace ddp::launcher
