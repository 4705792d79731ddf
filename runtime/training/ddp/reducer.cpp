// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training/ddp/reducer.hpp"

#include <algorithm>
#include <utility>

#include "collectives/element_types.hpp"
#include "runtime/base/buffer.hpp"
#include "runtime/base/scale.hpp"
#include "runtime/collective/make_operation.hpp"
#include "runtime/training/ddp/bucket_memory.hpp"

namespace ddp::runtime {
namespace {

using collectives::is_16_bit_float;
using rendezvous::Error;
using rendezvous::ErrorCode;

constexpr std::size_t kMebibyte = std::size_t{1} << 20;
constexpr char kSameModel[] = "every rank must build the same model";
constexpr char kSameOptions[] = "every rank must set the same options";

}  // namespace

Reducer::Reducer(ProcessGroup& group, const ddp_parameter* parameters, std::size_t count,
                 const ddp_reducer_options& options)
    : Reducer(checked({group, HostExchange(group), with_defaults(options)}, parameters, count)) {}

Reducer::Reducer(Checked from)
    : group_(from.group),
      host_exchange_(std::move(from.exchange)),
      options_(from.options),
      parameters_(std::move(from.parameters)),
      place_(std::move(from.place)),
      registers_buckets_(from.registers_buckets),
      buffers_(std::move(from.buffers)),
      gradients_(std::move(from.gradients)),
      plan_(plan(backward_order(parameters_.size()))),
      core_(names(parameters_), plan_, shape_of(options_)),
      used_(parameters_.size()),
      join_words_(static_cast<std::size_t>(group_.size())) {
  compare_across_ranks();
  will_rebuild_ = holds_on_all_ranks(host_exchange_, can_rebuild());
  buckets_ = make_buckets(plan_);
  place_gradients(plan_);
  broadcast_.run(group_, parameters_, 0);
  broadcast_.run(group_, buffers_, 0);
}

Reducer::~Reducer() {
  if (launched_ == 0) return;
  group_.abort("DistributedDataParallel was destroyed in the middle of a step");
  group_.drain();
}

ddp_reducer_options Reducer::with_defaults(ddp_reducer_options options) {
  if (options.first_bucket_bytes == 0) options.first_bucket_bytes = kMebibyte;
  if (options.bucket_bytes == 0) options.bucket_bytes = 25 * kMebibyte;
  for (std::int32_t* flag : {&options.find_unused_parameters, &options.static_graph, &options.gradient_as_bucket_view,
                             &options.no_broadcast_buffers}) {
    *flag = *flag != 0 ? 1 : 0;
  }
  return options;
}

// Finds everything that a rank can find wrong on its own, before the others wait for it.
Reducer::Checked Reducer::checked(Checked from, const ddp_parameter* parameters, std::size_t count) {
  check_on_all_ranks(from.exchange, [&] {
    from.parameters = replicated(from.group, "parameter", parameters, count);
    from.place = common_place(from.parameters);
    from.registers_buckets = from.place.is_gpu() && wants_registered_buckets();
    from.gradients = gradients(parameters, from.parameters, from.options);
    from.buffers = replicated(from.group, "buffer", from.options.buffers, from.options.buffer_count);
  });
  return from;
}

std::vector<Reducer::Gradient> Reducer::gradients(const ddp_parameter* parameters, const ReplicatedTensors& checked,
                                                  const ddp_reducer_options& options) {
  std::vector<Gradient> result;
  for (std::size_t i = 0; i < checked.size(); ++i) {
    if (!collectives::is_floating_point(checked[i].dtype)) {
      throw Error(ErrorCode::InvalidArgument,
                  checked[i].name + " is " + dtype_name(checked[i].dtype) +
                      ": only floating-point parameters have gradients; hand in others as buffers");
    }
    if (options.gradient_as_bucket_view != 0 && parameters[i].grad != nullptr) {
      throw Error(ErrorCode::InvalidArgument,
                  checked[i].name +
                      " has a gradient of its own, but gradient_as_bucket_view puts it into a bucket: "
                      "leave grad null and ask ddp_reducer_gradient()");
    }
    result.push_back({parameters[i].grad, 0, 0, {}});
  }
  return result;
}

TensorPlace Reducer::common_place(const ReplicatedTensors& parameters) {
  for (const ReplicatedTensor& p : parameters) {
    if (p.place.is_gpu() == parameters.front().place.is_gpu()) continue;
    const auto where = [](const ReplicatedTensor& t) { return t.place.is_gpu() ? " is on a GPU" : " is on the CPU"; };
    throw Error(ErrorCode::InvalidArgument, p.name + where(p) + " but " + parameters.front().name +
                                                where(parameters.front()) + ": a model's parameters are in one place");
  }
  return parameters.empty() ? TensorPlace() : parameters.front().place;
}

StepShape Reducer::shape_of(const ddp_reducer_options& options) {
  if (options.static_graph != 0) return StepShape::AsFirst;
  return options.find_unused_parameters != 0 ? StepShape::Any : StepShape::All;
}

std::vector<std::string> Reducer::names(const ReplicatedTensors& parameters) {
  std::vector<std::string> result;
  for (const ReplicatedTensor& p : parameters) result.push_back(p.name);
  return result;
}

std::vector<PlannedBucket> Reducer::plan(const std::vector<std::size_t>& order) const {
  std::vector<PlannedParameter> planned;
  for (const ReplicatedTensor& p : parameters_) planned.push_back({p.bytes(), p.dtype});
  return plan_buckets(planned, order, {options_.first_bucket_bytes, options_.bucket_bytes});
}

// Finds differences between ranks before they lead to a collective that hangs or ends the process.
void Reducer::compare_across_ranks() {
  const auto count = [](const auto& list) { return static_cast<std::int64_t>(list.size()); };
  compare_numbers(host_exchange_,
                  {{"the model has ", count(parameters_), " parameters", kSameModel},
                   {"the model has ", count(buffers_), " buffers", kSameModel},
                   {"find_unused_parameters is ", options_.find_unused_parameters, "", kSameOptions},
                   {"static_graph is ", options_.static_graph, "", kSameOptions},
                   {"no_broadcast_buffers is ", options_.no_broadcast_buffers, "", kSameOptions},
                   {"DDP_NCCL_REGISTER is ", registers_buckets_ ? 1 : 0, "", "set it alike on all ranks"}});
  compare_shapes(host_exchange_, parameters_);
  compare_shapes(host_exchange_, buffers_);
  compare_numbers(host_exchange_,
                  {{"first_bucket_bytes is ", static_cast<std::int64_t>(options_.first_bucket_bytes), "", kSameOptions},
                   {"bucket_bytes is ", static_cast<std::int64_t>(options_.bucket_bytes), "", kSameOptions}});
}

// Buckets stay as they are where backward may produce another set of gradients each time, and where
// callers hold pointers into buckets for good.
bool Reducer::can_rebuild() const {
  const bool may_move = options_.gradient_as_bucket_view != 0;
  return shape_of(options_) != StepShape::Any &&
         std::all_of(gradients_.begin(), gradients_.end(), [&](const Gradient& g) { return may_move || g.own; });
}

// All ranks make their buckets together.
std::vector<Bucket> Reducer::make_buckets(const std::vector<PlannedBucket>& plan) {
  std::vector<std::size_t> sizes;
  for (const PlannedBucket& members : plan) {
    std::size_t size = 0;
    for (const std::size_t i : members) size += parameters_[i].bytes();
    sizes.push_back(size);
  }
  std::vector<TensorMemory> memory = make_bucket_memory(place_, sizes, group_, host_exchange_, registers_buckets_);
  std::vector<Bucket> buckets;
  for (const PlannedBucket& members : plan) {
    std::vector<ddp_grad_slice> slices;
    for (const std::size_t i : members) {
      const ReplicatedTensor& p = parameters_[i];
      slices.push_back({i, 0, p.count, p.shape.data(), p.shape.size(), p.data});
    }
    buckets.emplace_back(place_, parameters_[members.front()].dtype, std::move(slices),
                         std::move(memory[buckets.size()]));
  }
  return buckets;
}

void Reducer::place_gradients(const std::vector<PlannedBucket>& plan) {
  for (std::size_t b = 0; b < plan.size(); ++b) {
    for (std::size_t s = 0; s < plan[b].size(); ++s) {
      gradients_[plan[b][s]].bucket = b;
      gradients_[plan[b][s]].slice = s;
    }
  }
  in_flight_.assign(plan.size(), 0);
  done_.assign(plan.size(), false);
}

void* Reducer::gradient(std::size_t i) {
  check_number("parameter", i, parameters_);
  const Gradient& g = gradients_[i];
  return g.own != nullptr ? g.own : buckets_[g.bucket].at(g.slice);
}

void Reducer::set_value(std::size_t i, void* value) {
  check_number("parameter", i, parameters_);
  check_new_place(parameters_[i], value);
  parameters_[i].data = value;
  buckets_[gradients_[i].bucket].set_value(gradients_[i].slice, value);
}

void Reducer::set_gradient(std::size_t i, void* grad) {
  check_number("parameter", i, parameters_);
  if (gradients_[i].own == nullptr) {
    throw Error(ErrorCode::InvalidArgument,
                parameters_[i].name + " was given without a gradient, so that it lies in a bucket and stays there");
  }
  check_new_place(parameters_[i], grad);
  gradients_[i].own = grad;
}

void Reducer::set_buffer(std::size_t i, void* value) {
  check_number("buffer", i, buffers_);
  check_new_place(buffers_[i], value);
  buffers_[i].data = value;
}

void Reducer::check_number(const char* kind, std::size_t i, const ReplicatedTensors& tensors) {
  if (i < tensors.size()) return;
  throw Error(ErrorCode::InvalidArgument, std::string("there is no ") + kind + " " + std::to_string(i) +
                                              ": the model has " + std::to_string(tensors.size()));
}

void Reducer::check_new_place(const ReplicatedTensor& tensor, const void* memory) const {
  core_.throw_if_failed();
  check_elements(tensor.name.c_str(), memory, tensor.count, tensor.dtype);
  if (!core_.in_step()) return;
  throw Error(ErrorCode::InvalidArgument,
              tensor.name + " cannot move in the middle of a step: call synchronize() first");
}

void Reducer::register_comm_hook(std::unique_ptr<CommHook> hook) {
  core_.throw_if_failed();
  if (hook_ != nullptr) {
    throw Error(ErrorCode::InvalidArgument, "DistributedDataParallel: there is a communication hook already");
  }
  if (core_.has_begun()) {
    throw Error(ErrorCode::InvalidArgument,
                "DistributedDataParallel: a communication hook is registered before the first backward, not after it");
  }
  hook_ = std::move(hook);
}

// Makes an error from body final, because it leaves ranks at different places.
template <typename Body>
void Reducer::communicate(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    core_.give_up(error);
    throw;
  }
}

