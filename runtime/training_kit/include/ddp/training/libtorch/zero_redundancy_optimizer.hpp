// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// ZeroRedundancyOptimizer for optimizers of libtorch: one whose state is spread over a group's ranks.
///
///     ddp::libtorch::DistributedDataParallel model(net);
///     ddp::libtorch::ZeroRedundancyOptimizer<torch::optim::Adam> optimizer(model->parameters(), 0.01);
///     torch::optim::StepLR scheduler(optimizer, 10, 0.5);               // it is an Adam
///     ...
///     optimizer.consolidate_state_dict();                               // on every rank
///     if (session.rank() == 0) torch::save(optimizer, "optimizer.pt");  // as an Adam saves it
#pragma once

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>
#include <torch/serialize/archive.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <locale>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ddp/error.hpp"
#include "ddp/libtorch/collectives.hpp"
#include "ddp/process_group.hpp"
#include "ddp/session.hpp"

namespace ddp::libtorch {

/// An optimizer of libtorch, such as torch::optim::Adam, whose state is spread over a group's ranks. It is a Plain:
/// parameter groups, learning rate schedulers and zero_grad() work as they do there. Each rank steps the parameters
/// that it owns, as chosen by PyTorch (the largest first, each to the rank with the least), and sends them to the
/// others. The values are bit for bit those of the plain optimizer.
///
/// step(), consolidate_state_dict() and the constructor are collectives of the group: one thread at a time, the group's
/// deadline and errors. After a step that fails go on from a checkpoint. Gradients are equal on every rank, as
/// DistributedDataParallel leaves them. Destroy it before its session. Source:
/// torch.distributed.optim.ZeroRedundancyOptimizer.
template <typename Plain>
class ZeroRedundancyOptimizer : public Plain {
  static_assert(std::is_base_of_v<torch::optim::Optimizer, Plain>, "give an optimizer of libtorch");
  static_assert(!std::is_base_of_v<torch::optim::LBFGS, Plain>, "LBFGS cannot step some of its parameters alone");

 public:
  /// Makes the optimizer of groups of parameters. Every rank gives the same; defaults are the plain optimizer's
  /// options, or its learning rate. Throws Error with Status::Mismatch on every rank if the parameters differ in
  /// number, shapes or types.
  template <typename Options>
  ZeroRedundancyOptimizer(std::vector<torch::optim::OptimizerParamGroup> groups, const Options& defaults,
                          const ProcessGroup& process_group = default_group())
      : Plain(std::move(groups), defaults), group_(process_group), elements_(static_cast<std::size_t>(group_.size())) {
    make_plain_ = [defaults](std::vector<torch::optim::OptimizerParamGroup> parameters) {
      return std::make_unique<Plain>(std::move(parameters), defaults);
    };
    assign_owners();
    drop_state_of_others();  // Adagrad makes its state at once
  }
  /// Makes the optimizer of one group of parameters.
  template <typename Options>
  ZeroRedundancyOptimizer(std::vector<at::Tensor> parameters, const Options& defaults,
                          const ProcessGroup& process_group = default_group())
      : ZeroRedundancyOptimizer(
            std::vector<torch::optim::OptimizerParamGroup>{torch::optim::OptimizerParamGroup(std::move(parameters))},
            defaults, process_group) {}

  /// Takes one step, on every rank; returns what closure does, which computes gradients first. Groups that
  /// add_param_group() has added since, on every rank, are spread now.
  at::Tensor step(torch::optim::Optimizer::LossClosure closure = nullptr) override {
    at::Tensor loss;
    if (closure) {
      const at::AutoGradMode grad(true);
      loss = closure();
    }
    consolidated_.reset();
    assign_owners();
    const at::NoGradGuard no_grad;
    const auto others = parameters_of_others();
    {
      const WithoutGradients without(others);  // an optimizer leaves parameters without a gradient alone
      Plain::step(nullptr);
    }
    send_values();
    return loss;
  }

