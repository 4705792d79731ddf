// SPDX-License-Identifier: BSD-3-Clause
// Kept memory without ddprun: ordinary memory, in which tensors lie as in memory that is kept.
#include "ddp/kept.hpp"

#include <catch2/catch.hpp>
#include <cstdint>
#include <functional>
#include <vector>

#include "ddp/session.hpp"

TEST_CASE("kept: tensors keep their values, and a rank's own ones come first in the memory", "[runtime][unit]") {
  const ddp::Session session = ddp::init_process_group();
  std::vector<double> shared = {1, 2, 3};
  std::int32_t own = 4;
  double* shared_place = nullptr;
  std::int32_t* own_place = nullptr;
  ddp::Kept kept(session, {{"shared", shared, false, [&](void* to) { shared_place = static_cast<double*>(to); }},
                           {"own", own, true, [&](void* to) { own_place = static_cast<std::int32_t*>(to); }}});
  CHECK_FALSE(kept.found());
  CHECK(std::vector<double>(shared_place, shared_place + 3) == shared);
  CHECK(*own_place == 4);
  CHECK(static_cast<void*>(own_place) < static_cast<void*>(shared_place));

  CHECK(kept.step() == 0);
  CHECK(kept.begin_update());
  *own_place = 5;
  kept.end_update();
  CHECK(kept.step() == 1);
}

TEST_CASE("kept: whatever gives its tensors and has its steps marked can be kept", "[runtime][unit]") {
  const ddp::Session session = ddp::init_process_group();
  struct Counter {
    std::int64_t own_count = 0;
    std::int64_t* count = &own_count;
    std::function<bool()> before;
    std::function<void()> after;

    std::vector<ddp::KeptTensor> kept_tensors(const std::function<void(const ddp::Parameter&)>& /*moved*/) {
      return {{"count", *count, false, [this](void* to) { count = static_cast<std::int64_t*>(to); }}};
    }
    void around_step(std::function<bool()> begin, std::function<void()> end) {
      before = std::move(begin);
      after = std::move(end);
    }
  };
  Counter counter;
  ddp::Kept kept(session, counter);
  CHECK(counter.count != &counter.own_count);
  kept.step();
  if (counter.before()) ++*counter.count;
  counter.after();
  CHECK(kept.step() == 1);
}

TEST_CASE("kept: a tensor on a GPU is refused", "[runtime][unit]") {
  const ddp::Session session = ddp::init_process_group();
  const ddp::Buffer on_gpu(nullptr, 0, ddp::DType::Float32, {ddp::DeviceKind::Cuda, 0});
  CHECK_THROWS_WITH(ddp::Kept(session, {{"weight", on_gpu}}), "Kept: tensor weight is not in CPU memory");
}
