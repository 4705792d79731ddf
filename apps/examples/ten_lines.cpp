// SPDX-License-Identifier: BSD-3-Clause
// Data-parallel training in ten lines, starting at "ddp::Session session". Above them is the model, a small network of
// plain loops that learns the sine from points that each rank draws by itself.
//
//   ddprun --nproc_per_node 4 ./ten_lines     or, alone: ./ten_lines
#include <array>
#include <cmath>
#include <cstdio>
#include <ddp/ddp.hpp>
#include <random>

// sine(x) is about the sum over k of out[k] * tanh(slope[k] * x + shift[k]).
struct Network {
  static constexpr std::size_t kHidden = 16;
  using Row = std::array<float, kHidden>;
  Row slope, shift, out;
  Row slope_gradient = {}, shift_gradient = {}, out_gradient = {};

  explicit Network(unsigned seed) {
    std::mt19937 random(seed);
    for (Row* row : {&slope, &shift, &out}) {
      for (float& value : *row) value = 4 * uniform(random) - 2;
    }
  }

  // Returns a number in [0, 1), the same with every standard library.
  static float uniform(std::mt19937& random) { return static_cast<float>(random() >> 8) / (1 << 24); }

  float predict(float x) const {
    float y = 0;
    for (std::size_t k = 0; k < kHidden; ++k) y += out[k] * std::tanh(slope[k] * x + shift[k]);
    return y;
  }

  // Returns the mean squared error over a batch of random points, and computes its gradients.
  float forward_and_backward(std::mt19937& random) {
    constexpr int kBatch = 64;
    slope_gradient = shift_gradient = out_gradient = {};
    float loss = 0;
    for (int i = 0; i < kBatch; ++i) {
      const float x = 6 * uniform(random) - 3;
      const float error = predict(x) - std::sin(x);
      loss += error * error / kBatch;
      for (std::size_t k = 0; k < kHidden; ++k) {
        const float hidden = std::tanh(slope[k] * x + shift[k]);
        const float inner = 2 * error / kBatch * out[k] * (1 - hidden * hidden);
        out_gradient[k] += 2 * error / kBatch * hidden;
        slope_gradient[k] += inner * x;
        shift_gradient[k] += inner;
      }
    }
    return loss;
  }

  void descend(float rate) {
    for (std::size_t k = 0; k < kHidden; ++k) {
      slope[k] -= rate * slope_gradient[k];
      shift[k] -= rate * shift_gradient[k];
      out[k] -= rate * out_gradient[k];
    }
  }
};

int main() {
  ddp::Session session = ddp::init_process_group();
  const auto rank = static_cast<unsigned>(session.rank());
  Network net(rank);  // each rank begins with different weights; rank 0's go to all
  std::mt19937 points(100 + rank);
  ddp::DistributedDataParallel model(session.world(),
                                     {{"slope", net.slope.data(), net.slope_gradient.data(), net.slope.size()},
                                      {"shift", net.shift.data(), net.shift_gradient.data(), net.shift.size()},
                                      {"out", net.out.data(), net.out_gradient.data(), net.out.size()}});
  for (int step = 0; step <= 1000; ++step) {
    float loss = net.forward_and_backward(points);
    for (std::size_t i = 3; i-- > 0;) model.mark_ready(i);  // the reduction of a full bucket starts here
    model.synchronize();                                    // from here on every rank has the averages
    net.descend(0.1F);
    if (step % 250 == 0) session.world().all_reduce({&loss, 1}, ddp::ReduceOp::Avg);
    if (step % 250 == 0 && rank == 0) std::printf("step %4d: loss %.4f\n", step, loss);
  }
  std::printf("rank %u of %d: sine(1) is 0.841, here %.3f\n", rank, session.world_size(), net.predict(1));
}
