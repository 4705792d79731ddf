// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The part of DistributedDataParallel that does not depend on the module's type: it averages gradients.
#pragma once

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/StringUtil.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ddp/distributed_data_parallel.hpp"
#include "ddp/error.hpp"
#include "ddp/libtorch/tensor.hpp"
#include "ddp/process_group.hpp"

namespace ddp::libtorch::detail {

template <typename T, typename = void>
struct IsRange : std::false_type {};
template <typename T>
struct IsRange<T, std::void_t<decltype(std::begin(std::declval<const T&>()))>> : std::true_type {};
template <typename T, typename = void>
struct IsTuple : std::false_type {};
template <typename T>
struct IsTuple<T, std::void_t<decltype(std::tuple_size<T>::value)>> : std::true_type {};
template <typename T>
struct IsOptional : std::false_type {};
template <typename T>
struct IsOptional<std::optional<T>> : std::true_type {};

// Appends the tensors in what a forward returned: a tensor, or tuples, pairs, optionals, vectors and maps of such.
// Returns false if it contains anything else.
template <typename Output>
bool append_tensors(const Output& output, std::vector<at::Tensor>& tensors) {
  if constexpr (std::is_convertible_v<const Output&, const at::Tensor&>) {
    tensors.push_back(output);
    return true;
  } else if constexpr (std::is_arithmetic_v<Output>) {
    return true;
  } else if constexpr (IsOptional<Output>::value) {
    return !output || append_tensors(*output, tensors);
  } else if constexpr (IsTuple<Output>::value) {
    return std::apply([&](const auto&... member) { return (append_tensors(member, tensors) & ...); }, output);
  } else if constexpr (IsRange<Output>::value) {
    bool all = true;
    for (const auto& member : output) all &= append_tensors(member, tensors);
    return all;
  } else {
    return false;
  }
}

// All nodes of the graph that a backward from these tensors would visit; a parameter's is its AccumulateGrad.
inline std::unordered_set<const torch::autograd::Node*> reachable(const std::vector<at::Tensor>& outputs) {
  using torch::autograd::Node;
  std::unordered_set<const Node*> seen;
  std::vector<const Node*> next;
  const auto visit = [&](const Node* node) {
    if (node != nullptr && seen.insert(node).second) next.push_back(node);
  };
  for (const at::Tensor& output : outputs) {
    if (output.defined() && output.requires_grad()) visit(torch::autograd::impl::gradient_edge(output).function.get());
  }
  while (!next.empty()) {
    const Node* node = next.back();
    next.pop_back();
    for (const torch::autograd::Edge& edge : node->next_edges()) visit(edge.function.get());
  }
  return seen;
}

// Called by autograd once it has added to parameter i's gradient.
template <typename Reducer>
struct GradientHook : torch::autograd::FunctionPostHook {
  GradientHook(Reducer& reducer_, std::size_t parameter_) : reducer(reducer_), parameter(parameter_) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list& /*inputs*/) override {
    reducer.gradient_is_there(parameter);
    return outputs;
  }
  Reducer& reducer;
  std::size_t parameter;
};