// Aborts the group if the hook fails: the other ranks would wait for the operations that the hook
// meant to issue.
template <typename Body>
auto Reducer::ask_hook(Body&& body) {
  const auto failed = [&](const std::exception& error) {
    group_.abort(std::string("DistributedDataParallel: the communication hook failed: ") + error.what());
  };
  try {
    return body();
  } catch (const Error& error) {
    failed(error);
    throw;
  } catch (const std::exception& error) {
    failed(error);
    throw Error(ErrorCode::System, error.what());
  }
}

void Reducer::before_forward() {
  const bool buffers_due = core_.before_forward();
  int root = 0;
  if (join_) root = exchange_join_words({1, core_.no_sync() ? 0 : 1}).authority;
  if (buffers_due && options_.no_broadcast_buffers == 0) broadcast_buffers(root);
}

void Reducer::broadcast_buffers(int root) {
  communicate([&] { broadcast_.run(group_, buffers_, root); });
}

// Refuses the first call of a step that cannot be captured in a CUDA graph, before anything of it is.
void Reducer::check_capture() const {
  if (!place_.is_gpu() || core_.in_step() || core_.no_sync() || place_.gpu().capture_of(place_.stream()) == 0) return;
  const char* why = nullptr;
  if (will_rebuild_) why = "the first step shows in which order gradients come: take it before the capture";
  if (core_.asks_who_used())
    why =
        "the host waits until all ranks know which parameters were used: set static_graph, "
        "and take the first step before the capture";
  if (join_) why = "inside join the host waits for the other ranks";
  if (why == nullptr) return;
  throw Error(ErrorCode::InvalidArgument,
              std::string("DistributedDataParallel: a CUDA graph cannot have this step: ") + why);
}

