// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddp_bench/steps/model_shapes.hpp"

namespace ddp::bench {
namespace {

class Shapes {
 public:
  // `uses` is how often each weight is multiplied in a pass; its time is proportional to that.
  void add(const std::string& name, std::size_t count, std::size_t uses) { add_timed(name, count, count * uses); }
  void add_timed(const std::string& name, std::size_t count, std::size_t multiplications) {
    shapes_.push_back({name, count, static_cast<double>(multiplications)});
    total_ += shapes_.back().share;
  }
  // Adds the parameters of a batch norm or layer norm.
  void add_norm(const std::string& name, std::size_t channels, std::size_t uses) {
    add(name + ".weight", channels, uses);
    add(name + ".bias", channels, uses);
  }
  void add_linear(const std::string& name, std::size_t in, std::size_t out, std::size_t uses) {
    add(name + ".weight", in * out, uses);
    add(name + ".bias", out, uses);
  }
  std::vector<ParameterShape> done() && {
    for (ParameterShape& shape : shapes_) shape.share /= total_;
    return std::move(shapes_);
  }

 private:
  std::vector<ParameterShape> shapes_;
  double total_ = 0;
};

std::vector<ParameterShape> resnet18() {
  Shapes shapes;
  const auto convolve = [&](const std::string& block, const std::string& number, std::size_t in, std::size_t out,
                            std::size_t width, std::size_t side) {
    shapes.add(block + "conv" + number + ".weight", out * in * width * width, side * side);
    shapes.add_norm(block + "bn" + number, out, side * side);
  };
  convolve("", "1", 3, 64, 7, 112);
  std::size_t in = 64;
  std::size_t side = 56;
  for (int layer = 1; layer <= 4; ++layer, side /= 2) {
    const std::size_t out = std::size_t{32} << layer;
    for (int block = 0; block < 2; ++block) {
      const std::string name = "layer" + std::to_string(layer) + "." + std::to_string(block) + ".";
      convolve(name, "1", block == 0 ? in : out, out, 3, side);
      convolve(name, "2", out, out, 3, side);
      if (block == 0 && in != out) convolve(name, "_downsample", in, out, 1, side);
    }
    in = out;
  }
  shapes.add_linear("fc", in, 1000, 1);
  return std::move(shapes).done();
}

std::vector<ParameterShape> gpt2() {
  constexpr std::size_t kVocabulary = 50257;
  constexpr std::size_t kPositions = 1024;
  constexpr std::size_t kWidth = 768;
  constexpr int kLayers = 12;
  Shapes shapes;
  // The embedding's gradient is some rows added; the multiplications of the output layer come first in backward.
  shapes.add_timed("wte.weight", kVocabulary * kWidth, kPositions * kWidth);
  shapes.add_timed("wpe.weight", kPositions * kWidth, kPositions * kWidth);
  for (int layer = 0; layer < kLayers; ++layer) {
    const std::string block = "h." + std::to_string(layer) + ".";
    shapes.add_norm(block + "ln_1", kWidth, kPositions);
    shapes.add_linear(block + "attn.c_attn", kWidth, 3 * kWidth, kPositions);
    shapes.add_linear(block + "attn.c_proj", kWidth, kWidth, kPositions);
    shapes.add_norm(block + "ln_2", kWidth, kPositions);
    shapes.add_linear(block + "mlp.c_fc", kWidth, 4 * kWidth, kPositions);
    shapes.add_linear(block + "mlp.c_proj", 4 * kWidth, kWidth, kPositions);
  }
  shapes.add("ln_f.weight", kWidth, kPositions);
  shapes.add_timed("ln_f.bias", kWidth, kVocabulary * kWidth * kPositions);
  return std::move(shapes).done();
}

std::vector<ParameterShape> mlp() {
  Shapes shapes;
  shapes.add_linear("fc1", 784, 512, 1);
  shapes.add_linear("fc2", 512, 256, 1);
  shapes.add_linear("fc3", 256, 10, 1);
  return std::move(shapes).done();
}

}  // namespace

std::vector<ParameterShape> model_shapes(const std::string& name) {
  if (name == "resnet18") return resnet18();
  if (name == "gpt2") return gpt2();
  return mlp();
}

}  // namespace ddp::bench