// Connects autograd, whose gradients are tensors that come and go, with libddp, whose gradients are memory that stays.
//
//     backward: hook of parameter i -> its gradient goes into libddp's memory -> mark_ready(i)
//               ... last hook -> end of backward -> synchronize() -> the averages come back
//
// With gradient_as_bucket_view the module's gradients are views of that memory, and nothing is copied as long as the
// module keeps them. Hooks run on the thread that calls backward, or on one for each GPU; a lock serialises them.
//
// The module's tensors are handles. What is behind one may change at any time: torch::load(), Module::to() and
// set_data() put other memory there, and autograd then has another accumulator for the gradient. So nothing is taken
// from an earlier step: before each forward, before each step's averages and at the end of a join, what is there is
// compared with what the ranks agreed on (follow_module()).
class Reducer {
 public:
  Reducer(const torch::nn::Module& module, const ProcessGroup& group, DistributedDataParallelOptions options)
      : module_(module),
        registered_(registered(module)),
        parameters_(trainable(module)),
        buffers_(module_buffers(module)),
        finds_unused_(options.find_unused_parameters && !options.static_graph),
        views_(options.gradient_as_bucket_view),
        came_(parameters_.size()),
        reached_(parameters_.size()),
        model_(group, described(parameters_), for_model(std::move(options), buffers_)) {
    // Frozen parameters are copied once: nothing changes them afterwards.
    DistributedDataParallelOptions frozen;
    frozen.buffers = described(frozen_parameters(module));
    const DistributedDataParallel once(group, {}, frozen);
    look_at_gradients();
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      hook_accumulator(i);
      // Runs before any accumulator of this parameter, also in a backward whose forward was not this object's.
      parameters_[i].before_gradient =
          parameters_[i].tensor.register_hook([this, i](const at::Tensor&) { hook_accumulator(i); });
    }
  }
  ~Reducer() {
    for (Parameter& p : parameters_) {
      p.tensor.remove_hook(p.before_gradient);
      for (const Hook& hook : p.hooks) hook.accumulator->del_post_hook(hook.key);
      at::Tensor& grad = p.tensor.mutable_grad();
      if (is_view(grad, p.averaged)) grad = grad.clone();  // its memory is about to go
    }
  }
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  DistributedDataParallel& model() { return model_; }
  bool is_on_gpu() const { return parameters_.front().tensor.is_cuda(); }

  // A forward without gradients counts as one under no_sync, as in PyTorch.
  void before_forward() {
    check_registered();
    follow_module();
    for (std::size_t i = 0; i < parameters_.size(); ++i) hook_accumulator(i);
    std::optional<DistributedDataParallel::NoSync> without_backward;
    if (!at::GradMode::is_enabled()) without_backward.emplace(model_.c());
    model_.before_forward();
  }
  bool looks_at_outputs() const { return finds_unused_ && !no_sync() && at::GradMode::is_enabled(); }
  // Parameters reached from the outputs of any forward since the last step may get a gradient; others will not.
  void note_outputs(const std::vector<at::Tensor>& outputs) {
    const auto nodes = reachable(outputs);
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (nodes.count(parameters_[i].hooks.back().accumulator.get()) > 0) reached_[i] = true;
    }
    knows_reached_ = true;
  }

  template <typename Body>
  void join(Body&& body, const JoinOptions& options) {
    const auto body_and_after = [&] {
      body();
      follow_module();  // the end of the join writes parameters and buffers
    };
    model_.join(body_and_after, options);
    look_at_gradients();
  }

  // Called by GradientHook.
  void gradient_is_there(std::size_t i) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const at::NoGradGuard no_grad;
    check_dense(parameters_[i]);
    if (no_sync()) return model_.mark_ready(i);
    if (!in_backward_) begin_of_backward();
    contribute(i);
  }

 private:
  bool no_sync() const { return ddp_reducer_no_sync(model_.c()) != 0; }

  struct Tensor {
    std::string name;
    at::Tensor tensor;  // the module's
    at::Tensor agreed;  // what was behind it when libddp last saw it: type, layout, and memory, which stays meanwhile
    void* memory;       // where libddp has it; differs from agreed's if the storage itself has moved
  };
  struct Hook {
    decltype(torch::autograd::impl::grad_accumulator(at::Tensor())) accumulator;  // kept: the hook ends with it
    std::uintptr_t key;
  };
  struct Parameter : Tensor {
    explicit Parameter(Tensor of) : Tensor(std::move(of)) {}
    at::Tensor averaged;      // libddp's memory for its gradient
    std::vector<Hook> hooks;  // the last is on the current accumulator; graphs of earlier forwards may have the others
    unsigned before_gradient = 0;
  };
  struct Registered {
    std::string name;
    at::Tensor tensor;
    bool requires_grad;
  };

  // ---- what the module has ----

  // Returns each tensor once, also where two modules share it.
  template <typename Dictionary, typename Wanted>
  static std::vector<Tensor> tensors(const Dictionary& dictionary, const Wanted& wanted) {
    std::vector<Tensor> result;
    std::unordered_set<const at::TensorImpl*> seen;
    for (const auto& named : dictionary) {
      const at::Tensor& tensor = named.value();
      if (!tensor.defined() || !wanted(tensor) || !seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
      if (tensor.layout() != at::kStrided || !tensor.is_non_overlapping_and_dense()) {
        throw Error(Status::InvalidArgument,
                    "DistributedDataParallel: " + named.key() +
                        " is sparse, or its elements overlap or have gaps between them: give the "
                        "module a contiguous() copy");
      }
      result.push_back({named.key(), tensor, tensor.detach(), tensor.data_ptr()});
    }
    return result;
  }
  // Calls visit(name, tensor) for all parameters and buffers, also for one that has two names.
  template <typename Visit>
  static void for_each_registered(const torch::nn::Module& module, const Visit& visit) {
    for (const auto& dictionary : {module.named_parameters(), module.named_buffers()}) {
      for (const auto& named : dictionary) visit(named.key(), named.value());
    }
  }
  static std::vector<Registered> registered(const torch::nn::Module& module) {
    std::vector<Registered> result;
    for_each_registered(module, [&](const std::string& name, const at::Tensor& tensor) {
      result.push_back({name, tensor, tensor.requires_grad()});
    });
    return result;
  }
  static std::vector<Parameter> trainable(const torch::nn::Module& module) {
    std::vector<Parameter> result;
    for (Tensor& t : tensors(module.named_parameters(), [](const at::Tensor& p) { return p.requires_grad(); })) {
      result.emplace_back(std::move(t));
    }
    if (result.empty()) {
      throw Error(Status::InvalidArgument,
                  "DistributedDataParallel: the module has no parameter that requires a gradient, so there is nothing "
                  "to average");
    }
    return result;
  }
  static std::vector<Tensor> frozen_parameters(const torch::nn::Module& module) {
    return tensors(module.named_parameters(), [](const at::Tensor& p) { return !p.requires_grad(); });
  }
  static std::vector<Tensor> module_buffers(const torch::nn::Module& module) {
    return tensors(module.named_buffers(), [](const at::Tensor&) { return true; });
  }

  // Describes the tensors for libddp. The shape is the order in which the elements lie in memory, so that ranks whose
  // layouts differ are detected.
  template <typename Tensors>
  static std::vector<ddp::Parameter> described(const Tensors& tensors) {
    std::vector<ddp::Parameter> result;
    for (const Tensor& t : tensors) {
      const at::Tensor& tensor = t.tensor;
      std::vector<std::int64_t> order(static_cast<std::size_t>(tensor.dim()));
      std::iota(order.begin(), order.end(), 0);
      if (!tensor.is_contiguous()) {
        std::stable_sort(order.begin(), order.end(),
                         [&](std::int64_t a, std::int64_t b) { return tensor.stride(a) > tensor.stride(b); });
      }
      ddp::Parameter p;
      p.value = t.memory;
      p.count = static_cast<std::size_t>(tensor.numel());
      p.dtype = dtype_of(tensor.scalar_type());
      p.device = libtorch::device_of(tensor);
      p.name = t.name;
      for (const std::int64_t dimension : order) p.shape.push_back(tensor.size(dimension));
      result.push_back(std::move(p));
    }
    return result;
  }

  // libddp's gradients always live in the buckets, whose memory may move; the module's own gradients are copied.
  static DistributedDataParallelOptions for_model(DistributedDataParallelOptions options,
                                                  const std::vector<Tensor>& buffers) {
    options.buffers = described(buffers);
    options.gradient_as_bucket_view = true;
    return options;
  }

  // ---- what has changed in the module ----

  [[noreturn]] static void refuse(const std::string& name, const std::string& change) {
    throw Error(Status::InvalidArgument, "DistributedDataParallel: " + name + change +
                                             ": change a module before DistributedDataParallel is made, or make a new "
                                             "one on every rank");
  }

  // Throws if the module has other parameters or buffers than the ranks agreed on: their gradients and values would
  // differ between ranks.
  void check_registered() const {
    auto was = registered_.begin();
    for_each_registered(module_, [&](const std::string& name, const at::Tensor& now) {
      if (was == registered_.end() || name != was->name) {
        const auto has_name = [&](const Registered& r) { return r.name == name; };
        if (std::any_of(was, registered_.end(), has_name)) refuse(was->name, " is no longer in the module");
        refuse(name, " was added to the module");
      }
      if (!now.is_same(was->tensor)) refuse(name, " is another tensor than before");
      if (now.requires_grad() && !was->requires_grad) refuse(name, " requires a gradient now, and did not before");
      ++was;
    });
    if (was != registered_.end()) refuse(was->name, " is no longer in the module");
  }

  // Gives libddp the memory in which the module's tensors are now.
  void follow_module() {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (has_moved(parameters_[i])) model_.set_value(i, parameters_[i].memory);
    }
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      if (has_moved(buffers_[i])) model_.set_buffer(i, buffers_[i].memory);
    }
  }

  // Returns whether a tensor is in other memory than before, and takes note of it. Throws if it is not what the ranks
  // agreed on.
  static bool has_moved(Tensor& t) {
    const at::Tensor& now = t.tensor;
    const at::Tensor& was = t.agreed;
    const auto differs = [&](const auto& is, const auto& before) {
      refuse(t.name, c10::str(" is ", is, " now, and was ", before, " before"));
    };
    if (now.device() != was.device()) differs(now.device(), was.device());
    if (now.scalar_type() != was.scalar_type()) differs(now.scalar_type(), was.scalar_type());
    if (now.layout() != was.layout()) differs(now.layout(), was.layout());
    if (now.sizes() != was.sizes()) differs(now.sizes(), was.sizes());
    for (std::int64_t d = 0; d < now.dim(); ++d) {
      if (now.size(d) > 1 && now.stride(d) != was.stride(d)) {
        refuse(t.name,
               c10::str(" lies in memory with strides ", now.strides(), " now, and with ", was.strides(), " before"));
      }
    }
    if (now.data_ptr() == t.memory) return false;
    t.memory = now.data_ptr();
    t.agreed = now.detach();
    return true;
  }

  // Puts the hook onto the parameter's accumulator, unless it is there. One that does not require a gradient now has
  // none.
  void hook_accumulator(std::size_t i) {
    Parameter& p = parameters_[i];
    if (!p.tensor.requires_grad()) return;
    auto accumulator = torch::autograd::impl::grad_accumulator(p.tensor);
    if (!p.hooks.empty() && p.hooks.back().accumulator == accumulator) return;
    const std::uintptr_t key = accumulator->add_post_hook(std::make_unique<GradientHook<Reducer>>(*this, i));
    p.hooks.push_back({std::move(accumulator), key});
  }

  // ---- a step ----

  static void check_dense(const Parameter& p) {
    const at::Tensor& grad = p.tensor.grad();
    if (!grad.defined() || grad.layout() == at::kStrided) return;
    throw Error(Status::InvalidArgument,
                "DistributedDataParallel: the gradient of " + p.name +
                    " is sparse, and only dense ones are averaged: make the embedding with sparse(false)");
  }

  void begin_of_backward() {
    follow_module();
    in_backward_ = true;
    torch::autograd::Engine::get_default_engine().queue_callback([this] { end_of_backward(); });
    if (!knows_reached_) return;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (reached_[i]) continue;
      place(i);
      const CurrentStream stream(parameters_[i].averaged);
      model_.mark_unused(i);
    }
  }

  // Puts a gradient into libddp's memory, also one of earlier backwards to which this backward adds nothing.
  void place(std::size_t i) {
    came_[i] = true;
    Parameter& p = parameters_[i];
    const at::Tensor& grad = p.tensor.grad();
    if (!grad.defined()) {
      p.averaged.zero_();
    } else if (!is_view(grad, p.averaged)) {
      p.averaged.copy_(grad);
    }
  }

  void contribute(std::size_t i) {
    place(i);
    Parameter& p = parameters_[i];
    if (views_ && p.tensor.grad().defined()) p.tensor.mutable_grad() = p.averaged;
    const CurrentStream stream(p.averaged);
    model_.mark_ready(i);
  }

  void end_of_backward() {
    const std::lock_guard<std::mutex> lock(mutex_);
    const at::NoGradGuard no_grad;
    // In a static graph all steps reach what the first one has reached.
    if (!finds_unused_ && !knows_reached_) reached_ = came_;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (!came_[i]) place(i);
    }
    came_.assign(came_.size(), false);
    if (finds_unused_) reached_.assign(reached_.size(), false);
    in_backward_ = false;
    knows_reached_ = !finds_unused_;
    const CurrentStream stream(parameters_.front().averaged);
    model_.synchronize();
    look_at_gradients();
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (model_.was_used(i)) hand_back(parameters_[i]);
    }
  }

  void hand_back(Parameter& p) {
    at::Tensor& grad = p.tensor.mutable_grad();
    if (views_) {
      grad = p.averaged;
    } else if (grad.defined()) {
      grad.copy_(p.averaged);
    } else {
      grad = p.averaged.clone();
    }
  }

  // Looks up the gradients' memory. It moves once, when buckets are built again in the first step; hand_back() then
  // renews the views.
  void look_at_gradients() {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      Parameter& p = parameters_[i];
      void* memory = model_.gradient<void>(i);
      if (p.averaged.defined() && p.averaged.data_ptr() == memory) continue;
      p.averaged = at::from_blob(memory, p.tensor.sizes(), p.tensor.strides(), p.tensor.options().requires_grad(false));
    }
  }
  static bool is_view(const at::Tensor& grad, const at::Tensor& memory) {
    return grad.defined() && grad.layout() == at::kStrided && grad.data_ptr() == memory.data_ptr() &&
           grad.strides() == memory.strides();
  }

  std::mutex mutex_;
  const torch::nn::Module& module_;
  const std::vector<Registered> registered_;
  std::vector<Parameter> parameters_;
  std::vector<Tensor> buffers_;
  const bool finds_unused_;
  const bool views_;
  std::vector<bool> came_;     // for each parameter: its gradient is in libddp's memory in this step
  std::vector<bool> reached_;  // for each parameter: reached from a forward's outputs since the last step
                               // (static_graph: marked in the first step)
  bool knows_reached_ = false;
  bool in_backward_ = false;
  DistributedDataParallel model_;
};

}  // namespace ddp::libtorch::detail