void Reducer::mark_ready(std::size_t i) {
  check_capture();
  actions_.clear();
  core_.mark_ready(i, actions_);
  carry_out();
}

void Reducer::mark_unused(std::size_t i) {
  check_capture();
  actions_.clear();
  core_.mark_unused(i, actions_);
  carry_out();
}

void Reducer::synchronize() {
  check_capture();
  actions_.clear();
  if (!core_.synchronize(actions_)) return;
  carry_out();
  finish(Who::ThisRank);
}

void Reducer::carry_out() {
  for (const std::size_t i : actions_.fill) fill(i);
  if (actions_.launch.empty()) return;
  communicate([&] {
    for (const std::size_t bucket : actions_.launch) launch(bucket);
  });
}

// The plain average multiplies each contribution by 1/N before the sum. It is done here, on the way
// into the bucket, except for 16-bit types, which only the reduction widens, and on a GPU, where
// only NCCL has kernels.
void Reducer::fill(std::size_t i) {
  Gradient& g = gradients_[i];
  Bucket& bucket = buckets_[g.bucket];
  if (g.own == nullptr && !core_.used_here(i)) {
    if (g.kept.size() == 0) g.kept = TensorMemory(place_, parameters_[i].bytes());
    bucket.take(g.slice, g.kept.data());
  }
  const std::int32_t dtype = parameters_[i].dtype;
  const bool as_it_is = hook_ != nullptr || is_16_bit_float(dtype) || place_.is_gpu();
  bucket.put(g.slice, gradient(i), as_it_is ? 1 : share(dtype));
}

