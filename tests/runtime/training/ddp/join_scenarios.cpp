// SPDX-License-Identifier: BSD-3-Clause
// Ranks with different amounts of input.
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/runtime/training/ddp/ddp_scenarios.hpp"

namespace ddp::test {
namespace {

constexpr std::size_t kParameters = 4;

int steps_of(int rank) { return 2 * rank + 1; }

// Gradient of parameter i on rank `rank` in step `step`: whole numbers, so that sums are exact.
float gradient(int rank, int step, std::size_t i) { return static_cast<float>((rank + 1) * (step + 1) * (1 << i)); }

struct Variant {
  std::string name;
  DistributedDataParallelOptions options{};
  bool hook = false;
};

std::vector<Variant> variants() {
  std::vector<Variant> list = {{"plain"}, {"unused"}, {"static"}, {"hook"}};
  list[1].options.find_unused_parameters = true;
  list[2].options.static_graph = true;
  list[3].hook = true;
  for (Variant& v : list) v.options.first_bucket_bytes = v.options.bucket_bytes = 80;
  return list;
}

// Rank r has 2r + 1 batches. Each step's gradients are the sum over the ranks with input, over the
// divisor.
void uneven(Session& session, bool by_initial_size) {
  const int rank = session.rank();
  const int n = session.world_size();
  for (Variant& variant : variants()) {
    Tensors t({10, 10, 10, 10});
    std::vector<double> running = {0, 0};
    variant.options.buffers = {{"running", running.data(), 2}};
    DistributedDataParallel model(session.world(), t.parameters(), variant.options);
    if (variant.hook) model.register_comm_hook(std::make_shared<AveragingHook>(session.world()));
    // Hooks divide on their own, by the group's size.
    const bool by_all = by_initial_size || variant.hook;
    Tensors at_the_end = t;
    const auto loop = [&] {
      for (int step = 0; step < steps_of(rank); ++step) {
        running = {100.0 * step + rank, 1};
        model.before_forward();
        expect(running[0] == 100.0 * step + n - 1, variant.name + ": buffers are those of the highest rank with input");
        float sum = 0;
        int active = 0;
        for (int r = 0; r < n; ++r) {
          if (step >= steps_of(r)) continue;
          sum += gradient(r, step, 0);
          ++active;
        }
        for (std::size_t i = kParameters; i-- > 0;) {
          t.fill(i, gradient(rank, step, i));
          model.mark_ready(i);
        }
        model.synchronize();
        const auto divisor = static_cast<float>(by_all ? n : active);
        for (std::size_t i = 0; i < kParameters; ++i) {
          const float expected = sum * static_cast<float>(1 << i) / divisor;
          expect(
              std::abs(t.grads[i][9] - expected) <= 1e-6F * expected,
              variant.name + ": the average of step " + std::to_string(step) + " is " + std::to_string(t.grads[i][9]));
          for (float& w : t.values[i]) w -= t.grads[i][0];
        }
      }
      at_the_end = t;
    };
    JoinOptions options;
    options.divide_by_initial_world_size = by_initial_size;
    model.join(loop, options);
    // Only the last rank took part in all steps.
    for (std::size_t i = 0; i < kParameters; ++i) {
      std::vector<float> last = at_the_end.values[i];
      session.world().broadcast(last, n - 1);
      expect(t.values[i] == last, variant.name + ": in the end all have the last one's parameters");
      expect(t.grads[i] == at_the_end.grads[i], variant.name + ": the others' steps do not touch a gradient");
    }
    expect(running[0] == 100.0 * (steps_of(n - 1) - 1) + n - 1, variant.name + ": and its buffers");
    // A step without join works as before.
    for (std::size_t i = 0; i < kParameters; ++i) {
      t.fill(i, gradient(rank, 0, i));
      model.mark_ready(i);
    }
    model.synchronize();
    expect(t.grad_is(0, gradient(0, 0, 0) * static_cast<float>(n + 1) / 2), variant.name + ": a step after the join");
  }
}

// Two local steps, then one that synchronizes; rank r repeats this r + 1 times.
void accumulation(Session& session) {
  const int rank = session.rank();
  const int n = session.world_size();
  float w = 0;
  float g = 0;
  double running = 0;
  DistributedDataParallelOptions options;
  options.buffers = {{"running", &running, 1}};
  DistributedDataParallel model(session.world(), {{"w", &w, &g, 1}}, options);
  model.join([&] {
    for (int step = 0; step < 3 * (rank + 1); ++step) {
      const auto backward = [&] {
        model.before_forward();
        g += static_cast<float>(rank + 1);
        model.mark_ready(0);
        model.synchronize();
      };
      if (step % 3 < 2) {
        const auto local = model.no_sync();
        backward();
        continue;
      }
      backward();
      float sum = 0;
      for (int r = step / 3; r < n; ++r) sum += static_cast<float>(3 * (r + 1));
      expect(std::abs(g - sum / static_cast<float>(n)) <= 1e-6F * sum, "what has accumulated is averaged");
      g = 0;
    }
  });
}

void throwing(Session& session) {
  const int rank = session.rank();
  float w = 0;
  float g = 0;
  DistributedDataParallel model(session.world(), {{"w", &w, &g, 1}});
  JoinOptions options;
  options.throw_on_early_termination = true;
  int done = 0;
  const auto loop = [&](int steps) {
    return [&, steps] {
      for (int step = 0; step < steps; ++step) {
        model.before_forward();
        model.mark_ready(0);
        model.synchronize();
        ++done;
      }
    };
  };
  report_failure("join", [&] { model.join(loop(rank == 1 ? 3 : 5), options); });
  expect(done == 3, "all have taken the steps for which every rank had input");
  model.mark_ready(0);
  model.synchronize();  // all ranks stopped at the same place, so the reducer remains usable
  model.join(loop(2), options);
  expect(done == 5, "even input is no early termination");
}

void join_mistakes(Session& session) {
  float w = 0;
  float g = 0;
  DistributedDataParallel model(session.world(), {{"w", &w, &g, 1}});
  expect(ddp_reducer_join_end(model.c()) == DDP_INVALID_ARGUMENT, "an end without a beginning");
  expect(ddp_reducer_join_begin(model.c(), nullptr) == DDP_OK, "C, with defaults");
  expect(ddp_reducer_join_begin(model.c(), nullptr) == DDP_INVALID_ARGUMENT, "a beginning in a join");
  expect(ddp_reducer_join_end(model.c()) == DDP_OK, "without any step");
  try {
    model.join([] { throw 7; });
    expect(false, "an exception comes out of join");
  } catch (int seven) {
    expect(seven == 7, "as it was");
  }
  model.mark_ready(0);
  model.synchronize();
  report_failure("forgotten", [&] { model.join([&] { model.mark_ready(0); }); });
  session.world().barrier();
}

}  // namespace

Scenarios join_scenarios() {
  return {{"uneven, all ranks", [](Session& s) { uneven(s, true); }},
          {"uneven, active ranks", [](Session& s) { uneven(s, false); }},
          {"uneven accumulation", accumulation},
          {"early termination", throwing},
          {"join mistakes", join_mistakes}};
}

}  // namespace ddp::test
