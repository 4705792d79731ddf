// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Optimizers: Adam (Kingma and Ba 2015), AdamW with decoupled weight decay (Loshchilov and Hutter 2019) and SGD, for
/// parameters in groups. zero_redundancy_optimizer.hpp spreads their state over ranks.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "ddp/buffer.hpp"
#include "ddp/c/training.h"
#include "ddp/checkpoint.hpp"
#include "ddp/error.hpp"
#include "ddp/kept.hpp"
#include "ddp/parameter.hpp"

namespace ddp {

/// Parameters with options of their own, such as those that do not decay.
template <typename Options>
struct ParameterGroup {
  std::vector<Parameter> parameters;  ///< each in one group only
  Options options = {};               ///< may be changed between steps
};

/// A tensor of an optimizer's state, or this rank's part of it, in the optimizer's own memory: to
/// save it without a copy.
struct OptimizerTensor {
  std::string name;        ///< such as "optimizer.weight.exp_avg"
  Buffer buffer;           ///< the elements that are here
  std::size_t first = 0;   ///< index of the first of them in the tensor, which has one dimension
  std::size_t count = 0;   ///< number of elements of the whole tensor
  bool is_scalar = false;  ///< whether the tensor has no dimension

  /// Returns the tensor for CheckpointFolder::save() and save_async(); the name and the memory must stay.
  TensorSlice slice() const {
    Tensor part = {name, buffer.data, buffer.dtype, {}, buffer.device};
    if (is_scalar) return part;
    part.shape = {static_cast<std::int64_t>(buffer.count)};
    return {std::move(part), {static_cast<std::int64_t>(first)}, {static_cast<std::int64_t>(count)}};
  }
};

namespace detail {

// All parameters' elements, one after the other in a row of bytes. Each parameter begins at a multiple of 8, so that a
// cut at any multiple of 8 is between two elements, whatever their types.
class ParameterRow {
 public:
  static constexpr std::size_t kAlignment = 8;

  struct Piece {
    std::size_t parameter;  // number of the parameter
    std::size_t first;      // index of its first element
    std::size_t count;      // in elements
    std::size_t offset;     // in the row, in bytes
  };

  explicit ParameterRow(const std::vector<Parameter>& parameters) {
    for (const Parameter& p : parameters) {
      places_.push_back({bytes_, p.count, element_size(p.dtype)});
      bytes_ = aligned(bytes_ + p.count * places_.back().element);
    }
  }

  static std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }
  std::size_t bytes() const { return bytes_; }
  std::size_t offset(std::size_t parameter) const { return places_[parameter].offset; }

  // Calls use(piece) for each piece between two places, which are multiples of kAlignment.
  template <typename Use>
  void for_each_piece(std::size_t begin, std::size_t end, const Use& use) const {
    auto place = std::upper_bound(places_.begin(), places_.end(), begin,
                                  [](std::size_t at, const Place& p) { return at < p.offset; });
    if (place != places_.begin()) --place;
    for (; place != places_.end() && place->offset < end; ++place) {
      const std::size_t from = std::max(begin, place->offset);
      const std::size_t to = std::min(end, place->offset + place->count * place->element);
      if (from >= to) continue;
      use(Piece{static_cast<std::size_t>(place - places_.begin()), (from - place->offset) / place->element,
                (to - from) / place->element, from});
    }
  }

 private:
  struct Place {
    std::size_t offset;
    std::size_t count;
    std::size_t element;  // bytes of one element
  };
  std::vector<Place> places_;
  std::size_t bytes_ = 0;
};

// Arrays of one piece of a step, for an optimizer's rule.
struct StepArrays {
  void* value;
  const void* grad;
  std::array<void*, 2> states;  // one for each state of the rule
  void* updated;                // null: into value
  std::size_t count;
  std::int32_t dtype;
};

}  // namespace detail