double Reducer::share(std::int32_t dtype) const {
  return averaging_factor(join_ ? join_->divisor(group_.size()) : group_.size(), dtype);
}

// Returns the reduction that completes the average of what fill() put into a bucket.
ddp_reduction Reducer::reduction(std::int32_t dtype) const {
  if (place_.is_gpu() && !join_) return {DDP_AVG, 1};
  const double factor = place_.is_gpu() || is_16_bit_float(dtype) ? share(dtype) : 1;
  return {factor != 1 ? DDP_PREMUL_SUM : DDP_SUM, factor};
}

void Reducer::launch(std::size_t b) {
  ++launched_;
  buckets_[b].follow();
  if (hook_ != nullptr) return ask_hook([&] { hook_->start(view(b)); });
  const ddp_buffer buffer = buckets_[b].buffer();
  in_flight_[b] = group_.issue(make_all_reduce(buffer, reduction(buffer.dtype)));
}

// Ends the step once every bucket is launched. Everything sent in the step has arrived before any
// of the caller's memory changes.
void Reducer::finish(Who whose) {
  std::vector<std::size_t> order;
  communicate([&] {
    wait_for_buckets();
    if (core_.asks_who_used()) {
      used_ = core_.used_here();
      if (whose == Who::Others) std::fill(used_.begin(), used_.end(), std::uint8_t{0});
      host_exchange_.all_reduce(used_.data(), used_.size(), DDP_MAX);
      core_.set_used_anywhere(used_);
    }
    if (will_rebuild_) order = agree_on_order();
  });
  launched_ = 0;
  if (whose == Who::ThisRank) take_out();
  core_.end_step();
  if (std::exchange(will_rebuild_, false)) rebuild(order);
}

void Reducer::wait_for_buckets() {
  if (hook_ != nullptr) return advance_hook();
  for (const std::uint64_t sequence : in_flight_) group_.wait(sequence);
}