  /// Gathers the whole state on a rank, so that save() can write it there. Collective. Source:
  /// ZeroRedundancyOptimizer.consolidate_state_dict.
  void consolidate_state_dict(int to = 0) {
    assign_owners();
    const auto parts = group_.gather_object(saved(*this), to);
    consolidated_.reset();
    if (group_.rank() != to) return;
    auto whole = make_plain_(this->param_groups());
    whole->state().clear();
    for (int rank = 0; rank < group_.size(); ++rank) {
      auto part = make_plain_(this->param_groups());
      load_into(*part, parts[static_cast<std::size_t>(rank)], at::kCPU);
      for (auto& [parameter, state] : part->state()) {
        if (owners_.at(parameter) == rank) whole->state()[parameter] = std::move(state);
      }
    }
    consolidated_ = std::move(whole);
  }
  /// Writes the whole state, as the plain optimizer does: what torch::save(optimizer, path) calls. Throws Error with
  /// Status::InvalidArgument if consolidate_state_dict() has not gathered it on this rank since the last step.
  void save(torch::serialize::OutputArchive& archive) const override {
    if (!consolidated_) {
      throw Error(Status::InvalidArgument,
                  "ZeroRedundancyOptimizer: the state is spread over the ranks: call consolidate_state_dict(rank) on "
                  "all of them after the last step, then save it on that rank");
    }
    for (std::size_t i = 0; i < this->param_groups().size(); ++i) {  // a scheduler may have changed them
      consolidated_->param_groups()[i].set_options(this->param_groups()[i].options().clone());
    }
    consolidated_->save(archive);
  }
  /// Reads a whole state, also one that a plain optimizer or another number of ranks has saved; keeps what this rank
  /// owns. Call it on every rank: what torch::load(optimizer, path) calls.
  void load(torch::serialize::InputArchive& archive) override {
    consolidated_.reset();
    assign_owners();
    Plain::load(archive);
    drop_state_of_others();
    std::optional<at::Device> gpu;
    for_each_parameter([&](const at::Tensor& p) {
      if (p.is_cuda()) gpu = p.device();
    });
    if (gpu) load_into(*this, saved(*this), *gpu);  // state is where its parameters are
  }
  /// Returns the rank that owns a parameter; -1 for one that the optimizer does not have.
  int owner(const at::Tensor& parameter) const {
    const auto found = owners_.find(static_cast<void*>(parameter.unsafeGetTensorImpl()));
    return found == owners_.end() ? -1 : found->second;
  }

 private:
  // A parameter of fewer bytes travels together with others.
  static constexpr std::size_t kSmallBytes = 64 << 10;

  // Takes the gradients of some parameters away while it lives.
  class WithoutGradients {
   public:
    explicit WithoutGradients(const std::vector<at::Tensor>& parameters) : parameters_(parameters) {
      for (const at::Tensor& p : parameters_) gradients_.push_back(std::exchange(p.mutable_grad(), at::Tensor()));
    }
    ~WithoutGradients() {
      for (std::size_t i = 0; i < parameters_.size(); ++i) parameters_[i].mutable_grad() = std::move(gradients_[i]);
    }
    WithoutGradients(const WithoutGradients&) = delete;
    WithoutGradients& operator=(const WithoutGradients&) = delete;

   private:
    const std::vector<at::Tensor>& parameters_;
    std::vector<at::Tensor> gradients_;
  };

  template <typename Visit>
  void for_each_parameter(const Visit& visit) {
    for (auto& parameters : this->param_groups()) {
      for (const at::Tensor& parameter : parameters.params()) visit(parameter);
    }
  }
  std::vector<at::Tensor> parameters_of_others() {
    std::vector<at::Tensor> others;
    for_each_parameter([&](const at::Tensor& p) {
      if (owner(p) != group_.rank()) others.push_back(p);
    });
    return others;
  }

