// SPDX-License-Identifier: BSD-3-Clause
// Gradients compressed by libddp's built-in hooks.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/runtime/training/ddp/ddp_scenarios.hpp"

namespace ddp::test {
namespace {

using Register = std::function<void(DistributedDataParallel&)>;

const std::array<std::pair<const char*, Register>, 3> kHooks = {
    {{"allreduce", [](DistributedDataParallel& model) { model.register_comm_hook(allreduce_hook); }},
     {"fp16", [](DistributedDataParallel& model) { model.register_comm_hook(fp16_compress_hook); }},
     {"bf16", [](DistributedDataParallel& model) { model.register_comm_hook(bf16_compress_hook); }}}};

DistributedDataParallelOptions a_bucket_each() {
  DistributedDataParallelOptions options;
  options.first_bucket_bytes = options.bucket_bytes = 1;
  return options;
}

// A matrix of doubles, one of floats, a vector of odd length and one of float16. All elements of a
// gradient are equal.
void every_type(Session& session) {
  const auto n = static_cast<double>(session.world_size());
  for (const auto& [name, registers] : kHooks) {
    std::vector<double> doubles(15 * 20), double_grads(doubles.size());
    std::vector<float> floats(10 * 12), float_grads(floats.size()), vector(7), vector_grads(7);
    std::vector<std::uint16_t> halves(9), half_grads(9);
    Parameter half;
    half.value = halves.data();
    half.grad = half_grads.data();
    half.count = halves.size();
    half.dtype = DType::Float16;
    DistributedDataParallel model(session.world(),
                                  {{"doubles", doubles.data(), double_grads.data(), doubles.size(), {15, 20}},
                                   {"floats", floats.data(), float_grads.data(), floats.size(), {10, 3, 4}},
                                   {"vector", vector.data(), vector_grads.data(), vector.size()},
                                   half},
                                  a_bucket_each());
    registers(model);
    for (int step = 1; step <= 3; ++step) {
      const double mine = step * (session.rank() + 1);
      double_grads.assign(double_grads.size(), mine);
      float_grads.assign(float_grads.size(), static_cast<float>(-mine));
      vector_grads.assign(vector_grads.size(), static_cast<float>(2 * mine));
      half_grads.assign(half_grads.size(), session.rank() % 2 == 0 ? 0x3c00 : 0x4200);  // 1 or 3
      for (std::size_t i = 4; i-- > 0;) model.mark_ready(i);
      model.synchronize();
      const double mean = step * (n + 1) / 2;  // exact in few bits: world sizes are 1, 2 and 4
      const auto is = [&](const auto& grads, double want) {
        return std::all_of(grads.begin(), grads.end(),
                           [&](auto g) { return std::abs(static_cast<double>(g) - want) < 1e-6 * mean; });
      };
      const std::string what = std::string(name) + ", step " + std::to_string(step) + ": ";
      expect(is(double_grads, mean), what + "doubles");
      expect(is(float_grads, -mean), what + "floats");
      expect(is(vector_grads, 2 * mean), what + "a vector");
      expect(is(half_grads, session.world_size() == 1 ? 0x3c00 : 0x4000), what + "halves");
    }
  }
}

// Rank r has r + 2 batches; ranks that have finished theirs contribute zeros.
void uneven(Session& session) {
  for (const auto& [hook, registers] : kHooks) {
    const std::string name = hook;  // clang does not capture structured bindings
    Tensors t({10 * 12, 5});
    std::vector<Parameter> parameters = t.parameters();
    parameters[0].shape = {10, 12};
    DistributedDataParallel model(session.world(), parameters, a_bucket_each());
    registers(model);
    model.join([&] {
      for (int step = 0; step < session.rank() + 2; ++step) {
        model.before_forward();
        for (std::size_t i = 2; i-- > 0;) {
          t.fill(i, 4);
          model.mark_ready(i);
        }
        model.synchronize();
        const int active = session.world_size() - std::max(0, step - 1);
        const double mean = 4.0 * active / session.world_size();
        for (const auto& grads : t.grads) {
          for (const float g : grads) {
            expect(std::abs(double{g} - mean) < 1e-6 * mean, name + ", step " + std::to_string(step));
          }
        }
      }
    });
  }
}

void compression_mistakes(Session& session) {
  Tensors t({4});
  DistributedDataParallel model(session.world(), t.parameters());
  report_failure("kind", [&] { model.register_comm_hook(static_cast<BuiltinCommHook>(9)); });
  model.register_comm_hook(bf16_compress_hook);  // the attempt registered no hook
  report_failure("second", [&] { model.register_comm_hook(fp16_compress_hook); });
}

// Rank 1 is killed before its first bucket of a step that the other ranks begin.
void die(Session& session, const Register& registers) {
  Tensors t({64 * 64, 64 * 64});
  std::vector<Parameter> parameters = t.parameters();
  for (Parameter& p : parameters) p.shape = {64, 64};
  DistributedDataParallel model(session.world(), parameters, a_bucket_each());
  registers(model);
  const auto step = [&] {
    for (std::size_t i = 0; i < 2; ++i) t.fill(i, static_cast<float>(session.rank()));
    for (std::size_t i = 2; i-- > 0;) model.mark_ready(i);
    model.synchronize();
  };
  for (int k = 0; k < 2; ++k) step();
  say("here");
  if (session.rank() == 1) session.store().wait({"never"}, std::chrono::hours(1));
  report_failure("step", step);
  for (std::size_t i = 0; i < 2; ++i) {
    expect(t.grad_is(i, static_cast<float>(session.rank())), "the caller's gradients are as they were");
  }
}

}  // namespace

Scenarios compression_scenarios() {
  Scenarios scenarios = {{"compressed, every type", every_type},
                         {"compressed, uneven", uneven},
                         {"compression mistakes", compression_mistakes}};
  for (const auto& [name, registers] : kHooks) {
    scenarios[std::string("die under ") + name] = [r = registers](Session& session) { die(session, r); };
  }
  return scenarios;
}

}  // namespace ddp::test
