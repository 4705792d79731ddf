// SPDX-License-Identifier: BSD-3-Clause
// Adam, AdamW or SGD over all parameters on one GPU. The number of steps is in device memory, since only the device
// knows whether a step is left out because of an overflow. A step puts two kernels on the current stream; nothing is
// allocated, and the host does not wait.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/training/cuda/loss_scaler.hpp"
#include "runtime/training/cuda/tensor_list.hpp"

namespace ddp::runtime {

class CudaOptimizer {
 public:
  enum class Rule { AdamW, Adam, Sgd };

  CudaOptimizer(int device, Rule rule, std::size_t groups);

  // Sets the tensors, also where their memory has moved. The host waits.
  void set_tensors(const std::vector<ddp_cuda_tensor>& tensors);
  // Set the numbers of a group for the next steps. They are sent to the device if they have changed.
  void set_numbers(std::size_t group, const AdamNumbers& numbers);
  void set_numbers(std::size_t group, const SgdNumbers& numbers);
  // Takes a step, unless `scaler` has noted an overflow. `scaler` may be null.
  void step(const LossScaler* scaler);
  std::int64_t steps_taken() const;  // the host waits
  std::int64_t* steps_address() const { return &control()->steps; }
  void set_steps_taken(std::int64_t steps) const;

 private:
  void check_group(std::size_t group, bool is_adam) const;
  template <typename Numbers>
  void check_send(const Numbers& numbers, std::optional<Numbers> sent) const;
  void check_rule(const kernels::TensorEntry& tensor) const;
  kernels::StepControl* control() const { return static_cast<kernels::StepControl*>(control_.get()); }

  std::shared_ptr<const Kernels> kernels_;
  Rule rule_;
  std::size_t groups_;
  collectives::DeviceMemory control_;
  collectives::DeviceMemory numbers_;       // by group
  collectives::DeviceMemory coefficients_;  // by group, as the last step had them
  std::vector<std::optional<AdamNumbers>> adam_sent_;
  std::vector<std::optional<SgdNumbers>> sgd_sent_;
  std::vector<bool> lacks_momentum_;  // by group: a tensor of it has no state
  std::optional<TensorList> list_;
};

}  // namespace ddp::runtime
