// SPDX-License-Identifier: BSD-3-Clause
#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <set>

#include "apps/train/model/gpt.hpp"
#include "apps/train/model/optimizer.hpp"

namespace train {
namespace {

const GptShape kTiny = {.context = 6, .layers = 2, .heads = 2, .width = 8};

struct DrawnGpt : Gpt {
  DrawnGpt(const GptShape& shape, std::uint64_t seed) : Gpt(shape) { initialise(seed); }
};

struct Batch {
  std::vector<std::vector<std::uint8_t>> storage;
  std::vector<Bytes> windows;

  Batch(std::size_t count, std::size_t length, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    for (std::size_t i = 0; i < count; ++i) {
      std::vector<std::uint8_t>& window = storage.emplace_back(length);
      for (std::uint8_t& byte : window) byte = static_cast<std::uint8_t>('a' + random() % 16);
    }
    windows.assign(storage.begin(), storage.end());
  }
};

const auto kIgnore = [](std::size_t) {};

// Increases the weights. Initial weights are so small that attention and MLP hardly matter; with
// larger ones every term of a gradient counts.
void enlarge(Gpt& gpt) {
  std::mt19937_64 random(5);
  std::normal_distribution<float> noise(0, 0.3F);
  for (Parameter& p : gpt.parameters()) {
    for (float& v : p.value) v += noise(random);
  }
}

// Returns (loss(values + h * direction) - loss(values - h * direction)) / 2h.
double measured_slope(Gpt& gpt, const Batch& batch, Parameter& p, const std::vector<float>& direction, float h) {
  const Floats values(p.value.begin(), p.value.end());
  const auto loss_at = [&](float distance) {
    for (std::size_t i = 0; i < values.size(); ++i) p.value[i] = values[i] + distance * direction[i];
    return gpt.forward(batch.windows);
  };
  const double slope = (loss_at(h) - loss_at(-h)) / (2.0 * static_cast<double>(h));
  std::copy(values.begin(), values.end(), p.value.begin());
  return slope;
}

TEST_CASE("gpt: gradients are the slopes of the loss, for every parameter", "[train][unit]") {
  DrawnGpt gpt(kTiny, 3);
  enlarge(gpt);
  const Batch batch(3, 7, 11);
  gpt.forward(batch.windows);
  gpt.backward(kIgnore);

  std::mt19937_64 random(17);
  std::normal_distribution<float> normal;
  for (Parameter& p : gpt.parameters()) {
    const Floats gradient = p.gradient;
    double norm = 0;
    for (const float g : gradient) norm += static_cast<double>(g * g);
    norm = std::sqrt(norm);
    CHECK(norm > 1e-3);

    // Along the gradient, where the slope is steepest, and in directions in which every element
    // counts.
    for (int trial = 0; trial < 5; ++trial) {
      std::vector<float> direction(gradient.size());
      double length = 0, predicted = 0;
      for (std::size_t i = 0; i < direction.size(); ++i) {
        direction[i] = trial == 0 ? gradient[i] : normal(random);
        length += static_cast<double>(direction[i] * direction[i]);
      }
      for (std::size_t i = 0; i < direction.size(); ++i) {
        direction[i] = static_cast<float>(direction[i] / std::sqrt(length));
        predicted += static_cast<double>(direction[i]) * static_cast<double>(gradient[i]);
      }
      INFO(p.name << ", direction " << trial);
      CHECK(measured_slope(gpt, batch, p, direction, 0.01F) == Approx(predicted).epsilon(0.01).margin(1e-3 * norm));
    }
  }
}

TEST_CASE("gpt: a single element's gradient is its slope", "[train][unit]") {
  DrawnGpt gpt(kTiny, 3);
  enlarge(gpt);
  const Batch batch(2, 7, 12);
  gpt.forward(batch.windows);
  gpt.backward(kIgnore);
  std::mt19937_64 random(19);
  for (Parameter& p : gpt.parameters()) {
    const Floats gradient = p.gradient;
    for (int trial = 0; trial < 10; ++trial) {
      const std::size_t i = random() % gradient.size();
      std::vector<float> direction(gradient.size());
      direction[i] = 1;
      INFO(p.name << "[" << i << "]");
      CHECK(measured_slope(gpt, batch, p, direction, 0.01F) == Approx(gradient[i]).epsilon(0.02).margin(2e-4));
    }
  }
}

TEST_CASE("gpt: backward announces every gradient once, later layers before earlier ones", "[train][unit]") {
  DrawnGpt gpt(kTiny, 3);
  const Batch batch(1, 7, 1);
  gpt.forward(batch.windows);
  std::vector<std::size_t> announced;
  gpt.backward([&announced](std::size_t i) { announced.push_back(i); });
  CHECK(std::set<std::size_t>(announced.begin(), announced.end()).size() == gpt.parameters().size());
  REQUIRE(announced.size() == gpt.parameters().size());
  CHECK(announced.back() == 0);  // the embedding of bytes: used at the model's start and end
  for (std::size_t i = 0; i + 2 < announced.size(); ++i) CHECK(announced[i] == announced.size() - 1 - i);
}

TEST_CASE("gpt: an announced gradient does not change any more", "[train][unit]") {
  DrawnGpt gpt(kTiny, 3);
  const Batch batch(2, 7, 1);
  gpt.forward(batch.windows);
  std::vector<Floats> seen(gpt.parameters().size());
  gpt.backward([&](std::size_t i) { seen[i] = gpt.parameters()[i].gradient; });
  for (const Parameter& p : gpt.parameters()) CHECK(seen[p.index] == p.gradient);
}

TEST_CASE("gpt: an untrained model finds all bytes about equally likely", "[train][unit]") {
  DrawnGpt gpt(GptShape{}, 1);
  const Batch batch(4, 65, 2);
  CHECK(gpt.forward(batch.windows) == Approx(std::log(256)).margin(0.2));
}

TEST_CASE("gpt: later bytes do not change the predictions before them", "[train][unit]") {
  DrawnGpt gpt(kTiny, 3);
  enlarge(gpt);
  std::vector<std::uint8_t> text = {'a', 'b', 'c', 'd', 'e', 'f'};
  const std::vector<float> before = gpt.logits(text);
  text[4] = 'x';
  const std::vector<float> after = gpt.logits(text);
  const std::ptrdiff_t changed = 4 * Gpt::kVocabulary;
  CHECK(std::equal(before.begin(), before.begin() + changed, after.begin()));
  for (std::ptrdiff_t row = changed; row < std::ssize(before); row += Gpt::kVocabulary) {
    CHECK_FALSE(std::equal(before.begin() + row, before.begin() + row + Gpt::kVocabulary, after.begin() + row));
  }
}

TEST_CASE("gpt: earlier bytes change the predictions after them", "[train][unit]") {
  DrawnGpt gpt(kTiny, 3);
  enlarge(gpt);
  const auto last = [&gpt](const std::string& text) {
    const std::vector<std::uint8_t> bytes(text.begin(), text.end());
    const std::vector<float> all = gpt.logits(bytes);
    return std::vector<float>(all.end() - Gpt::kVocabulary, all.end());
  };
  CHECK(last("abcdef") != last("xbcdef"));
  CHECK(last("abcdef") != last("bacdef"));
}

TEST_CASE("gpt: the loss of a batch is the mean over its windows", "[train][unit]") {
  DrawnGpt gpt(kTiny, 3);
  enlarge(gpt);
  const Batch batch(4, 7, 9);
  double sum = 0;
  for (const Bytes& window : batch.windows) sum += gpt.forward({&window, 1});
  CHECK(gpt.forward(batch.windows) == Approx(sum / 4).epsilon(1e-6));
}

TEST_CASE("gpt: the same seed gives the same model, and the same batch the same bits", "[train][unit]") {
  DrawnGpt one(kTiny, 3), two(kTiny, 3), other(kTiny, 4);
  const Batch batch(4, 7, 9);
  CHECK(one.forward(batch.windows) == two.forward(batch.windows));
  one.backward(kIgnore);
  two.backward(kIgnore);
  for (const Parameter& p : one.parameters()) {
    CHECK(std::ranges::equal(p.value, two.parameters()[p.index].value));
    CHECK(p.gradient == two.parameters()[p.index].gradient);
  }
  CHECK_FALSE(std::ranges::equal(one.parameters()[0].value, other.parameters()[0].value));
}

TEST_CASE("gpt: learns one small batch by heart", "[train][unit]") {
  DrawnGpt gpt({.context = 16, .layers = 2, .heads = 2, .width = 32}, 1);
  ddp::AdamW optimizer = make_optimizer(gpt.parameters(), 0);
  optimizer.set_lr(1e-2);
  const Batch batch(2, 17, 4);
  for (int step = 0; step < 150; ++step) {
    gpt.forward(batch.windows);
    gpt.backward(kIgnore);
    optimizer.step();
  }
  CHECK(gpt.forward(batch.windows) < 0.05);
}

}  // namespace
}  // namespace train
