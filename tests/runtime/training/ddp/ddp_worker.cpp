// SPDX-License-Identifier: BSD-3-Clause
// One rank of a training job, started by the DDP tests; argv[1] names the scenario. For each check
// that fails it prints a line "wrong: ..." and exits with 1. Other output is for the test to read.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ddp/ddp.hpp"
#include "tests/runtime/job/scenario.hpp"
#include "tests/runtime/training/ddp/ddp_scenarios.hpp"

namespace {

using ddp::test::expect;
using ddp::test::report_failure;
using ddp::test::say;

// y = w * x with x = 1, target 1, loss (w*x - 1)^2, plain SGD with rate 1.
void table_of_two_ranks(ddp::Session& session, bool own_gradient) {
  float w = session.rank() == 0 ? 2.0F : 200.0F;
  float own = 0;
  ddp::DistributedDataParallel model(session.world(), {{"w", &w, own_gradient ? &own : nullptr, 1}});
  expect(w == 2.0F, "construction copies rank 0's value");
  const float expected_gradient[] = {2.0F, -2.0F};
  const float expected_w[] = {0.0F, 2.0F};
  for (int step = 0; step < 2; ++step) {
    float& g = *model.gradient(0);
    g = 2 * (w - 1);
    model.mark_ready(0);
    model.synchronize();
    expect(g == expected_gradient[step], "gradient of step " + std::to_string(step + 1));
    w -= g;
    expect(w == expected_w[step], "w after step " + std::to_string(step + 1));
  }
}

// Several buckets, both kinds of gradient memory, both types, marked in a different order on each
// rank.
void buckets(ddp::Session& session) {
  const ddp::ProcessGroup group = session.world();
  const int n = session.world_size();
  std::vector<float> a(1000), a_grad(1000), b(10);
  std::vector<double> c(300), c_grad(300);
  std::vector<float> d(2'000'000, static_cast<float>(session.rank()));
  ddp::DistributedDataParallelOptions options;
  options.first_bucket_bytes = 100;
  options.bucket_bytes = 2000;
  ddp::DistributedDataParallel model(group,
                                     {{"a", a.data(), a_grad.data(), a.size()},
                                      {"b", b.data(), static_cast<float*>(nullptr), b.size()},
                                      {"c", c.data(), c_grad.data(), c.size()},
                                      {"d", d.data(), static_cast<float*>(nullptr), d.size()}},
                                     options);
  expect(model.bucket_count() == 3, "d and c fill a bucket each, b and a share one");
  expect(d.front() == 0.0F && d.back() == 0.0F, "a large parameter is rank 0's");
  for (int step = 1; step <= 3; ++step) {
    const auto mine = static_cast<float>(step * (session.rank() + 1));
    std::fill(a_grad.begin(), a_grad.end(), mine);
    std::fill_n(model.gradient(1), b.size(), mine * 2);
    std::fill(c_grad.begin(), c_grad.end(), mine * 4);
    std::fill_n(model.gradient(3), d.size(), mine * 8);
    for (std::size_t k = 0; k < 4; ++k) model.mark_ready((k + static_cast<std::size_t>(session.rank() + step)) % 4);
    model.synchronize();
    const float mean = static_cast<float>(step * (n + 1)) / 2;  // exact: n is a power of two
    expect(a_grad == std::vector<float>(a.size(), mean), "a's gradient is the average");
    expect(std::all_of(model.gradient(1), model.gradient(1) + b.size(), [&](float g) { return g == mean * 2; }), "b's");
    expect(c_grad == std::vector<double>(c.size(), mean * 4), "c's");
    expect(std::all_of(model.gradient(3), model.gradient(3) + d.size(), [&](float g) { return g == mean * 8; }), "d's");
  }
}

void no_sync(ddp::Session& session) {
  float w[2] = {1, 1};
  float g[2] = {0, 0};
  ddp::DistributedDataParallel model(session.world(), {{"w0", w, g, 1}, {"w1", w + 1, g + 1, 1}});
  const auto rank = static_cast<float>(session.rank());
  const auto backward = [&] {
    for (std::size_t i = 2; i-- > 0;) {
      g[i] += rank + 1;
      model.mark_ready(i);
    }
    model.synchronize();
  };
  {
    const auto local = model.no_sync();
    backward();
    backward();
    expect(g[0] == 2 * (rank + 1), "under no_sync gradients stay local");
  }
  backward();
  const float mean = static_cast<float>(session.world_size() + 1) / 2;
  expect(g[0] == 3 * mean && g[1] == 3 * mean, "what has accumulated is averaged afterwards");
  {
    const auto outer = model.no_sync();
    {
      const auto inner = model.no_sync();
      backward();
    }
    backward();
    expect(g[0] == 3 * mean + 2 * (rank + 1), "gradients stay local until the outer no_sync ends");
  }
  backward();
  expect(g[0] == 6 * mean && g[1] == 6 * mean, "and are averaged afterwards");
}

void marking_mistakes(ddp::Session& session) {
  float w[3] = {0, 0, 0};
  float g[3] = {0, 0, 0};
  const std::vector<ddp::Parameter> parameters = {
      {"first", w, g, 1}, {"second", w + 1, g + 1, 1}, {"third", w + 2, g + 2, 1}};
  {
    ddp::DistributedDataParallel model(session.world(), parameters);
    model.mark_ready(1);
    report_failure("never", [&] { model.synchronize(); });
    report_failure("again", [&] { model.mark_ready(0); });
  }
  {
    ddp::DistributedDataParallel model(session.world(), parameters);
    model.mark_ready(2);
    report_failure("twice", [&] { model.mark_ready(2); });
  }
  session.world().barrier();
}

// Rank 1 builds a different model, in several ways one after the other.
void model_mismatch(ddp::Session& session) {
  const bool other = session.rank() == 1;
  std::vector<float> w(12);
  std::vector<double> d(6);
  std::vector<std::int32_t> integers(3);
  const auto build = [&](const std::vector<ddp::Parameter>& parameters,
                         const ddp::DistributedDataParallelOptions& options = {}) {
    ddp::DistributedDataParallel model(session.world(), parameters, options);
  };
  const ddp::Parameter fc1("fc1", w.data(), w.data(), 3);
  report_failure("sizes", [&] { build({fc1, {"fc2", w.data(), w.data(), other ? 12U : 10U}}); });
  report_failure("shapes", [&] {
    const std::vector<std::int64_t> shape = other ? std::vector<std::int64_t>{4, 3} : std::vector<std::int64_t>{3, 4};
    build({fc1, {"fc2", w.data(), w.data(), 12, shape}});
  });
  report_failure("dimensions", [&] {
    const std::vector<std::int64_t> shape = other ? std::vector<std::int64_t>{2, 2, 3} : std::vector<std::int64_t>{12};
    build({{"fc2", w.data(), w.data(), 12, shape}, fc1});
  });
  report_failure("types", [&] {
    build({other ? ddp::Parameter("fc1", d.data(), d.data(), 6) : ddp::Parameter("fc1", w.data(), w.data(), 6)});
  });
  report_failure("count", [&] {
    build(other ? std::vector<ddp::Parameter>{fc1, {"fc2", w.data(), w.data(), 3}} : std::vector<ddp::Parameter>{fc1});
  });
  report_failure("buffers", [&] {
    ddp::DistributedDataParallelOptions options;
    options.buffers = {{"mean", d.data(), 2}, {"steps", integers.data(), other ? 2U : 3U}};
    build({fc1}, options);
  });
  report_failure("options", [&] {
    ddp::DistributedDataParallelOptions options;
    options.static_graph = other;
    build({fc1}, options);
  });
  report_failure("limits", [&] {
    ddp::DistributedDataParallelOptions options;
    options.bucket_bytes = other ? 100 : 200;
    build({fc1}, options);
  });
  // Mistakes that one rank can detect alone, and that every rank reports.
  report_failure("one rank's type",
                 [&] { build({other ? ddp::Parameter("steps", integers.data(), integers.data(), 3) : fc1}); });
  report_failure("type", [&] { build({{"steps", integers.data(), integers.data(), 3}}); });
  report_failure("product", [&] { build({{"fc2", w.data(), w.data(), 12, {2, 5}}}); });
  report_failure("negative", [&] { build({{"fc2", w.data(), w.data(), 12, {-3, -4}}}); });
  report_failure("view", [&] {
    ddp::DistributedDataParallelOptions options;
    options.gradient_as_bucket_view = true;
    build({fc1}, options);
  });
  session.world().barrier();  // the group is still usable
}

// The reducer is destroyed while rank 1 has not joined the reduction. No rank may hang.
void destroy_in_step(ddp::Session& session) {
  std::vector<float> w(100), g(100);
  {
    ddp::DistributedDataParallel model(session.world(), {{"w", w.data(), g.data(), w.size()}});
    session.world().barrier();
    if (session.rank() == 0) model.mark_ready(0);
  }
  report_failure("barrier", [&] { session.world().barrier(); });
}

}  // namespace