  // Gives each parameter that has no owner yet to the rank that has the fewest elements.
  void assign_owners() {
    std::size_t count = 0;
    for_each_parameter([&](const at::Tensor&) { ++count; });
    if (count == owners_.size()) return;
    check_same_everywhere();
    for (auto& parameters : this->param_groups()) {
      std::vector<at::Tensor> fresh;
      for (const at::Tensor& p : parameters.params()) {
        if (owner(p) < 0) fresh.push_back(p);
      }
      std::stable_sort(fresh.begin(), fresh.end(),
                       [](const at::Tensor& a, const at::Tensor& b) { return a.numel() > b.numel(); });
      for (const at::Tensor& p : fresh) {
        const auto least = std::min_element(elements_.begin(), elements_.end());
        *least += static_cast<std::size_t>(p.numel());
        owners_[p.unsafeGetTensorImpl()] = static_cast<int>(least - elements_.begin());
      }
    }
  }
  void check_same_everywhere() {
    std::ostringstream mine;
    mine.imbue(std::locale::classic());  // every rank's numbers look the same
    for_each_parameter([&](const at::Tensor& p) { mine << p.scalar_type() << ' ' << p.sizes() << ", "; });
    const auto all = group_.all_gather_object(mine.str());
    for (std::size_t rank = 1; rank < all.size(); ++rank) {
      if (all[rank] == all[0]) continue;
      throw Error(Status::Mismatch, "ZeroRedundancyOptimizer: rank " + std::to_string(rank) + " of " + group_.name() +
                                        " gave other parameters than rank 0, in number, shapes or types");
    }
  }
  void drop_state_of_others() {
    for (const auto& [parameter, owner] : owners_) {
      if (owner != group_.rank()) this->state().erase(parameter);
    }
  }

  // Sends each rank's parameters to the others: a large one from and to where it lies, small ones in one piece.
  void send_values() {
    if (group_.size() == 1) return;
    std::map<std::pair<int, at::ScalarType>, std::vector<at::Tensor>> small;
    std::vector<Work> works;
    std::vector<std::pair<at::Tensor, at::Tensor>> copies;  // from a piece that arrives to a parameter
    for_each_parameter([&](const at::Tensor& p) {
      const bool is_small = static_cast<std::size_t>(p.numel()) * p.element_size() < kSmallBytes;
      if (is_small || !p.is_contiguous()) {
        small[{owner(p), p.scalar_type()}].push_back(p.detach());
      } else {
        works.push_back(broadcast_async(p.detach(), owner(p), group_));
      }
    });
    for (const auto& [of, parameters] : small) {
      std::vector<at::Tensor> flat;
      for (const at::Tensor& p : parameters) flat.push_back(p.reshape({-1}));
      const at::Tensor piece = at::cat(flat);
      works.push_back(broadcast_async(piece, of.first, group_));
      if (of.first == group_.rank()) continue;
      std::int64_t at = 0;
      for (const at::Tensor& p : parameters) {
        copies.emplace_back(piece.narrow(0, at, p.numel()).view(p.sizes()), p);
        at += p.numel();
      }
    }
    for (const Work& work : works) work.wait();
    for (const auto& [from, to] : copies) to.copy_(from);
  }

  // Returns what this rank has of the state, as the plain optimizer saves it.
  static std::string saved(const ZeroRedundancyOptimizer& optimizer) {
    torch::serialize::OutputArchive archive;
    optimizer.Plain::save(archive);
    std::ostringstream stream;
    archive.save_to(stream);
    return stream.str();
  }
  static void load_into(Plain& plain, const std::string& saved, at::Device device) {
    torch::serialize::InputArchive archive;
    std::istringstream stream(saved);
    archive.load_from(stream, device);
    plain.Plain::load(archive);
  }

  ProcessGroup group_;
  std::function<std::unique_ptr<Plain>(std::vector<torch::optim::OptimizerParamGroup>)> make_plain_;
  std::unordered_map<void*, int> owners_;  // by the address of the parameter
  std::vector<std::size_t> elements_;      // each rank's number of elements
  std::unique_ptr<Plain> consolidated_;    // has the state of all ranks, after consolidate_state_dict()
};

}  // namespace ddp::libtorch
