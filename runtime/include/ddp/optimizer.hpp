// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Optimizers: what Adam (adam.hpp), AdamW (adamw.hpp), SGD (sgd.hpp) and ZeroRedundancyOptimizer
/// (zero_redundancy_optimizer.hpp) have in common, which is parameters in groups, their state, and
/// a step.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "ddp/buffer.hpp"
#include "ddp/checkpoint.hpp"
#include "ddp/cuda/memory.hpp"
#include "ddp/cuda/parameters.hpp"
#include "ddp/ddp.h"
#include "ddp/error.hpp"
#include "ddp/parameter.hpp"

namespace ddp {

class Kept;

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
  /// Sends options that have changed to the GPU, as step() does first. For a step that is replayed from a CUDA graph,
  /// which does not read them: call it after a change, before the replay; and before the capture. Does nothing on the
  /// CPU.
  void send_options() {
    if (!is_on_gpu()) return;
    for (std::size_t g = 0; g < options_.size(); ++g) detail::check(Rule::set_on_gpu(on_gpu(), g, options_[g]));
  }
  /// Sets where parameter i's gradient is from now on: for DistributedDataParallel's own memory,
  /// which moves once with gradient_as_bucket_view.
  void set_gradient(std::size_t i, void* grad) {
    parameters_.at(i).grad = grad;
    moved_ = true;
  }
  /// Sets where parameter i itself is from now on, if its memory has moved.
  void set_value(std::size_t i, void* value) {
    parameters_.at(i).value = value;
    moved_ = true;
  }
  /// Returns the number of steps taken. On a GPU, where steps may be left out, the host waits for the current stream.
  std::int64_t steps_taken() const {
    read_steps_taken();
    return *steps_taken_;
  }

  /// Returns the state's tensors where they lie. All ranks together have the whole state once. A name
  /// is the prefix, the parameter's name (its number if it has none), and PyTorch's name of the
  /// state; "step" counts the steps. On a GPU all of it is in the GPU's memory, and the host does not wait.
  std::vector<OptimizerTensor> tensors(const std::string& prefix = "optimizer.") {
    std::vector<OptimizerTensor> tensors;
    for_each_state_piece([&](const detail::ParameterRow::Piece& piece, std::size_t state, void* data) {
      const Parameter& p = parameters_[piece.parameter];
      tensors.push_back({name_of(prefix, piece.parameter, state), Buffer(data, piece.count, p.dtype, p.device),
                         piece.first, p.count, false});
    });
    if (begin_ == 0) tensors.push_back({prefix + "step", steps_taken_in_memory(), 0, 1, true});
    return tensors;
  }

  /// Restores a state from a Checkpoint, an OptimizerState, or another type with their read(). It
  /// reads what this rank needs; every rank calls it, with the whole state. Throws what read()
  /// throws; the state is then a mixture of both.
  template <typename Source>
  void load_state_dict(const Source& source, const std::string& prefix = "optimizer.") {
    std::vector<std::byte> whole;
    for_each_state_piece([&](const detail::ParameterRow::Piece& piece, std::size_t state, void* data) {
      const Parameter& p = parameters_[piece.parameter];
      const bool all_here = piece.count == p.count && !is_on_gpu();
      if (!all_here) whole.resize(p.count * element_size(p.dtype));
      source.read(name_of(prefix, piece.parameter, state), Buffer(all_here ? data : whole.data(), p.count, p.dtype),
                  {static_cast<std::int64_t>(p.count)});
      if (all_here) return;
      const void* from = detail::element_at(whole.data(), piece.first, p.dtype);
      if (is_on_gpu()) return gpu_states_[state].write(piece.offset - begin_, from, bytes_of(piece));
      std::memcpy(data, from, bytes_of(piece));
    });
    source.read(prefix + "step", Buffer(steps_taken_, 1), {});
    if (is_on_gpu()) detail::check(ddp_cuda_optimizer_set_steps_taken(on_gpu(), *steps_taken_));
  }

 protected:
  /// Makes the base for all parameters; take() then says which part is this rank's.
  explicit OptimizerShard(const std::vector<Group>& groups) : parameters_(flatten(groups)), row_(parameters_) {
    for (std::size_t g = 0; g < groups.size(); ++g) {
      options_.push_back(groups[g].options);
      group_of_.insert(group_of_.end(), groups[g].parameters.size(), g);
    }
    if (!is_on_gpu()) return;
    device_ = cuda::detail::device_of(Rule::kName, parameters_);
    ddp_cuda_optimizer* made = nullptr;
    detail::check(ddp_cuda_optimizer_create(device_, Rule::kCudaRule, options_.size(), &made));
    gpu_.reset(made);
  }
  ~OptimizerShard() = default;