/// A copy of an optimizer's whole state: taken from an optimizer on any number of ranks, for one on
/// any other number. Empty on ranks where ZeroRedundancyOptimizer::state_dict() did not gather it.
class OptimizerState {
 public:
  OptimizerState() = default;                             ///< an empty state
  OptimizerState(OptimizerState&&) = default;             ///< the tensors stay where they are
  OptimizerState& operator=(OptimizerState&&) = default;  ///< the tensors stay where they are

  /// Returns the tensors, for save_checkpoint() together with the model's. This object owns the
  /// memory.
  const std::vector<Tensor>& tensors() const { return tensors_; }
  /// Copies a tensor into buffer, as Checkpoint::read() does. Throws Error with Status::Corrupt if
  /// there is no such tensor, Status::Mismatch if its type or shape differs.
  void read(const std::string& name, Buffer buffer, const std::vector<std::int64_t>& shape) const {
    const auto found = std::find_if(tensors_.begin(), tensors_.end(), [&](const Tensor& t) { return t.name == name; });
    if (found == tensors_.end()) throw Error(Status::Corrupt, "the optimizer's state has no tensor " + name);
    if (found->dtype != buffer.dtype || found->shape != shape) {
      throw Error(Status::Mismatch, "the optimizer's state has a tensor " + name + " of another type or shape");
    }
    if (buffer.count > 0) std::memcpy(buffer.data, found->data, buffer.bytes());
  }

  /// Makes a state for optimizers: takes the memory in which all tensors of `tensors` lie.
  OptimizerState(std::vector<std::vector<std::byte>> memory, std::vector<Tensor> tensors, std::int64_t step,
                 std::string step_name)
      : memory_(std::move(memory)), tensors_(std::move(tensors)) {
    memory_.emplace_back(sizeof step);
    std::memcpy(memory_.back().data(), &step, sizeof step);
    tensors_.push_back({std::move(step_name), memory_.back().data(), DType::Int64, {}});
  }

 private:
  std::vector<std::vector<std::byte>> memory_;
  std::vector<Tensor> tensors_;
};

/// The part of an optimizer that one rank has: state for the parameters' elements between two
/// places in their row. It is the base of ddp::Adam, ddp::AdamW, ddp::SGD and
/// ddp::ZeroRedundancyOptimizer, and not for direct use.
template <typename Rule>
class OptimizerShard {
 public:
  using Options = typename Rule::Options;  ///< AdamWOptions, AdamOptions or SGDOptions
  using Group = ParameterGroup<Options>;   ///< parameters, and options for them

  OptimizerShard(const OptimizerShard&) = delete;
  OptimizerShard& operator=(const OptimizerShard&) = delete;

  /// Returns all parameters, one group after the other.
  const std::vector<Parameter>& parameters() const { return parameters_; }
  /// Returns a group's options. Change them between steps, on all ranks alike.
  Options& options(std::size_t group = 0) { return options_.at(group); }
  /// Returns the number of groups.
  std::size_t group_count() const { return options_.size(); }
  /// Sets the learning rate of all groups.
  void set_lr(double lr) {
    for (Options& o : options_) o.lr = lr;
  }
  /// Sets where parameter i's gradient is from now on: for DistributedDataParallel's own memory,
  /// which moves once with gradient_as_bucket_view.
  void set_gradient(std::size_t i, void* grad) { parameters_.at(i).grad = grad; }
  /// Sets where parameter i itself is from now on, if its memory has moved.
  void set_value(std::size_t i, void* value) { parameters_.at(i).value = value; }
  /// Returns the number of steps taken.
  std::int64_t steps_taken() const { return *steps_taken_; }

  /// Returns the state's tensors where they lie. All ranks together have the whole state once. A name
  /// is the prefix, the parameter's name (its number if it has none), and PyTorch's name of the
  /// state; "step" counts the steps.
  std::vector<OptimizerTensor> tensors(const std::string& prefix = "optimizer.") {
    std::vector<OptimizerTensor> tensors;
    for_each_state_piece([&](const detail::ParameterRow::Piece& piece, std::size_t state, void* data) {
      const Parameter& p = parameters_[piece.parameter];
      tensors.push_back(
          {name_of(prefix, piece.parameter, state), Buffer(data, piece.count, p.dtype), piece.first, p.count, false});
    });
    if (begin_ == 0) tensors.push_back({prefix + "step", Buffer(steps_taken_, 1), 0, 1, true});
    return tensors;
  }

