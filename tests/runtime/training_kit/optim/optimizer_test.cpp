// SPDX-License-Identifier: BSD-3-Clause
#include <catch2/catch.hpp>
#include <cstring>
#include <ddp/ddp.hpp>
#include <ddp/training.hpp>
#include <limits>
#include <string>
#include <vector>

#include "runtime/training_kit/optim/adamw.hpp"
#include "runtime/training_kit/optim/sgd.hpp"
#include "tests/runtime/training_kit/golden_numbers.hpp"

using Catch::Matchers::Contains;
using ddp::test::golden_optimizers;
using ddp::test::numbers;
using ddp::test::write_numbers;
using nlohmann::json;

namespace {

template <typename T>
void check_near(const std::vector<T>& found, const json& expected, const std::string& what) {
  INFO(what);
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    CHECK(static_cast<double>(found[i]) == Approx(expected[i].get<double>()).epsilon(1e-6).margin(1e-6));
  }
}

// Reads the options of AdamW or Adam.
template <typename Options>
Options adam_options(const json& given) {
  Options o;
  o.lr = given.value("lr", o.lr);
  if (given.contains("betas")) {
    o.beta1 = given["betas"][0];
    o.beta2 = given["betas"][1];
  }
  o.eps = given.value("eps", o.eps);
  o.weight_decay = given.value("weight_decay", o.weight_decay);
  o.maximize = given.value("maximize", o.maximize);
  return o;
}

ddp::SGDOptions sgd_options(const json& given) {
  ddp::SGDOptions o;
  o.lr = given.value("lr", o.lr);
  o.momentum = given.value("momentum", o.momentum);
  o.dampening = given.value("dampening", o.dampening);
  o.weight_decay = given.value("weight_decay", o.weight_decay);
  o.nesterov = given.value("nesterov", o.nesterov);
  o.maximize = given.value("maximize", o.maximize);
  return o;
}

template <typename Optimizer, typename T>
void check_steps(const json& golden, const typename Optimizer::Options& options) {
  const std::size_t count = golden["values"].size();
  std::vector<T> values = numbers<T>(0, count);
  std::vector<T> gradients(count);
  Optimizer optimizer(std::vector<ddp::Parameter>{{"w", values.data(), gradients.data(), count}}, options);
  for (std::size_t step = 1; step <= golden["steps"].get<std::size_t>(); ++step) {
    write_numbers(step, gradients);
    optimizer.step();
  }
  check_near(values, golden["values"], "values");
  const ddp::OptimizerState state = optimizer.state_dict("");
  for (const auto& [name, expected] : golden["state"].items()) {
    std::vector<T> found(count);
    state.read("w." + name, found, {static_cast<std::int64_t>(count)});
    check_near(found, expected, name);
  }
  CHECK(state.tensors().size() == golden["state"].size() + 1);  // plus the step
}

template <typename Optimizer>
void check_steps(const json& golden, const typename Optimizer::Options& options) {
  if (golden["dtype"] == "float64") return check_steps<Optimizer, double>(golden, options);
  check_steps<Optimizer, float>(golden, options);
}

struct Model {
  std::vector<float> a = numbers<float>(0, 100), a_grad = std::vector<float>(100);
  std::vector<double> b = numbers<double>(7, 3), b_grad = std::vector<double>(3);
  std::vector<ddp::Parameter> parameters() {
    return {{"a", a.data(), a_grad.data(), a.size()}, {"b", b.data(), b_grad.data(), b.size()}};
  }
  void gradients(std::size_t step) {
    write_numbers(step, a_grad);
    write_numbers(step + 1000, b_grad);
  }
};

template <typename Function>
void check_refused(const Function& function, const std::string& words) {
  try {
    function();
    FAIL("was done: " << words);
  } catch (const ddp::Error& e) {
    CHECK(e.status() == ddp::Status::InvalidArgument);
    CHECK_THAT(e.what(), Contains(words));
  }
}

}  // namespace