  /// Returns the row of all parameters' elements.
  const detail::ParameterRow& row() const { return row_; }

  /// Sets which part of the row is this rank's, and how much memory each of its states gets.
  void take(std::size_t begin, std::size_t end, std::size_t bytes) {
    begin_ = begin;
    end_ = end;
    std::size_t states = 0;
    for (const Options& o : options_) states = std::max(states, Rule::state_count(o));
    own_states_.clear();
    gpu_states_.clear();
    states_.clear();
    for (std::size_t s = 0; s < states; ++s) {
      if (is_on_gpu()) {
        gpu_states_.emplace_back(device_, bytes);
        states_.push_back({static_cast<std::byte*>(gpu_states_.back().data()), bytes});
        continue;
      }
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

  /// Returns the number of the GPU that the parameters are on.
  int gpu() const { return device_; }

  /// Returns whether the parameters are in the memory of a GPU.
  bool is_on_gpu() const { return !parameters_.empty() && parameters_.front().device.kind == DeviceKind::Cuda; }

  /// Enqueues a step of all elements on the GPU, unless scaler, which may be null, has noted an overflow. Throws Error
  /// if the parameters are not on a GPU.
  void update_on_gpu(const ddp_cuda_scaler* scaler) {
    if (!is_on_gpu()) throw Error(Status::InvalidArgument, "GradScaler: the optimizer's parameters are not on a GPU");
    if (moved_) send_tensors();
    send_options();
    detail::check(ddp_cuda_optimizer_step(on_gpu(), scaler));
  }

  /// Copies a state of this rank's part to the host, which waits for it.
  std::vector<std::byte> copy_of_state(std::size_t state) const {
    if (!is_on_gpu()) return {states_[state].data, states_[state].data + states_[state].size};
    std::vector<std::byte> copy(states_[state].size);
    gpu_states_[state].read(0, copy.data(), copy.size());
    return copy;
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
    read_steps_taken();
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

  /// Marks that an update of kept memory begins, if the tensors are kept. Returns whether it is to be made: not if the
  /// memory has it already.
  bool begin_update() {
    std::int32_t write = 1;
    if (kept_ != nullptr) detail::check(ddp_kept_begun(kept_, &write));
    return write != 0;
  }
  /// Marks that the update is complete, or was there.
  void end_update() {
    if (kept_ != nullptr) detail::check(ddp_kept_updated(kept_));
  }

  /// Returns a piece's size in bytes.
  std::size_t bytes_of(const detail::ParameterRow::Piece& piece) const {
    return piece.count * element_size(parameters_[piece.parameter].dtype);
  }

 private:
  friend class Kept;

  static std::vector<Parameter> flatten(const std::vector<Group>& groups) {
    std::vector<Parameter> all;
    for (const Group& group : groups) all.insert(all.end(), group.parameters.begin(), group.parameters.end());
    for (const Parameter& p : all) check(p, all.front().device);
    return all;
  }

  static void check(const Parameter& p, const Device& device) {
    const std::string what = std::string(Rule::kName) + ": parameter " + p.name;
    if (p.dtype != DType::Float32 && p.dtype != DType::Float64) {
      throw Error(Status::InvalidArgument,
                  what + " is not float32 or float64: give the parameters of ddp::MasterWeights");
    }
    if (p.device.kind != device.kind || p.device.index != device.index) {
      throw Error(Status::InvalidArgument, what + " is not on the device of the first parameter");
    }
    if (p.grad == nullptr && p.count > 0) {
      throw Error(Status::InvalidArgument, what + " has no gradient: give DistributedDataParallel::gradient(i)");
    }
  }

  ddp_cuda_optimizer* on_gpu() const { return gpu_.get(); }

  Buffer steps_taken_in_memory() const {
    if (!is_on_gpu()) return Buffer(steps_taken_, 1);
    void* steps = nullptr;
    detail::check(ddp_cuda_optimizer_steps_address(on_gpu(), &steps));
    return Buffer(steps, 1, DType::Int64, {DeviceKind::Cuda, device_});
  }

  void read_steps_taken() const {
    if (is_on_gpu()) detail::check(ddp_cuda_optimizer_steps_taken(on_gpu(), steps_taken_));
  }

  // Tells the kernels where everything of this rank's part is.
  void send_tensors() {
    std::vector<ddp_cuda_tensor> tensors;
    row_.for_each_piece(begin_, end_, [&](const detail::ParameterRow::Piece& piece) {
      const Parameter& p = parameters_[piece.parameter];
      ddp_cuda_tensor tensor = {detail::element_at(p.value, piece.first, p.dtype),
                                detail::element_at(p.grad, piece.first, p.dtype),
                                {},
                                piece.count,
                                static_cast<std::int32_t>(p.dtype),
                                static_cast<std::int32_t>(group_of_[piece.parameter])};
      for (std::size_t s = 0; s < states_.size(); ++s) tensor.states[s] = states_[s].data + (piece.offset - begin_);
      tensors.push_back(tensor);
    });
    detail::check(ddp_cuda_optimizer_set_tensors(on_gpu(), tensors.data(), tensors.size()));
    moved_ = false;
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
  struct DestroyOnGpu {
    void operator()(ddp_cuda_optimizer* optimizer) const { ddp_cuda_optimizer_destroy(optimizer); }
  };
  int device_ = 0;  // the GPU, if the parameters are on one
  std::vector<cuda::Memory> gpu_states_;
  std::unique_ptr<ddp_cuda_optimizer, DestroyOnGpu> gpu_;  // destroyed before the states' memory
  bool moved_ = true;                                      // whether the GPU's list of tensors is out of date
  std::int64_t own_steps_taken_ = 0;
  std::int64_t* steps_taken_ = &own_steps_taken_;
  ddp_kept* kept_ = nullptr;  // null: the tensors are not kept
};

/// An optimizer with its whole state on this rank. One thread at a time. The parameters' memory
/// must stay; the list need not.
///
/// Each step is for all parameters. PyTorch leaves out a parameter whose grad is None; here every parameter has a
/// gradient, so weight decay and momentum also move a parameter that no rank used, for which
/// DistributedDataParallel::was_used() is false. An lr of 0 in its group's options keeps its value in that step.
///
/// Parameters in the memory of a GPU are stepped there: step() puts two kernels for all of them on the current stream
/// and returns; the state is in the GPU's memory too. All parameters are on one device. The results are the CPU's to
/// the bits of Adam's coefficients (ddp/c/cuda_training.h). It needs libddp's kernels; ddp::cuda::GradientNorm,
/// ddp::cuda::GradScaler and ddp::cuda::MasterWeights go with it.
template <typename RuleOf>
class Optimizer : public OptimizerShard<RuleOf> {
 public:
  using Rule = RuleOf;                                     ///< what a step computes
  using Options = typename OptimizerShard<Rule>::Options;  ///< AdamWOptions or SGDOptions
  using Group = typename OptimizerShard<Rule>::Group;      ///< parameters, and options for them

  /// Makes the optimizer. Throws Error with Status::InvalidArgument, which names the parameter, if
  /// one is not float32 or float64, has no gradient, or is not on the same device as the others; with Status::System
  /// for a GPU if libddp has no kernels for it.
  explicit Optimizer(std::vector<Parameter> parameters, const Options& options = {})
      : Optimizer(std::vector<Group>{{std::move(parameters), options}}) {}
  /// Makes the optimizer for groups of parameters, each with its options.
  explicit Optimizer(const std::vector<Group>& groups) : OptimizerShard<Rule>(groups) {
    this->take(0, this->row().bytes(), this->row().bytes());
  }

  /// Takes one step with the current gradients. In memory of ddp::Kept it marks the update's begin and its end, and if
  /// the memory has this update already, it writes nothing.
  void step() {
    if (this->is_on_gpu()) return this->update_on_gpu(nullptr);
    if (this->begin_update()) {
      this->count_step();
      this->update(0, this->row().bytes(), nullptr);
    }
    this->end_update();
  }

  /// Takes one step on the GPU unless the scaler has noted an overflow; ddp::cuda::GradScaler::step() calls it.
  void step_unless_overflow(const ddp_cuda_scaler* scaler) { this->update_on_gpu(scaler); }

  /// Returns a copy of the state.
  OptimizerState state_dict(const std::string& prefix = "optimizer.") const {
    std::vector<std::vector<std::byte>> memory;
    for (std::size_t s = 0; s < this->states().size(); ++s) memory.push_back(this->copy_of_state(s));
    return this->make_state(std::move(memory), prefix);
  }
};

}  // namespace ddp