  /// Returns the state and the parameters for ddp::Kept. moved is called with each parameter once it has moved.
  std::vector<KeptTensor> kept_tensors(const std::function<void(const Parameter&)>& moved = {}) {
    const std::string rule = Rule::kName;
    std::vector<KeptTensor> tensors = {{rule + ".step", Buffer(steps_taken_, 1), is_spread_,
                                        [this](void* to) { steps_taken_ = static_cast<std::int64_t*>(to); }}};
    for (std::size_t s = 0; s < states_.size(); ++s) {
      tensors.push_back({rule + "." + Rule::kStates[s], Buffer(states_[s].data, states_[s].size, DType::UInt8),
                         is_spread_, [this, s](void* to) {
                           states_[s].data = static_cast<std::byte*>(to);
                           own_states_[s].reset();
                         }});
    }
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      tensors.push_back({parameters_[i].name, detail::value_of(parameters_[i]), false, [this, i, moved](void* to) {
                           set_value(i, to);
                           if (moved) moved(parameters_[i]);
                         }});
    }
    return tensors;
  }
  /// Has step() call before(), which returns whether the step is to be computed, and after() when the new values and
  /// the state are there: for ddp::Kept.
  void around_step(std::function<bool()> before, std::function<void()> after) {
    before_ = std::move(before);
    after_ = std::move(after);
  }

  /// Restores a state from a Checkpoint, an OptimizerState, or another type with their read(). It
  /// reads what this rank needs; every rank calls it, with the whole state. Throws what read()
  /// throws; the state is then a mixture of both.
  template <typename Source>
  void load_state_dict(const Source& source, const std::string& prefix = "optimizer.") {
    std::vector<std::byte> whole;
    for_each_state_piece([&](const detail::ParameterRow::Piece& piece, std::size_t state, void* data) {
      const Parameter& p = parameters_[piece.parameter];
      const bool all_here = piece.count == p.count;
      if (!all_here) whole.resize(p.count * element_size(p.dtype));
      source.read(name_of(prefix, piece.parameter, state), Buffer(all_here ? data : whole.data(), p.count, p.dtype),
                  {static_cast<std::int64_t>(p.count)});
      if (all_here) return;
      const void* from = detail::element_at(whole.data(), piece.first, p.dtype);
      std::memcpy(data, from, bytes_of(piece));
    });
    source.read(prefix + "step", Buffer(steps_taken_, 1), {});
  }

 protected:
  /// Makes the base for all parameters; take() then says which part is this rank's.
  explicit OptimizerShard(const std::vector<Group>& groups) : parameters_(flatten(groups)), row_(parameters_) {
    for (std::size_t g = 0; g < groups.size(); ++g) {
      options_.push_back(groups[g].options);
      group_of_.insert(group_of_.end(), groups[g].parameters.size(), g);
    }
  }
  ~OptimizerShard() = default;

  /// Returns the row of all parameters' elements.
  const detail::ParameterRow& row() const { return row_; }

  /// Sets which part of the row is this rank's, how much memory each of its states gets, and whether no other rank has
  /// that part.
  void take(std::size_t begin, std::size_t end, std::size_t bytes, bool is_spread) {
    begin_ = begin;
    end_ = end;
    is_spread_ = is_spread;
    std::size_t states = 0;
    for (const Options& o : options_) states = std::max(states, Rule::state_count(o));
    own_states_.clear();
    states_.clear();
    for (std::size_t s = 0; s < states; ++s) {
      own_states_.emplace_back(static_cast<std::byte*>(std::calloc(1, std::max<std::size_t>(bytes, 1))));
      if (!own_states_.back()) throw std::bad_alloc();
      states_.push_back({own_states_.back().get(), bytes});
    }
  }

  /// Returns this rank's part of the parameters: for each one that lies in it, or a piece of which does, the elements.
  std::vector<Parameter> part() const {
    std::vector<Parameter> part;
    row_.for_each_piece(begin_, end_, [&](const detail::ParameterRow::Piece& piece) {
      Parameter p = parameters_[piece.parameter];
      p.value = detail::element_at(p.value, piece.first, p.dtype);
      if (p.grad != nullptr) p.grad = detail::element_at(p.grad, piece.first, p.dtype);
      p.count = piece.count;
      p.shape.clear();
      part.push_back(std::move(p));
    });
    return part;
  }

  /// Counts a step; called before update().
  void count_step() { ++*steps_taken_; }

  /// Steps the elements between two places of this rank's part. updated is where the row starting at
  /// `begin` goes; null means in place.
  void update(std::size_t begin, std::size_t end, std::byte* updated) {
    row_.for_each_piece(begin, std::min(end, end_), [&](const detail::ParameterRow::Piece& piece) {
      const Parameter& p = parameters_[piece.parameter];
      detail::StepArrays arrays = {detail::element_at(p.value, piece.first, p.dtype),
                                   detail::element_at(p.grad, piece.first, p.dtype),
                                   {},
                                   updated != nullptr ? updated + (piece.offset - begin) : nullptr,
                                   piece.count,
                                   static_cast<std::int32_t>(p.dtype)};
      for (std::size_t s = 0; s < states_.size(); ++s) arrays.states[s] = states_[s].data + (piece.offset - begin_);
      Rule::step(options_[group_of_[piece.parameter]], *steps_taken_, arrays);
    });
  }

  /// Makes a copy of the whole state; memory has the whole row for each state.
  OptimizerState make_state(std::vector<std::vector<std::byte>> memory, const std::string& prefix) const {
    std::vector<Tensor> tensors;
    for (std::size_t s = 0; s < memory.size(); ++s) {
      for (std::size_t i = 0; i < parameters_.size(); ++i) {
        const Parameter& p = parameters_[i];
        tensors.push_back(
            {name_of(prefix, i, s), memory[s].data() + row_.offset(i), p.dtype, {static_cast<std::int64_t>(p.count)}});
      }
    }
    return OptimizerState(std::move(memory), std::move(tensors), *steps_taken_, prefix + "step");
  }

  /// Memory of one state.
  struct State {
    std::byte* data;   ///< this optimizer's own, or kept
    std::size_t size;  ///< in bytes
  };
  /// Returns the states of this rank's part.
  const std::vector<State>& states() const { return states_; }

  /// Returns whether a step is to be computed: not if the memory of its tensors has it already.
  bool begin_update() { return !before_ || before_(); }
  /// Called after a step was computed, or was there.
  void end_update() {
    if (after_) after_();
  }

  /// Returns a piece's size in bytes.
  std::size_t bytes_of(const detail::ParameterRow::Piece& piece) const {
    return piece.count * element_size(parameters_[piece.parameter].dtype);
  }

 private:
  static std::vector<Parameter> flatten(const std::vector<Group>& groups) {
    std::vector<Parameter> all;
    for (const Group& group : groups) all.insert(all.end(), group.parameters.begin(), group.parameters.end());
    for (const Parameter& p : all) check(p);
    return all;
  }

  static void check(const Parameter& p) {
    const std::string what = std::string(Rule::kName) + ": parameter " + p.name;
    if (p.dtype != DType::Float32 && p.dtype != DType::Float64) {
      throw Error(Status::InvalidArgument,
                  what + " is not float32 or float64: give the parameters of ddp::MasterWeights");
    }
    if (p.device.kind != DeviceKind::Cpu) {
      throw Error(Status::InvalidArgument,
                  what + " is not in CPU memory: libtorch's optimizers step tensors on a GPU (ddp/libtorch.hpp)");
    }
    if (p.grad == nullptr && p.count > 0) {
      throw Error(Status::InvalidArgument, what + " has no gradient: give DistributedDataParallel::gradient(i)");
    }
  }

  template <typename Use>
  void for_each_state_piece(const Use& use) {
    for (std::size_t s = 0; s < states_.size(); ++s) {
      row_.for_each_piece(begin_, end_, [&](const detail::ParameterRow::Piece& piece) {
        use(piece, s, states_[s].data + (piece.offset - begin_));
      });
    }
  }

  std::string name_of(const std::string& prefix, std::size_t parameter, std::size_t state) const {
    const std::string& name = parameters_[parameter].name;
    return prefix + (name.empty() ? std::to_string(parameter) : name) + "." + Rule::kStates[state];
  }

  std::vector<Parameter> parameters_;
  std::vector<std::size_t> group_of_;  // by parameter
  std::vector<Options> options_;       // by group
  detail::ParameterRow row_;
  std::size_t begin_ = 0;  // this rank's part of the row
  std::size_t end_ = 0;
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  // From calloc(): a process that finds kept memory never touches these pages, and so never waits for them.
  std::vector<std::unique_ptr<std::byte[], Free>> own_states_;
  std::vector<State> states_;  // memory of that part, for each state
  std::int64_t own_steps_taken_ = 0;
  std::int64_t* steps_taken_ = &own_steps_taken_;
  bool is_spread_ = false;  // no other rank has that part
  std::function<bool()> before_;
  std::function<void()> after_;
};

