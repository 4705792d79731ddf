// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training/hooks/builtin_comm_hooks.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <vector>

using namespace ddp::runtime;

namespace {

template <typename T>
std::vector<T> there_and_back(const std::vector<T>& values, std::int32_t dtype, std::int32_t through) {
  std::vector<std::uint16_t> narrow(values.size());
  std::vector<T> back(values.size());
  compress(dtype, values.data(), through, narrow.data(), values.size());
  decompress(through, narrow.data(), dtype, back.data(), values.size());
  return back;
}

}  // namespace

TEST_CASE("compression: floats and doubles that fit into 16 bits come back unchanged", "[training][unit]") {
  std::vector<float> floats = {0, 1, -2.5F, 0.125F, 240};
  std::vector<double> doubles;
  // More doubles than are converted at a time.
  for (std::size_t i = 0; i < 10'000; ++i) doubles.push_back(static_cast<double>(i % 200) / 8);
  for (const std::int32_t through : {DDP_FLOAT16, DDP_BFLOAT16}) {
    CHECK(there_and_back(floats, DDP_FLOAT32, through) == floats);
    CHECK(there_and_back(doubles, DDP_FLOAT64, through) == doubles);
  }
}

TEST_CASE("compression: float16 keeps 11 bits and overflows, bfloat16 keeps 8 and does not", "[training][unit]") {
  const std::vector<float> values = {1 + 0x1p-10F, 1 + 0x1p-7F, 70'000, 1e-9F};
  const auto half = there_and_back(values, DDP_FLOAT32, DDP_FLOAT16);
  const auto brain = there_and_back(values, DDP_FLOAT32, DDP_BFLOAT16);
  CHECK(half[0] == values[0]);
  CHECK(brain[0] == 1);
  CHECK(brain[1] == values[1]);
  CHECK(std::isinf(half[2]));
  CHECK(brain[2] == Approx(70'000).epsilon(0x1p-8));
  CHECK(half[3] == 0);
  CHECK(brain[3] == Approx(1e-9).epsilon(0x1p-8));
}

TEST_CASE("compression: an average is rounded once, however many ranks there are", "[training][unit]") {
  // 2048 and seven ones in float16: added one by one, each one would be lost.
  constexpr std::size_t kCount = 5000;  // more than are widened at a time
  std::vector<float> values(8 * kCount, 8);
  std::fill_n(values.begin(), kCount, 8 * 2048.0F);
  std::vector<std::uint16_t> parts(values.size()), average(kCount);
  std::vector<float> back(kCount);
  compress(DDP_FLOAT32, values.data(), DDP_FLOAT16, parts.data(), parts.size());
  average_parts(DDP_FLOAT16, parts.data(), 8, average.data(), kCount);
  decompress(DDP_FLOAT16, average.data(), DDP_FLOAT32, back.data(), kCount);
  CHECK(back == std::vector<float>(kCount, 2056));  // 2055, but above 2048 float16 has only every second number
}