TEST_CASE("optimizers: take the same steps as torch's", "[training][unit]") {
  const json golden = golden_optimizers()["optimizers"];
  REQUIRE(golden.size() == 11);
  for (const json& g : golden) {
    INFO(g["optimizer"] << " of " << g["dtype"] << " with " << g["options"]);
    if (g["optimizer"] == "AdamW") {
      check_steps<ddp::AdamW>(g, adam_options<ddp::AdamWOptions>(g["options"]));
    } else if (g["optimizer"] == "Adam") {
      check_steps<ddp::Adam>(g, adam_options<ddp::AdamOptions>(g["options"]));
    } else {
      check_steps<ddp::SGD>(g, sgd_options(g["options"]));
    }
  }
}

TEST_CASE("optimizers: compute the same bits on every vector unit, in place or into other memory", "[training][unit]") {
  using namespace ddp::training;
  for (const std::size_t count : {1U, 7U, 64U, 1003U}) {
    const std::vector<float> start = numbers<float>(0, count), grad = numbers<float>(3, count);
    const std::vector<float> mean = numbers<float>(5, count), squares(count, 0.7F);
    std::vector<std::vector<float>> results;
    for (const ddp::collectives::VectorUnit unit : ddp::collectives::vector_units()) {
      for (const bool in_place : {true, false}) {
        const ddp_adamw_options adamw = {0, 0.01, 0.9, 0.99, 1e-8, 0.1, 0, 3};
        const ddp_sgd_options sgd = {0, 0.01, 0.9, 0, 0.1, 1, 0, 3};
        std::vector<float> value = start, m = mean, s = squares, momentum = mean, updated(count);
        adamw_step(adamw,
                   {value.data(), grad.data(), m.data(), s.data(), in_place ? nullptr : updated.data(), count, 0},
                   unit);
        if (!in_place) {
          CHECK(value == start);
          value.swap(updated);
        }
        adam_step(adamw, {value.data(), grad.data(), m.data(), s.data(), in_place ? nullptr : updated.data(), count, 0},
                  unit);
        if (!in_place) value.swap(updated);
        sgd_step(sgd, {value.data(), grad.data(), momentum.data(), in_place ? nullptr : updated.data(), count, 0},
                 unit);
        std::vector<float> all = in_place ? value : updated;
        for (const auto* part : {&m, &s, &momentum}) all.insert(all.end(), part->begin(), part->end());
        results.push_back(all);
      }
    }
    for (const std::vector<float>& result : results) {
      CHECK(std::memcmp(result.data(), results[0].data(), result.size() * sizeof(float)) == 0);
    }
  }
}

TEST_CASE("optimizers: groups of parameters have their own options", "[training][unit]") {
  float decays = 1, stays = 1, zero = 0;
  ddp::AdamWOptions with, without;
  with.weight_decay = 0.5;
  without.weight_decay = 0;
  with.lr = without.lr = 0.1;
  ddp::AdamW optimizer({{{{"decays", &decays, &zero, 1}}, with}, {{{"stays", &stays, &zero, 1}}, without}});
  REQUIRE(optimizer.group_count() == 2);
  optimizer.step();
  CHECK(decays == 0.95F);
  CHECK(stays == 1);
  optimizer.set_lr(0);
  optimizer.options(0).weight_decay = 100;
  optimizer.step();
  CHECK(decays == 0.95F);
  CHECK(optimizer.steps_taken() == 2);
}