/// An optimizer with its whole state on this rank. One thread at a time. The parameters' memory
/// must stay; the list need not.
///
/// Each step is for all parameters. PyTorch leaves out a parameter whose grad is None; here every parameter has a
/// gradient, so weight decay and momentum also move a parameter that no rank used, for which
/// DistributedDataParallel::was_used() is false. An lr of 0 in its group's options keeps its value in that step.
template <typename RuleOf>
class Optimizer : public OptimizerShard<RuleOf> {
 public:
  using Rule = RuleOf;                                     ///< what a step computes
  using Options = typename OptimizerShard<Rule>::Options;  ///< AdamWOptions or SGDOptions
  using Group = typename OptimizerShard<Rule>::Group;      ///< parameters, and options for them

  /// Makes the optimizer. Throws Error with Status::InvalidArgument, which names the parameter, if
  /// one is not float32 or float64, has no gradient, or is not in CPU memory.
  explicit Optimizer(std::vector<Parameter> parameters, const Options& options = {})
      : Optimizer(std::vector<Group>{{std::move(parameters), options}}) {}
  /// Makes the optimizer for groups of parameters, each with its options.
  explicit Optimizer(const std::vector<Group>& groups) : OptimizerShard<Rule>(groups) {
    this->take(0, this->row().bytes(), this->row().bytes(), false);
  }

