// SPDX-License-Identifier: BSD-3-Clause
#include "ddp/lr_scheduler.hpp"

#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ddp/adam.hpp"
#include "ddp/sgd.hpp"
#include "tests/runtime/training/golden_numbers.hpp"
#include "tests/support/program_locale.hpp"

using Catch::Matchers::Contains;
using ddp::LRScheduler;
using ddp::Parameter;
using nlohmann::json;

namespace {

// An optimizer with two groups of parameters, as the golden file's.
template <typename Optimizer>
class TwoGroups {
 public:
  explicit TwoGroups(typename Optimizer::Options options = {}) : optimizer(groups(options)) {}

 private:
  std::vector<typename Optimizer::Group> groups(typename Optimizer::Options options) {
    auto second = options;
    options.lr = 0.1;
    second.lr = 0.03;
    return {{{{"a", &value_[0], &grad_[0], 1}}, options}, {{{"b", &value_[1], &grad_[1], 1}}, second}};
  }
  float value_[2] = {}, grad_[2] = {};

 public:
  Optimizer optimizer;
};

using TwoOfSGD = TwoGroups<ddp::SGD>;

void check_rates(const json& golden, const ddp::SGDOptions&, TwoOfSGD& model, const std::function<void()>& step) {
  for (std::size_t epoch = 0; epoch < golden.size(); ++epoch) {
    INFO("epoch " << epoch);
    for (std::size_t g = 0; g < 2; ++g) {
      CHECK(model.optimizer.options(g).lr == Approx(golden[epoch][0][g].get<double>()).epsilon(1e-13));
    }
    step();
  }
}

// Makes schedules of an optimizer and checks the rates that stepping them gives.
using Make = std::function<std::vector<std::unique_ptr<LRScheduler>>(ddp::SGD&)>;

template <typename Schedule, typename... Arguments>
void add(std::vector<std::unique_ptr<LRScheduler>>& to, ddp::SGD& optimizer, Arguments... arguments) {
  to.push_back(std::make_unique<Schedule>(optimizer, arguments...));
}

template <typename Schedule, typename... Arguments>
Make one(Arguments... arguments) {
  return [=](ddp::SGD& optimizer) {
    std::vector<std::unique_ptr<LRScheduler>> all;
    add<Schedule>(all, optimizer, arguments...);
    return all;
  };
}

void check(const char* name, const Make& make) {
  INFO(name);
  const json golden = ddp::test::golden_optimizers()["schedules"][name];
  REQUIRE(golden.size() > 10);
  TwoOfSGD model;
  const auto schedules = make(model.optimizer);
  check_rates(golden, {}, model, [&] {
    for (const auto& each : schedules) each->step();
  });
}

}  // namespace

TEST_CASE("lr_scheduler: rates are PyTorch's", "[training][unit]") {
  using Milestones = std::vector<std::int64_t>;
  check("step", one<ddp::StepLR>(7, 0.3));
  check("multi_step", one<ddp::MultiStepLR>(Milestones{3, 9, 9, 20}, 0.5));
  check("exponential", one<ddp::ExponentialLR>(0.93));
  check("linear", one<ddp::LinearLR>());
  check("linear_down", one<ddp::LinearLR>(0.9, 0.05, 13));
  check("cosine", one<ddp::CosineAnnealingLR>(11, 0.002));
  check("lambda", one<ddp::LambdaLR>([](std::int64_t epoch) { return 1 / (1 + static_cast<double>(epoch)); }));
}

TEST_CASE("lr_scheduler: several on one optimizer multiply, as PyTorch's do", "[training][unit]") {
  check("chained", [](ddp::SGD& optimizer) {
    std::vector<std::unique_ptr<LRScheduler>> all;
    add<ddp::LinearLR>(all, optimizer, 0.1, 1.0, 7);
    add<ddp::ExponentialLR>(all, optimizer, 0.9);
    return all;
  });
}

TEST_CASE("lr_scheduler: one follows the other as in PyTorch", "[training][unit]") {
  const json golden = ddp::test::golden_optimizers()["schedules"];
  {
    TwoOfSGD model;
    ddp::LinearLR linear(model.optimizer, 0.1, 1, 7);
    ddp::CosineAnnealingLR cosine(model.optimizer, 20, 0.001);
    ddp::SequentialLR schedule(model.optimizer, {&linear, &cosine}, {7});
    check_rates(golden["sequential"], {}, model, [&] { schedule.step(); });
  }
  TwoOfSGD model;
  ddp::LinearLR linear(model.optimizer, 0.1, 1, 7);
  ddp::StepLR step(model.optimizer, 2);
  ddp::CosineAnnealingLR cosine(model.optimizer, 20, 0.001);
  ddp::SequentialLR schedule(model.optimizer, {&linear, &step, &cosine}, {4, 11});
  check_rates(golden["sequential_of_three"], {}, model, [&] { schedule.step(); });
}

