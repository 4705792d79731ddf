// SPDX-License-Identifier: BSD-3-Clause
// Asks the user's PyTorch how many devices there are, for kinds that ddprun cannot count itself.
#pragma once

#include <string>

namespace ddp::apps {

struct TorchDevices {
  int count = 0;
  std::string why_none = {};  // what PyTorch or its Python said; empty if count is not 0
};

// Runs `python` and waits for its answer, which takes as long as importing PyTorch. `device` is a module of torch that
// has device_count(), such as "hpu", or "auto" for the accelerator that this PyTorch is built for.
TorchDevices ask_torch(const std::string& python, const std::string& device);

}  // namespace ddp::apps