  /// Takes one step with the current gradients. In memory of ddp::Kept it marks the update's begin and its end, and if
  /// the memory has this update already, it writes nothing.
  void step() {
    if (this->begin_update()) {
      this->count_step();
      this->update(0, this->row().bytes(), nullptr);
    }
    this->end_update();
  }

  /// Returns a copy of the state.
  OptimizerState state_dict(const std::string& prefix = "optimizer.") const {
    std::vector<std::vector<std::byte>> memory;
    for (const auto& state : this->states()) memory.emplace_back(state.data, state.data + state.size);
    return this->make_state(std::move(memory), prefix);
  }
};

/// Options of AdamW, with the names and defaults of torch.optim.AdamW.
struct AdamWOptions {
  double lr = 1e-3;            ///< learning rate
  double beta1 = 0.9;          ///< share of the gradients' running mean that is kept
  double beta2 = 0.999;        ///< share of the running mean of their squares that is kept
  double eps = 1e-8;           ///< added to the divisor
  double weight_decay = 1e-2;  ///< each step multiplies values by 1 - lr * weight_decay
  bool maximize = false;       ///< whether steps go up
};

namespace detail {
// What Adam and AdamW share: all but the name and where the weight decay goes.
template <typename AdamLikeOptions, ddp_status (*kStep)(const ddp_adamw_options*, const ddp_adamw_arrays*)>
struct AdamLikeRule {
  using Options = AdamLikeOptions;
  static constexpr std::array<const char*, 2> kStates = {"exp_avg", "exp_avg_sq"};
  static std::size_t state_count(const Options& /*options*/) { return 2; }
  static void step(const Options& o, std::int64_t step, const StepArrays& a) {
    const ddp_adamw_options numbers = {sizeof(ddp_adamw_options), o.lr, o.beta1, o.beta2, o.eps, o.weight_decay,
                                       o.maximize ? 1 : 0,        step};
    const ddp_adamw_arrays arrays = {a.value, a.grad, a.states[0], a.states[1], a.updated, a.count, a.dtype};
    check(kStep(&numbers, &arrays));
  }
};

struct AdamWRule : AdamLikeRule<AdamWOptions, &ddp_adamw_step> {
  static constexpr const char* kName = "AdamW";
};
}  // namespace detail

