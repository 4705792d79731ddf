// SPDX-License-Identifier: BSD-3-Clause
// Which parameters take part in a step, how buckets are rebuilt, buffers, and failures in the
// middle of a step.
#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/runtime/training/ddp/ddp_scenarios.hpp"

namespace ddp::test {
namespace {

using Order = std::vector<std::size_t>;
using Buckets = std::vector<std::vector<std::size_t>>;

// Buckets of two parameters with ten floats each.
DistributedDataParallelOptions two_in_a_bucket() {
  DistributedDataParallelOptions options;
  options.first_bucket_bytes = options.bucket_bytes = 80;
  return options;
}

// Returns the mean over the ranks of (rank + 1) * factor.
float mean_of(const Session& session, float factor) {
  return factor * static_cast<float>(session.world_size() + 1) / 2;
}

// Each rank marks gradients in its own order, rank 0 in `first`. Every gradient is (rank + 1) *
// step * 2^i.
void rebuild(Session& session) {
  const auto rank = static_cast<std::size_t>(session.rank());
  const Order first = {1, 3, 0, 4, 2};
  for (const bool with_hook : {true, false}) {
    Tensors t({10, 10, 10, 10, 10});
    DistributedDataParallel model(session.world(), t.parameters(), two_in_a_bucket());
    const auto hook = std::make_shared<AveragingHook>(session.world());
    if (with_hook) model.register_comm_hook(hook);
    for (int step = 1; step <= 3; ++step) {
      Order order = first;
      std::rotate(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(rank % 5), order.end());
      for (const std::size_t i : order) {
        t.fill(i, static_cast<float>((session.rank() + 1) * step * (1 << i)));
        model.mark_ready(i);
      }
      model.synchronize();
      for (std::size_t i = 0; i < 5; ++i) {
        expect(t.grad_is(i, mean_of(session, static_cast<float>(step * (1 << i)))), "gradients are averages");
      }
      const Buckets before = {{4, 3}, {2, 1}, {0}};
      const Buckets after = {{1, 3}, {0, 4}, {2}};
      if (with_hook) expect(hook->seen() == (step == 1 ? before : after), "buckets are in rank 0's order after a step");
      if (with_hook) expect(hook->was_last(), "the last bucket says so");
    }
    expect(model.bucket_count() == 3, "three buckets");
  }
}

// A backward that does not tell when each gradient is done marks all of them at its end.
void all_at_once(Session& session) {
  Tensors t({10, 10, 10, 10, 10});
  DistributedDataParallel model(session.world(), t.parameters(), two_in_a_bucket());
  for (int step = 1; step <= 3; ++step) {
    for (std::size_t i = 0; i < 5; ++i) t.fill(i, static_cast<float>((session.rank() + 1) * step * (1 << i)));
    model.mark_all_ready();
    model.synchronize();
    for (std::size_t i = 0; i < 5; ++i) {
      expect(t.grad_is(i, mean_of(session, static_cast<float>(step * (1 << i)))), "gradients are averages");
    }
  }
}

// With gradient_as_bucket_view gradients lie in the buckets, and move once.
void bucket_view(Session& session) {
  Tensors t({10, 10, 10, 10, 10});
  DistributedDataParallelOptions options = two_in_a_bucket();
  options.gradient_as_bucket_view = true;
  DistributedDataParallel model(session.world(), t.parameters(false), options);
  const auto where = [&] {
    std::vector<float*> pointers;
    for (std::size_t i = 0; i < 5; ++i) pointers.push_back(model.gradient(i));
    return pointers;
  };
  std::vector<float*> before = where();
  for (int step = 1; step <= 3; ++step) {
    for (const std::size_t i : {1U, 3U, 0U, 4U, 2U}) {
      std::fill_n(model.gradient(i), 10, static_cast<float>((session.rank() + 1) * step) * static_cast<float>(i + 1));
      model.mark_ready(i);
    }
    model.synchronize();
    const std::vector<float*> now = where();
    expect((now == before) == (step > 1), "gradients move in the first step and never again");
    before = now;
    for (std::size_t i = 0; i < 5; ++i) {
      const float mean = mean_of(session, static_cast<float>(step) * static_cast<float>(i + 1));
      expect(std::all_of(now[i], now[i] + 10, [&](float g) { return g == mean; }), "their values move along");
    }
  }
}

// Without gradient_as_bucket_view a gradient in a bucket must not move. One such rank is enough for
// all ranks to leave their buckets alone, and so is a set of gradients that may differ from step to
// step.
void buckets_that_stay(Session& session, bool find_unused) {
  Tensors t({10, 10, 10, 10});
  const bool own = session.rank() != 0 || find_unused;
  DistributedDataParallelOptions options = two_in_a_bucket();
  options.find_unused_parameters = find_unused;
  DistributedDataParallel model(session.world(), t.parameters(own), options);
  const auto hook = std::make_shared<AveragingHook>(session.world());
  model.register_comm_hook(hook);
  float* const before = model.gradient(2);
  for (int step = 0; step < 2; ++step) {
    for (const std::size_t i : {1U, 3U, 0U, 2U}) {
      std::fill_n(model.gradient(i), 10, 1.0F);
      model.mark_ready(i);
    }
    model.synchronize();
  }
  expect(model.gradient(2) == before, "a gradient stays where it is");
  expect(hook->seen() == Buckets{{3, 2}, {1, 0}}, "nothing is rebuilt");
}

// All ranks use p0 and p3, only rank 0 uses p1, no rank uses p2. In step 2, p2 is marked unused
// before p3 is marked ready.
void unused(Session& session, bool own_gradients) {
  const auto rank = session.rank();
  const auto n = static_cast<float>(session.world_size());
  Tensors t({10, 10, 10, 10});
  DistributedDataParallelOptions options = two_in_a_bucket();
  options.find_unused_parameters = true;
  DistributedDataParallel model(session.world(), t.parameters(own_gradients), options);
  const auto is = [&](std::size_t i, float value) {
    return std::all_of(model.gradient(i), model.gradient(i) + 10, [&](float g) { return g == value; });
  };
  for (int step = 1; step <= 3; ++step) {
    const auto mine = static_cast<float>((rank + 1) * step);
    std::fill_n(model.gradient(0), 10, mine);
    std::fill_n(model.gradient(1), 10, rank == 0 ? n * 8 : 0.0F);
    std::fill_n(model.gradient(2), 10, 7.0F + mine);
    std::fill_n(model.gradient(3), 10, mine);
    if (step == 2) model.mark_unused(2);
    model.mark_ready(3);
    if (rank == 0) model.mark_ready(1);
    model.mark_ready(0);
    model.synchronize();
    expect(is(0, mean_of(session, static_cast<float>(step))), "p0's is the average");
    expect(is(1, 8), "p1's is the average of one gradient and zeros");
    expect(is(2, 7.0F + mine), "p2's gradient stays as it was on every rank");
    expect(is(3, mean_of(session, static_cast<float>(step))), "p3's is the average");
    expect(model.was_used(1) && !model.was_used(2) && model.was_used(3), "was_used() reports which one no rank used");
  }
  // A parameter used only under no_sync: what has accumulated is averaged in the next step.
  std::fill_n(model.gradient(2), 10, 0.0F);
  {
    const auto local = model.no_sync();
    std::fill_n(model.gradient(2), 10, static_cast<float>(rank + 1));
    model.mark_ready(2);
    model.synchronize();
  }
  model.mark_ready(0);
  model.synchronize();
  expect(is(2, mean_of(session, 1)), "what was used under no_sync counts");
  std::fill_n(model.gradient(2), 10, static_cast<float>(rank));
  model.mark_ready(0);
  model.synchronize();
  expect(is(2, static_cast<float>(rank)), "once");
}

// Nothing is zeroed between steps, each of which synchronizes: gradients add up, on ranks that do not use a parameter
// too. All ranks use p0, only rank 0 uses p1, no rank uses p2. Source of the values: torch 2.15.
void accumulated(Session& session, const DistributedDataParallelOptions& options, bool own_gradients, bool says_unused,
                 bool with_hook) {
  const auto rank = static_cast<float>(session.rank());
  const auto n = static_cast<float>(session.world_size());
  Tensors t({10, 10, 10});
  DistributedDataParallel model(session.world(), t.parameters(own_gradients), options);
  if (with_hook) model.register_comm_hook(std::make_shared<AveragingHook>(session.world()));
  const auto add = [&](std::size_t i, float value) {
    float* const gradient = model.gradient(i);
    for (std::size_t k = 0; k < 10; ++k) gradient[k] += value;
  };
  const auto is = [&](std::size_t i, float value) {
    return std::all_of(model.gradient(i), model.gradient(i) + 10, [&](float g) { return g == value; });
  };
  add(2, 5 + rank);
  for (int step = 1; step <= 4; ++step) {
    if (says_unused && session.rank() != 0) model.mark_unused(1);
    add(0, 1 + rank);
    model.mark_ready(0);
    if (session.rank() == 0) {
      add(1, 4 * n);
      model.mark_ready(1);
    }
    model.synchronize();
    expect(is(0, mean_of(session, static_cast<float>(step))), "p0's gradients add up");
    expect(is(1, static_cast<float>(4 * step)), "p1's add up, also on ranks that do not use it");
    expect(is(2, 5 + rank), "p2's gradient stays as it was");
  }
}

void accumulated_in_every_way(Session& session) {
  for (const bool with_hook : {false, true}) {
    for (const bool says_unused : {false, true}) {
      DistributedDataParallelOptions options = two_in_a_bucket();
      options.find_unused_parameters = true;
      for (const bool own : {true, false}) accumulated(session, options, own, says_unused, with_hook);
      options.gradient_as_bucket_view = true;
      accumulated(session, options, false, says_unused, with_hook);
    }
    DistributedDataParallelOptions options = two_in_a_bucket();
    options.static_graph = true;
    for (const bool own : {true, false}) accumulated(session, options, own, false, with_hook);
    options.gradient_as_bucket_view = true;
    accumulated(session, options, false, false, with_hook);
  }
}

// p0 is used twice per step, p1 never, p2 on rank 0 only.
void static_graph(Session& session, bool bucket_view) {
  const auto rank = session.rank();
  const auto n = static_cast<float>(session.world_size());
  Tensors t({10, 10, 10, 10});
  DistributedDataParallelOptions options = two_in_a_bucket();
  options.static_graph = true;
  options.gradient_as_bucket_view = bucket_view;
  DistributedDataParallel model(session.world(), t.parameters(!bucket_view), options);
  const auto is = [&](std::size_t i, float value) {
    return std::all_of(model.gradient(i), model.gradient(i) + 10, [&](float g) { return g == value; });
  };
  for (int step = 1; step <= 3; ++step) {
    const auto mine = static_cast<float>((rank + 1) * step);
    std::fill_n(model.gradient(1), 10, 5.0F + mine);
    std::fill_n(model.gradient(2), 10, rank == 0 ? n * 8 : 0.0F);
    std::fill_n(model.gradient(0), 10, mine);
    model.mark_ready(0);
    std::fill_n(model.gradient(0), 10, mine * 2);  // the second use adds to the gradient
    model.mark_ready(0);
    if (rank == 0) model.mark_ready(2);
    std::fill_n(model.gradient(3), 10, mine);
    model.mark_ready(3);
    model.synchronize();
    expect(is(0, mean_of(session, static_cast<float>(2 * step))), "p0's is the average after its last use");
    expect(is(1, 5.0F + mine), "p1's stays as it was");
    expect(is(2, 8), "p2's is the average of one gradient and zeros");
    expect(is(3, mean_of(session, static_cast<float>(step))), "p3's is the average");
  }
  model.mark_ready(0);
  model.mark_ready(3);
  if (rank == 0) model.mark_ready(2);
  report_failure("unlike the first", [&] { model.synchronize(); });
  report_failure("again", [&] { model.mark_ready(0); });
}

void buffers(Session& session) {
  const auto rank = session.rank();
  float w = 1;
  float g = 0;
  for (const bool broadcast : {true, false}) {
    std::vector<double> mean = {10.0 + rank, 20.0 + rank};
    std::vector<std::int64_t> steps = {100 + rank};
    std::vector<std::uint8_t> large(3 << 20, static_cast<std::uint8_t>(rank + 1));
    DistributedDataParallelOptions options;
    options.buffers = {{"mean", mean.data(), 2}, {"steps", steps.data(), 1}, {"large", large.data(), large.size()}};
    options.broadcast_buffers = broadcast;
    DistributedDataParallel model(session.world(), {{"w", &w, &g, 1}}, options);
    expect(mean == std::vector<double>{10, 20} && steps[0] == 100 && large.back() == 1, "rank 0's at the beginning");
    const auto forward = [&](bool is_rank_0s) {
      mean[0] = 30 + rank;
      steps[0] = 200 + rank;
      model.before_forward();
      const int expected = is_rank_0s ? 0 : rank;
      expect(mean[0] == 30 + expected && steps[0] == 200 + expected, "buffers before a forward");
    };
    const auto backward = [&] {
      model.mark_ready(0);
      model.synchronize();
    };
    for (int step = 0; step < 2; ++step) {
      forward(broadcast);
      backward();
    }
    {
      const auto local = model.no_sync();
      forward(broadcast);  // the first forward after one that synchronizes
      backward();
      forward(false);
      backward();
    }
    forward(false);
    backward();
    forward(broadcast);
  }
}

// A hook that checks where the bucket says that parameters are.
class PlacesHook final : public CommHook {
 public:
  explicit PlacesHook(const Tensors& tensors) : tensors_(tensors) {}
  void start(const GradBucket& bucket) override {
    for (std::size_t k = 0; k < bucket.size(); ++k) {
      expect(bucket.c().slices[k].value == tensors_.values[bucket.parameter(k)].data(), "a hook gets the new place");
    }
  }
  bool advance(const GradBucket& /*bucket*/) override { return false; }