void Reducer::advance_hook() {
  std::fill(done_.begin(), done_.end(), false);
  for (std::size_t left = buckets_.size(); left > 0;) {
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      if (done_[b] || ask_hook([&] { return hook_->advance(view(b)); })) continue;
      done_[b] = true;
      --left;
    }
  }
}

void Reducer::take_out() {
  for (std::size_t i = 0; i < gradients_.size(); ++i) {
    const Gradient& g = gradients_[i];
    Bucket& bucket = buckets_[g.bucket];
    if (!core_.used_anywhere(i)) {  // no rank used it: the gradient keeps its value
      if (g.own == nullptr) bucket.put(g.slice, g.kept.data(), 1);
    } else if (g.own != nullptr) {
      bucket.take(g.slice, g.own);
    }
  }
}

// Returns rank 0's order, on every rank.
std::vector<std::size_t> Reducer::agree_on_order() {
  std::vector<std::size_t> order = core_.ready_order();
  host_exchange_.broadcast(order.data(), order.size() * sizeof(order[0]), 0);
  return order;
}

void Reducer::rebuild(const std::vector<std::size_t>& order) {
  std::vector<PlannedBucket> better = plan(order);
  if (better == plan_) return;
  // Gradients that lie in buckets move to their new places with their values.
  std::vector<Bucket> old;
  communicate([&] { old = std::exchange(buckets_, make_buckets(better)); });
  std::vector<void*> before;
  for (const Gradient& g : gradients_) before.push_back(g.own == nullptr ? old[g.bucket].at(g.slice) : nullptr);
  plan_ = std::move(better);
  place_gradients(plan_);
  for (std::size_t i = 0; i < gradients_.size(); ++i) {
    const Gradient& g = gradients_[i];
    if (g.own == nullptr) buckets_[g.bucket].put(g.slice, before[i], 1);
  }
  core_.replan(plan_);
}

void Reducer::join_begin(JoinCore::Options options) {
  if (join_)
    throw Error(ErrorCode::InvalidArgument, "DistributedDataParallel: join_begin() was called again before join_end()");
  core_.set_joining(true);
  join_.emplace(options, group_.size());
}

void Reducer::join_end() {
  if (!join_)
    throw Error(ErrorCode::InvalidArgument, "DistributedDataParallel: join_end() was called without join_begin()");
  core_.set_joining(false);
  JoinVerdict verdict = exchange_join_words({0, 0});
  for (; verdict.active > 0; verdict = exchange_join_words({0, 0})) shadow(verdict);
  communicate([&] { broadcast_.run(group_, parameters_, verdict.authority); });
  if (options_.no_broadcast_buffers == 0) broadcast_buffers(verdict.authority);
  join_.reset();
}

void Reducer::join_cancel() {
  join_.reset();
  core_.cancel_joining();
}

// Tells all ranks what this one is about to do, and returns what follows. Throws if all ranks are
// to stop.
JoinVerdict Reducer::exchange_join_words(JoinWord mine) {
  communicate([&] { host_exchange_.all_gather(&mine, sizeof(mine), join_words_.data()); });
  const JoinVerdict verdict = join_->decide(join_words_);
  if (!verdict.early) return verdict;
  join_cancel();  // all ranks are at the same place, so DistributedDataParallel remains usable
  throw Error(ErrorCode::Mismatch, "DistributedDataParallel: " + *verdict.early);
}

// Takes part, with zeros, in a step of the ranks that have input.
void Reducer::shadow(const JoinVerdict& verdict) {
  const bool buffers_due = core_.shadow_forward(verdict.synchronizes);
  if (buffers_due && options_.no_broadcast_buffers == 0) broadcast_buffers(verdict.authority);
  if (!verdict.synchronizes) return;
  actions_.clear();
  core_.shadow_step(actions_);
  for (const Gradient& g : gradients_) buckets_[g.bucket].put_zeros(g.slice);
  carry_out();
  finish(Who::Others);
}

}  // namespace ddp::runtime
