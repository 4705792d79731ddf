// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training/cuda/cuda_optimizer.hpp"

#include <cstring>
#include <string>

#include "rendezvous/base/error.hpp"
#include "runtime/device/current_stream.hpp"

namespace ddp::runtime {
namespace {

using kernels::StepControl;
using rendezvous::invalid_argument;

// Sets `sent` to the numbers. Returns false if it had them: doubles only, so that bytes are values.
template <typename Numbers>
bool has_changed(std::optional<Numbers>& sent, const Numbers& numbers) {
  if (sent && std::memcmp(&*sent, &numbers, sizeof numbers) == 0) return false;
  sent = numbers;
  return true;
}

}  // namespace

CudaOptimizer::CudaOptimizer(int device, Rule rule, std::size_t groups)
    : kernels_(Kernels::of(device)),
      rule_(rule),
      groups_(groups),
      control_(kernels_->device(), sizeof(StepControl)),
      numbers_(kernels_->device(), groups * (rule == Rule::Sgd ? sizeof(SgdNumbers) : sizeof(AdamNumbers))),
      coefficients_(kernels_->device(),
                    groups * (rule == Rule::Sgd ? sizeof(SgdCoefficients<double>) : sizeof(AdamCoefficients<double>))),
      adam_sent_(groups),
      sgd_sent_(groups),
      lacks_momentum_(groups) {
  const StepControl none = {0, 0};
  kernels_->device().upload(control_.get(), &none, sizeof none, current_stream(device));
}

void CudaOptimizer::check_rule(const kernels::TensorEntry& tensor) const {
  if (tensor.group < 0 || static_cast<std::size_t>(tensor.group) >= groups_) {
    invalid_argument("optimizer: there is no group " + std::to_string(tensor.group));
  }
  if (tensor.value_type != kernels::Type::Float32 && tensor.value_type != kernels::Type::Float64) {
    invalid_argument("optimizer: works on float32 and float64: give it copies in float32 (ddp::cuda::MasterWeights)");
  }
  if (tensor.count == 0) return;
  const bool lacks_state = rule_ != Rule::Sgd && (tensor.states[0] == nullptr || tensor.states[1] == nullptr);
  if (tensor.value == nullptr || lacks_state) invalid_argument("optimizer: an array is null");
}

void CudaOptimizer::set_tensors(const std::vector<ddp_cuda_tensor>& tensors) {
  std::vector<kernels::TensorEntry> entries;
  std::vector<bool> lacks(groups_);
  for (const ddp_cuda_tensor& tensor : tensors) {
    entries.push_back(entry_of("optimizer", tensor));
    check_rule(entries.back());
    if (tensor.count > 0 && tensor.states[0] == nullptr) lacks[static_cast<std::size_t>(tensor.group)] = true;
  }
  list_ = TensorList(kernels_, entries);  // what was there goes last, and only if nothing is refused
  lacks_momentum_ = lacks;
}

void CudaOptimizer::check_group(std::size_t group, bool is_adam) const {
  if (group >= groups_) invalid_argument("optimizer: there is no group " + std::to_string(group));
  if (is_adam != (rule_ != Rule::Sgd)) invalid_argument("optimizer: these are the options of another optimizer");
}

// Numbers that were sent inside a graph would be sent again by each replay.
template <typename Numbers>
void CudaOptimizer::check_send(const Numbers& numbers, std::optional<Numbers> sent) const {
  if (!has_changed(sent, numbers)) return;
  kernels_->device().refuse_in_capture(current_stream(kernels_->device().index()),
                                       "optimizer: its options have changed since they were sent: call send_options() "
                                       "before");
}

void CudaOptimizer::set_numbers(std::size_t group, const AdamNumbers& numbers) {
  check_group(group, true);
  check_send(numbers, adam_sent_[group]);
  if (!has_changed(adam_sent_[group], numbers)) return;
  kernels_->launch<kernel::set_adam_numbers>(1, {static_cast<AdamNumbers*>(numbers_.get()) + group, numbers},
                                             current_stream(kernels_->device().index()));
}

void CudaOptimizer::set_numbers(std::size_t group, const SgdNumbers& numbers) {
  check_group(group, false);
  if (numbers.momentum != 0 && lacks_momentum_[group]) invalid_argument("SGD with momentum: an array is null");
  check_send(numbers, sgd_sent_[group]);
  if (!has_changed(sgd_sent_[group], numbers)) return;
  kernels_->launch<kernel::set_sgd_numbers>(1, {static_cast<SgdNumbers*>(numbers_.get()) + group, numbers},
                                            current_stream(kernels_->device().index()));
}

void CudaOptimizer::step(const LossScaler* scaler) {
  if (!list_) invalid_argument("optimizer: it has no tensors");
  collectives::CudaStream* stream = current_stream(kernels_->device().index());
  const kernels::ScalerState* state = scaler != nullptr ? scaler->state() : nullptr;
  for (std::size_t g = 0; g < groups_; ++g) {
    if (!adam_sent_[g] && !sgd_sent_[g]) invalid_argument("optimizer: group " + std::to_string(g) + " has no options");
  }
  if (rule_ == Rule::Sgd) {
    auto* k = static_cast<SgdCoefficients<double>*>(coefficients_.get());
    const auto* numbers = static_cast<const SgdNumbers*>(numbers_.get());
    kernels_->launch<kernel::begin_sgd>(1, {control(), numbers, k, groups_, state}, stream);
    if (list_->blocks() > 0)
      kernels_->launch<kernel::step_sgd>(list_->blocks(), {list_->table(), control(), k}, stream);
    return;
  }
  auto* k = static_cast<AdamCoefficients<double>*>(coefficients_.get());
  const auto* numbers = static_cast<const AdamNumbers*>(numbers_.get());
  kernels_->launch<kernel::begin_adam>(1, {control(), numbers, k, groups_, state}, stream);
  if (list_->blocks() == 0) return;
  const kernels::StepAdam arguments = {list_->table(), control(), k};
  if (rule_ == Rule::Adam) return kernels_->launch<kernel::step_adam>(list_->blocks(), arguments, stream);
  kernels_->launch<kernel::step_adamw>(list_->blocks(), arguments, stream);
}

std::int64_t CudaOptimizer::steps_taken() const {
  StepControl now = {};
  kernels_->device().download(&now, control_.get(), sizeof now, current_stream(kernels_->device().index()));
  return now.steps;
}

void CudaOptimizer::set_steps_taken(std::int64_t steps) const {
  if (steps < 0) invalid_argument("optimizer: it cannot have taken " + std::to_string(steps) + " steps");
  kernels_->launch<kernel::set_steps>(1, {control(), steps}, current_stream(kernels_->device().index()));
}

}  // namespace ddp::runtime