TEST_CASE("optimizers: what has moved is read and written in its new place, the rest in its old one",
          "[training][unit]") {
  float moves = 1, stays = 1, before = 100, here = 2, stays_grad = 4;
  ddp::SGDOptions options;
  options.lr = 0.25;
  ddp::SGD optimizer(std::vector<ddp::Parameter>{{"moves", &moves, &before, 1}, {"stays", &stays, &stays_grad, 1}},
                     options);
  optimizer.set_gradient(0, &here);
  optimizer.step();
  CHECK(moves == 0.5F);
  CHECK(stays == 0);
  CHECK(ddp::get_total_norm(optimizer.parameters(), 1) == 6);  // clipping these parameters sees it as well

  float there = 8;
  optimizer.set_value(0, &there);
  optimizer.step();
  CHECK(there == 7.5F);
  CHECK(moves == 0.5F);
  CHECK(stays == -1);
}

TEST_CASE("optimizers: continue from a saved state with the same bits, whichever optimizer saved it",
          "[training][unit]") {
  Model straight, interrupted;
  ddp::AdamW first(straight.parameters());
  for (std::size_t step = 1; step <= 10; ++step) {
    straight.gradients(step);
    first.step();
    if (step != 5) continue;
    interrupted.a = straight.a;
    interrupted.b = straight.b;
    const ddp::OptimizerState state = first.state_dict();
    ddp::AdamW second(interrupted.parameters());
    second.load_state_dict(state);
    CHECK(second.steps_taken() == 5);
    for (std::size_t later = 6; later <= 10; ++later) {
      interrupted.gradients(later);
      second.step();
    }
  }
  CHECK(straight.a == interrupted.a);
  CHECK(straight.b == interrupted.b);
}

TEST_CASE("optimizers: a state that lacks a tensor, or has another, is refused by name", "[training][unit]") {
  Model model;
  ddp::AdamW optimizer(model.parameters());
  const ddp::OptimizerState state = optimizer.state_dict("other.");
  CHECK_THROWS_WITH(optimizer.load_state_dict(state), Contains("no tensor optimizer.a.exp_avg"));
  float value = 0, grad = 0;
  ddp::AdamW smaller(std::vector<ddp::Parameter>{{"a", &value, &grad, 1}});
  CHECK_THROWS_WITH(smaller.load_state_dict(state, "other."), Contains("other.a.exp_avg of another type or shape"));
}

TEST_CASE("optimizers: arguments that cannot be stepped are refused, with advice", "[training][unit]") {
  float value = 0, grad = 0;
  const auto parameters = [&](auto change) {
    std::vector<ddp::Parameter> list = {{"weight", &value, &grad, 1}};
    change(list[0]);
    return list;
  };
  check_refused([&] { ddp::AdamW(parameters([](ddp::Parameter& p) { p.dtype = ddp::DType::BFloat16; })); },
                "AdamW: parameter weight is not float32 or float64: give the parameters of ddp::MasterWeights");
  check_refused([&] { ddp::SGD(parameters([](ddp::Parameter& p) { p.grad = nullptr; })); },
                "SGD: parameter weight has no gradient: give DistributedDataParallel::gradient(i)");
  check_refused(
      [&] { ddp::AdamW(parameters([](ddp::Parameter& p) { p.device.kind = ddp::DeviceKind::Cuda; })); },
      "AdamW: parameter weight is not in CPU memory: libtorch's optimizers step tensors on a GPU (ddp/libtorch.hpp)");
  ddp::SGD sgd(parameters([](ddp::Parameter&) {}));
  sgd.options().momentum = 0.9;
  check_refused([&] { sgd.step(); }, "SGD with momentum: an array is null");
  sgd.options().momentum = 0;
  sgd.options().nesterov = true;
  check_refused([&] { sgd.step(); }, "Nesterov momentum needs a momentum");

  ddp_adamw_options numbers = {0, 1e-3, 0.9, 0.999, 1e-8, 0, 0, 0};
  const ddp_adamw_arrays arrays = {&value, &grad, &value, &value, nullptr, 1, DDP_FLOAT32};
  CHECK(ddp_adamw_step(&numbers, &arrays) == DDP_INVALID_ARGUMENT);
  CHECK_THAT(ddp_error_last(), Contains("step 0: steps are counted from 1"));
}