TEST_CASE("lr_scheduler: one cycle moves the rate and the momentum as PyTorch's does", "[training][unit]") {
  const json golden = ddp::test::golden_optimizers()["schedules"];
  ddp::SGDOptions sgd;
  sgd.momentum = 0.9;
  TwoOfSGD model(sgd);
  ddp::OneCycleLR schedule(model.optimizer, 0.5, 40);
  for (const json& g : golden["one_cycle"]) {
    CHECK(schedule.get_last_lr()[1] == Approx(g[0][1].get<double>()).epsilon(1e-13));
    CHECK(model.optimizer.options(0).momentum == Approx(g[1].get<double>()).epsilon(1e-13));
    if (schedule.last_epoch() < 40) schedule.step();
  }
  CHECK_THROWS_WITH(schedule.step(), "OneCycleLR: step 41 of a cycle of 40 steps");

  TwoGroups<ddp::Adam> adam;
  ddp::OneCycleOptions options;
  options.three_phase = options.linear = true;
  options.pct_start = 0.25;
  options.div_factor = 10;
  ddp::OneCycleLR three(adam.optimizer, 0.5, 33, options);
  for (const json& g : golden["one_cycle_adam"]) {
    CHECK(adam.optimizer.options(0).lr == Approx(g[0][0].get<double>()).epsilon(1e-13));
    CHECK(adam.optimizer.options(1).beta1 == Approx(g[1].get<double>()).epsilon(1e-13));
    if (three.last_epoch() < 33) three.step();
  }
}

TEST_CASE("lr_scheduler: goes on from its state with the same bits, also one that follows another",
          "[training][unit]") {
  TwoOfSGD straight, resumed;
  ddp::LinearLR linear(straight.optimizer, 0.1, 1, 7), linear_later(resumed.optimizer, 0.1, 1, 7);
  ddp::CosineAnnealingLR cosine(straight.optimizer, 20), cosine_later(resumed.optimizer, 20);
  ddp::SequentialLR schedule(straight.optimizer, {&linear, &cosine}, {7});
  ddp::SequentialLR later(resumed.optimizer, {&linear_later, &cosine_later}, {7});
  for (int epoch = 1; epoch <= 30; ++epoch) {
    schedule.step();
    later.load_state_dict(schedule.state_dict());
    CHECK(later.get_last_lr() == schedule.get_last_lr());
    CHECK(later.state_dict() == schedule.state_dict());
    if (epoch % 2 == 0) {
      later.step();
      schedule.step();
      CHECK(later.get_last_lr() == schedule.get_last_lr());
    }
  }
}

TEST_CASE("lr_scheduler: the state is the same text in every locale", "[training][unit]") {
  TwoOfSGD model;
  ddp::StepLR schedule(model.optimizer, 1);
  for (int epoch = 0; epoch < 1000; ++epoch) schedule.step();
  const std::string state = schedule.state_dict();
  CHECK_THAT(state, Contains("epoch 1000, base 0.10000000000000001 0.029999999999999999, lr "));
  const ddp::testing::ProgramLocale locale;
  CHECK(schedule.state_dict() == state);
  schedule.load_state_dict(state);
  CHECK(schedule.last_epoch() == 1000);
}

TEST_CASE("lr_scheduler: another text than a state is refused, and changes nothing", "[training][unit]") {
  TwoOfSGD model;
  ddp::StepLR schedule(model.optimizer, 1);
  for (const char* text : {"", "epoch", "epoch 1", "epoch 1, base 1 2, lr 1", "epoch 1, base 1, lr 1",
                           "epoch 1, base 1 2, lr 1 2 3", "epoch x, base 1 2, lr 1 2"}) {
    CHECK_THROWS_WITH(schedule.load_state_dict(text),
                      Contains("is no state of a learning-rate schedule with 2 groups"));
  }
  CHECK(schedule.last_epoch() == 0);
  CHECK(schedule.get_last_lr() == std::vector<double>{0.1, 0.03});
  ddp::SequentialLR sequential(model.optimizer, {&schedule}, {});
  CHECK_THROWS_WITH(sequential.load_state_dict(schedule.state_dict()),
                    Contains("is no state of 1 learning-rate schedule"));
}

TEST_CASE("lr_scheduler: numbers that cannot work are refused", "[training][unit]") {
  TwoOfSGD model;
  ddp::SGD& o = model.optimizer;
  CHECK_THROWS_WITH(ddp::StepLR(o, 0), "StepLR: step_size must be at least 1");
  CHECK_THROWS_WITH(ddp::CosineAnnealingLR(o, 0), "CosineAnnealingLR: t_max must be at least 1");
  CHECK_THROWS_WITH(ddp::LinearLR(o, 0), Contains("LinearLR: start_factor must be above 0"));
  CHECK_THROWS_WITH(ddp::LinearLR(o, 0.5, 2), Contains("end_factor from 0 to 1"));
  CHECK_THROWS_WITH(ddp::LambdaLR(o, std::vector<ddp::LambdaLR::Factor>(3)),
                    "LambdaLR: 3 functions for 2 groups of parameters");
  CHECK_THROWS_WITH(ddp::OneCycleLR(o, 1, 10), Contains("the optimizer has no momentum"));
  ddp::StepLR step(o, 1);
  CHECK_THROWS_WITH(ddp::SequentialLR(o, {&step}, {3}), Contains("one milestone fewer than schedules"));
}