/// AdamW, without amsgrad. Its state, "exp_avg" and "exp_avg_sq", is twice as large as the
/// parameters. Source: torch.optim.AdamW, whose order of operations it keeps.
using AdamW = Optimizer<detail::AdamWRule>;

/// Options of Adam, with the names and defaults of torch.optim.Adam.
struct AdamOptions {
  double lr = 1e-3;         ///< learning rate
  double beta1 = 0.9;       ///< share of the gradients' running mean that is kept
  double beta2 = 0.999;     ///< share of the running mean of their squares that is kept
  double eps = 1e-8;        ///< added to the divisor
  double weight_decay = 0;  ///< added to the gradient, times the value
  bool maximize = false;    ///< whether steps go up
};

namespace detail {
struct AdamRule : AdamLikeRule<AdamOptions, &ddp_adam_step> {
  static constexpr const char* kName = "Adam";
};
}  // namespace detail

/// Adam, without amsgrad. Its state, "exp_avg" and "exp_avg_sq", is twice as large as the
/// parameters. Source: torch.optim.Adam, whose order of operations it keeps.
using Adam = Optimizer<detail::AdamRule>;

/// Options of SGD, with the names and defaults of torch.optim.SGD.
struct SGDOptions {
  double lr = 1e-3;         ///< learning rate
  double momentum = 0;      ///< share of the last direction that is kept; either 0 in all steps or in none
  double dampening = 0;     ///< share of the gradient that is left out when there is momentum
  double weight_decay = 0;  ///< added to the gradient, times the value
  bool nesterov = false;    ///< Nesterov's momentum; needs a momentum, and no dampening
  bool maximize = false;    ///< whether steps go up
};

namespace detail {
struct SGDRule {
  using Options = SGDOptions;
  static constexpr const char* kName = "SGD";
  static constexpr std::array<const char*, 1> kStates = {"momentum_buffer"};
  static std::size_t state_count(const Options& options) { return options.momentum != 0 ? 1 : 0; }
  static void step(const Options& o, std::int64_t step, const StepArrays& a) {
    const ddp_sgd_options numbers = {
        sizeof(ddp_sgd_options), o.lr, o.momentum, o.dampening, o.weight_decay, o.nesterov ? 1 : 0,
        o.maximize ? 1 : 0,      step};
    const ddp_sgd_arrays arrays = {a.value, a.grad, a.states[0], a.updated, a.count, a.dtype};
    check(ddp_sgd_step(&numbers, &arrays));
  }
};
}  // namespace detail

/// SGD: stochastic gradient descent. Its state is "momentum_buffer", if there is momentum. Source:
/// torch.optim.SGD, whose order of operations it keeps.
using SGD = Optimizer<detail::SGDRule>;

}  // namespace ddp
