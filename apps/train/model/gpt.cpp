// SPDX-License-Identifier: BSD-3-Clause
#include "apps/train/model/gpt.hpp"

#include <random>

#include "apps/train/model/layers.hpp"

namespace train {
namespace {

constexpr float kDeviation = 0.05F;  // initial weights; larger than in GPT-2, whose layers are wider

// One transformer block: x + attention(norm(x)), then x + mlp(norm(x)).
class Block {
 public:
  Block(Initializer& init, const std::string& name, const GptShape& shape)
      : norm1_(init, name + ".norm1", shape.width),
        qkv_(init, name + ".qkv", shape.width, 3 * shape.width, kDeviation),
        attention_(shape.heads),
        project_(init, name + ".project", shape.width, shape.width, residual_deviation(shape)),
        norm2_(init, name + ".norm2", shape.width),
        widen_(init, name + ".widen", shape.width, 4 * shape.width, kDeviation),
        narrow_(init, name + ".narrow", 4 * shape.width, shape.width, residual_deviation(shape)) {}

  void forward(Matrix& x, Eigen::Index length) {
    x += project_.forward(attention_.forward(qkv_.forward(norm1_.forward(x)), length));
    x += narrow_.forward(gelu_.forward(widen_.forward(norm2_.forward(x))));
  }

  void backward(Matrix& dx, const Ready& ready) {
    dx += norm2_.backward(widen_.backward(gelu_.backward(narrow_.backward(dx, ready)), ready), ready);
    dx += norm1_.backward(qkv_.backward(attention_.backward(project_.backward(dx, ready)), ready), ready);
  }

 private:
  // Smaller weights where branches join keep the sum over all layers at the size of one.
  static float residual_deviation(const GptShape& shape) {
    return kDeviation / std::sqrt(2 * static_cast<float>(shape.layers));
  }

  LayerNorm norm1_;
  Linear qkv_;
  Attention attention_;
  Linear project_;
  LayerNorm norm2_;
  Linear widen_;
  Gelu gelu_;
  Linear narrow_;
};

}  // namespace

struct Gpt::Network {
  Network(Initializer init, const GptShape& shape)
      : bytes(init.normal("bytes", {kVocabulary, shape.width}, kDeviation)),
        positions(init.normal("positions", {shape.context, shape.width}, kDeviation)),
        blocks(make_blocks(init, shape)),
        norm(init, "norm", shape.width) {}

  static std::vector<Block> make_blocks(Initializer& init, const GptShape& shape) {
    std::vector<Block> blocks;
    for (int i = 0; i < shape.layers; ++i) blocks.emplace_back(init, "block" + std::to_string(i), shape);
    return blocks;
  }

  MatrixView values(Parameter& p) { return matrix(p, p.value); }
  MatrixView gradients(Parameter& p) { return matrix(p, p.gradient); }

  // Computes `scores` from the first `length` bytes of each window.
  void predict(std::span<const Bytes> windows, std::size_t length) {
    inputs.clear();
    for (const Bytes window : windows) inputs.insert(inputs.end(), window.begin(), window.begin() + long(length));
    rows_per_window = static_cast<Eigen::Index>(length);
    x.resize(static_cast<Eigen::Index>(inputs.size()), values(bytes).cols());
    for (Eigen::Index i = 0; i < x.rows(); ++i) {
      x.row(i) = values(bytes).row(inputs[size_t(i)]) + values(positions).row(i % rows_per_window);
    }
    for (Block& block : blocks) block.forward(x, rows_per_window);
    last = &norm.forward(x);
    scores.resize(last->rows(), values(bytes).rows());
    multiply_transposed(scores, *last, values(bytes));  // the embedding is used a second time
  }

  Parameter& bytes;
  Parameter& positions;
  std::vector<Block> blocks;
  LayerNorm norm;

  std::vector<std::uint8_t> inputs;
  Eigen::Index rows_per_window = 0;
  Matrix x, scores;
  const Matrix* last = nullptr;
};

Gpt::Gpt(const GptShape& shape) : network_(std::make_unique<Network>(Initializer{parameters_}, shape)) {}
Gpt::~Gpt() = default;

void Gpt::initialise(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  for (Parameter& p : parameters_) {
    if (p.deviation == 0) continue;
    std::normal_distribution<float> distribution(0, p.deviation);
    for (float& v : p.value) v = distribution(random);
  }
}

std::size_t Gpt::parameter_count() const {
  std::size_t count = 0;
  for (const Parameter& p : parameters_) count += p.value.size();
  return count;
}

double Gpt::forward(std::span<const Bytes> windows) {
  Network& n = *network_;
  const std::size_t length = windows.front().size() - 1;
  n.predict(windows, length);
  // Cross-entropy. In the same pass scores become their gradient: (probability - 1 for the right
  // byte) / rows.
  const auto rows = static_cast<float>(n.scores.rows());
  double loss = 0;
  for (Eigen::Index i = 0; i < n.scores.rows(); ++i) {
    const auto place = static_cast<std::size_t>(i);
    const Eigen::Index right = windows[place / length][place % length + 1];
    auto scores = n.scores.row(i);
    scores.array() -= scores.maxCoeff();
    const float right_score = scores[right];
    scores.array() = scores.array().exp();
    const float sum = scores.sum();
    loss += std::log(sum) - right_score;
    scores /= sum * rows;
    scores[right] -= 1 / rows;
  }
  return loss / rows;
}

void Gpt::backward(const GradientReady& ready) {
  Network& n = *network_;
  const Matrix& dscores = n.scores;
  transposed_multiply(n.gradients(n.bytes), dscores, *n.last);
  Matrix dx(n.last->rows(), n.last->cols());
  multiply(dx, dscores, n.values(n.bytes));
  dx = n.norm.backward(dx, ready);
  for (auto block = n.blocks.rbegin(); block != n.blocks.rend(); ++block) block->backward(dx, ready);

  n.gradients(n.positions).setZero();
  for (Eigen::Index i = 0; i < dx.rows(); ++i) {
    n.gradients(n.positions).row(i % n.rows_per_window) += dx.row(i);
    n.gradients(n.bytes).row(n.inputs[static_cast<std::size_t>(i)]) += dx.row(i);
  }
  ready(n.positions.index);
  ready(n.bytes.index);
}

std::vector<float> Gpt::logits(Bytes text) {
  network_->predict({&text, 1}, text.size());
  const Matrix& scores = network_->scores;
  return {scores.data(), scores.data() + scores.size()};
}

}  // namespace train
