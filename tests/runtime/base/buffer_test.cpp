// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/base/buffer.hpp"

#include <catch2/catch.hpp>
#include <cstdint>
#include <limits>
#include <vector>

using ddp::runtime::convert;

namespace {

template <typename T>
ddp_buffer buffer(std::vector<T>& v, std::int32_t dtype) {
  return {v.data(), v.size(), dtype, {DDP_CPU, 0}};
}
ddp_buffer buffer(std::vector<float>& v) { return buffer(v, DDP_FLOAT32); }
ddp_buffer buffer(std::vector<double>& v) { return buffer(v, DDP_FLOAT64); }

}  // namespace

TEST_CASE("buffer: float32 is converted to and from the other types, rounded to the nearest", "[runtime][unit]") {
  std::vector<float> floats = {1, 1.0F + 0x1p-11F, 1.0F + 0x3p-11F, 1e-8F, 70000, -0.0F};
  std::vector<std::uint16_t> halves(floats.size());
  convert(buffer(floats), buffer(halves, DDP_FLOAT16));
  CHECK(halves == std::vector<std::uint16_t>{0x3c00, 0x3c00, 0x3c02, 0, 0x7c00, 0x8000});
  std::vector<float> back(floats.size());
  convert(buffer(halves, DDP_FLOAT16), buffer(back));
  CHECK(back == std::vector<float>{1, 1, 1.0F + 0x1p-9F, 0, std::numeric_limits<float>::infinity(), -0.0F});
  std::vector<double> doubles(floats.size());
  convert(buffer(floats), buffer(doubles));
  CHECK(doubles[1] == 1.0 + 0x1p-11);
  convert(buffer(doubles), buffer(back));
  CHECK(back == floats);
  std::vector<std::uint16_t> same(halves.size());
  convert(buffer(halves, DDP_FLOAT16), buffer(same, DDP_FLOAT16));
  CHECK(same == halves);
}

TEST_CASE("buffer: a conversion between types or counts that do not go together is refused", "[runtime][unit]") {
  using Catch::Matchers::Contains;
  std::vector<float> floats(2);
  std::vector<double> doubles(2);
  std::vector<std::uint16_t> halves(2);
  std::vector<std::int32_t> integers(2);
  std::vector<float> three(3);
  CHECK_THROWS_WITH(convert(buffer(floats), buffer(three)), Contains("from 2 elements to 3"));
  CHECK_THROWS_WITH(convert(buffer(doubles), buffer(halves, DDP_FLOAT16)),
                    Contains("not from float64 to float16: convert through float32"));
  CHECK_THROWS_WITH(convert(buffer(integers, DDP_INT32), buffer(floats)), Contains("floating point, not on int32"));
}
