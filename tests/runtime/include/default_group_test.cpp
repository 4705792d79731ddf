// SPDX-License-Identifier: BSD-3-Clause
// PyTorch's habits that need no other process: a world of one has a default group, whose collectives take any
// kind of buffer.
#include "ddp/session.hpp"

#include <array>
#include <catch2/catch.hpp>
#include <string>
#include <type_traits>
#include <vector>

#include "ddp/sampler.hpp"

using Catch::Matchers::Contains;
using ddp::Buffer;
using ddp::ConstBuffer;

TEST_CASE("default group: its collectives are functions, and fail without a session", "[runtime][unit]") {
  float loss = 3;
  CHECK_FALSE(ddp::is_initialized());
  CHECK_THROWS_WITH(ddp::all_reduce(loss), Contains("call ddp::init_process_group first"));
  CHECK_THROWS_WITH(ddp::barrier(), Contains("no default process group"));

  const ddp::Session session = ddp::init_process_group("gloo");
  CHECK(ddp::get_backend() == "gloo");
  ddp::all_reduce(loss, ddp::ReduceOp::Avg);
  CHECK(loss == 3);
  ddp::reduce(loss);
  ddp::broadcast(loss);
  const std::array<int, 2> given = {4, 5};
  std::vector<int> taken(2);
  ddp::all_gather(given, taken);
  CHECK(taken == std::vector<int>{4, 5});
  int back[2] = {};
  ddp::gather(taken, back);
  ddp::scatter(given, back);
  ddp::reduce_scatter(given, back);
  ddp::all_to_all(given, taken);
  CHECK(back[1] == 5);
  ddp::barrier();
  ddp::monitored_barrier();
  CHECK(ddp::broadcast_object(std::string("x")) == "x");
  CHECK(ddp::all_gather_object(std::string("x")) == std::vector<std::string>{"x"});
  CHECK(ddp::gather_object(std::string("x")) == std::vector<std::string>{"x"});
  CHECK(ddp::scatter_object(std::vector<std::string>{"x"}) == "x");
}

TEST_CASE("default group: a sampler takes its rank and size from it", "[runtime][unit]") {
  CHECK_THROWS_WITH(ddp::DistributedSampler(10), Contains("call ddp::init_process_group first"));
  const ddp::Session session = ddp::init_process_group();
  CHECK(ddp::DistributedSampler(10).indices() == ddp::DistributedSampler(10, 1, 0).indices());
}

TEST_CASE("init: a backend's name may be given alone, by itself or with options", "[runtime][unit]") {
  ddp::InitOptions options;
  options.backend = "nonsense:";
  CHECK_THROWS(ddp::init_process_group(options));
  CHECK(ddp::init_process_group("gloo", options).world_size() == 1);
  CHECK(ddp::init_process_group(std::string("gloo")).world_size() == 1);
  CHECK(ddp::init_process_group({}).world_size() == 1);
  CHECK_THROWS_WITH(ddp::init_process_group("no/name"), Contains("not a backend's name"));
}

TEST_CASE("backends: what is there is available, and nothing throws", "[runtime][unit]") {
  CHECK(ddp::is_available());
  CHECK(ddp::is_gloo_available());
  CHECK_FALSE(ddp::is_backend_available("nowhere"));
  CHECK_THAT(ddp_error_last(), Contains("no libddp_nowhere.so in "));
  CHECK_FALSE(ddp::is_backend_available("gl oo"));
  CHECK(ddp_backend_is_available(nullptr) == 0);
}

TEST_CASE("buffers: vectors, arrays and numbers are buffers, and what is const only to be read", "[runtime][unit]") {
  std::vector<double> v(3);
  std::array<std::int16_t, 4> a = {};
  float c[5] = {};
  std::uint8_t number = 0;
  CHECK(Buffer(v).dtype == ddp::DType::Float64);
  CHECK(Buffer(a).count == 4);
  CHECK(Buffer(c).count == 5);
  CHECK(Buffer(number).dtype == ddp::DType::UInt8);
  CHECK(Buffer(number).data == &number);
  const std::vector<double>& read_only = v;
  CHECK(ConstBuffer(read_only).data == v.data());
  CHECK(ConstBuffer(Buffer(a)).bytes() == 8);
  // What must not compile.
  CHECK_FALSE(std::is_constructible_v<Buffer, const std::vector<double>&>);
  CHECK_FALSE(std::is_constructible_v<Buffer, const float&>);
  CHECK_FALSE(std::is_constructible_v<Buffer, bool&>);
  CHECK_FALSE(std::is_constructible_v<ConstBuffer, std::vector<double>>);
  CHECK_FALSE(std::is_constructible_v<ConstBuffer, float>);
  CHECK_FALSE(std::is_constructible_v<ConstBuffer, bool&>);
}