int main(int argc, char** argv) {
  const std::string scenario = argc > 1 ? argv[1] : "";
  ddp::test::Scenarios scenarios = {
      {"table", [](ddp::Session& s) { table_of_two_ranks(s, true); }},
      {"table, library memory", [](ddp::Session& s) { table_of_two_ranks(s, false); }},
      {"buckets", buckets},
      {"no_sync", no_sync},
      {"marking mistakes", marking_mistakes},
      {"model mismatch", model_mismatch},
      {"destroy in step", destroy_in_step},
  };
  scenarios.merge(ddp::test::step_scenarios());
  scenarios.merge(ddp::test::hook_scenarios());
  scenarios.merge(ddp::test::compression_scenarios());
  scenarios.merge(ddp::test::join_scenarios());
  scenarios.merge(ddp::test::mlp_scenarios());
  const auto chosen = scenarios.find(scenario);
  if (chosen == scenarios.end()) {
    say("no scenario \"" + scenario + "\"");
    return 2;
  }
  try {
    ddp::Session session = ddp::init_process_group();
    chosen->second(session);
  } catch (const ddp::Error& e) {
    say("error: " + std::to_string(static_cast<int>(e.status())) + " " + e.what());
    return 1;
  }
  return ddp::test::all_right ? 0 : 1;
}