 private:
  const Tensors& tensors_;
};

void refuses_to_move_now(DistributedDataParallel& model, std::vector<float>& values) {
  try {
    model.set_value(1, values.data());
    expect(false, "moved in the middle of a step");
  } catch (const Error& error) {
    expect(std::string(error.what()).find("parameter 1 (p1) cannot move in the middle of a step") == 0, error.what());
  }
}

void refuses_to_move(Session& session) {
  Tensors in_bucket({10});
  DistributedDataParallel view(session.world(), in_bucket.parameters(false));
  report_failure("gradient in a bucket", [&] { view.set_gradient(0, in_bucket.grads[0].data()); });
  report_failure("no such buffer", [&] { view.set_buffer(0, in_bucket.grads[0].data()); });
  report_failure("null", [&] { view.set_value(0, nullptr); });
}

// All memory is somewhere else after each step. What was there is filled with other numbers.
void moved(Session& session) {
  const int rank = session.rank();
  const int n = session.world_size();
  Tensors t({10, 10, 10});
  std::vector<double> mean = {0};
  DistributedDataParallelOptions options = two_in_a_bucket();
  options.buffers = {{"mean", mean.data(), 1}};
  DistributedDataParallel model(session.world(), t.parameters(), options);
  DistributedDataParallel hooked(session.world(), t.parameters());
  hooked.register_comm_hook(std::make_shared<PlacesHook>(t));
  Tensors before({10, 10, 10});
  std::vector<double> mean_before;
  const auto move = [&] {
    before = t;
    std::swap(before, t);
    mean_before = mean;
    mean_before.swap(mean);
    for (std::size_t i = 0; i < 3; ++i) {
      before.values[i].assign(10, -7);
      before.fill(i, -7);
      for (DistributedDataParallel* each : {&model, &hooked}) {
        each->set_value(i, t.values[i].data());
        each->set_gradient(i, t.grads[i].data());
      }
    }
    mean_before = {-7};
    model.set_buffer(0, mean.data());
  };
  model.join([&] {
    for (int step = 0; step <= rank; ++step) {
      mean[0] = 100 * step + rank;
      model.before_forward();
      expect(mean[0] == 100 * step + n - 1, "a buffer in its new place has the value of the highest rank");
      float sum = 0;
      for (int r = step; r < n; ++r) sum += static_cast<float>(r + 1);
      for (const std::size_t i : {2U, 0U, 1U}) {
        t.fill(i, static_cast<float>((rank + 1) * n));
        model.mark_ready(i);
      }
      if (step == 0) refuses_to_move_now(model, before.values[1]);
      model.synchronize();
      for (std::size_t i = 0; i < 3; ++i) expect(t.grad_is(i, sum), "averages are in the gradients' new places");
      move();
    }
    for (std::vector<float>& values : t.values) values.assign(10, static_cast<float>(rank));
  });
  const std::vector<float> last(10, static_cast<float>(n - 1));
  for (std::size_t i = 0; i < 3; ++i) {
    expect(t.values[i] == last, "the last rank's parameters are in their new places");
    expect(before.values[i] == std::vector<float>(10, -7) && before.grad_is(i, -7), "the old memory is left alone");
    hooked.mark_ready(i);
  }
  expect(mean_before[0] == -7, "the old buffer is left alone");
  hooked.synchronize();
  refuses_to_move(session);
}

// Averages of 16-bit gradients have the bits of an averaging all_reduce.
void half_precision(Session& session) {
  for (const DType dtype : {DType::Float16, DType::BFloat16}) {
    std::vector<std::uint16_t> values(1000, 0x3c00);
    std::vector<std::uint16_t> grads(1000);
    for (std::size_t k = 0; k < grads.size(); ++k) {
      grads[k] = static_cast<std::uint16_t>(0x3000 + 7 * k + 13 * static_cast<std::size_t>(session.rank()));
    }
    std::vector<std::uint16_t> expected = grads;
    session.world().all_reduce({expected.data(), expected.size(), dtype}, ReduceOp::Avg);
    Parameter parameter;
    parameter.value = values.data();
    parameter.grad = grads.data();
    parameter.count = values.size();
    parameter.dtype = dtype;
    DistributedDataParallel model(session.world(), {parameter});
    model.mark_ready(0);
    model.synchronize();
    expect(grads == expected, "an average that is rounded once");
  }
}

// Rank 1 stops in the middle of backward with a bucket in flight, and is killed there.
void die_in_backward(Session& session) {
  Tensors t({1 << 18, 1 << 18, 1 << 18});
  DistributedDataParallelOptions options;
  options.first_bucket_bytes = options.bucket_bytes = 1 << 20;
  DistributedDataParallel model(session.world(), t.parameters(), options);
  const auto backward = [&](std::size_t last) {
    for (std::size_t i = 3; i-- > last;) {
      t.fill(i, 1.0F + static_cast<float>(session.rank()));
      model.mark_ready(i);
    }
  };
  backward(0);
  model.synchronize();
  if (session.rank() == 1) {
    backward(2);
    say("in backward");
    session.store().wait({"never"}, std::chrono::hours(1));
  }
  backward(0);
  say("in backward");
  report_failure("synchronize", [&] { model.synchronize(); });
  for (std::size_t i = 0; i < 3; ++i) {
    expect(t.grad_is(i, 1.0F + static_cast<float>(session.rank())), "gradients are what they were");
  }
  report_failure("mark_ready", [&] { model.mark_ready(0); });
}

}  // namespace

Scenarios step_scenarios() {
  return {{"rebuild", rebuild},
          {"all at once", all_at_once},
          {"bucket view", bucket_view},
          {"buckets that stay", [](Session& s) { buckets_that_stay(s, false); }},
          {"buckets that stay, unused", [](Session& s) { buckets_that_stay(s, true); }},
          {"unused", [](Session& s) { unused(s, true); }},
          {"unused, in buckets", [](Session& s) { unused(s, false); }},
          {"unused, accumulated", accumulated_in_every_way},
          {"static graph", [](Session& s) { static_graph(s, false); }},
          {"static graph, bucket view", [](Session& s) { static_graph(s, true); }},
          {"buffers", buffers},
          {"moved", moved},
          {"half precision", half_precision},
          {"die in backward", die_in_backward}};
}

}  // namespace ddp::test
