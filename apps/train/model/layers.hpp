// SPDX-License-Identifier: BSD-3-Clause
// The layers of a GPT. Only gpt.cpp includes this header, so that Eigen stays in one file.
//
// A layer's forward() keeps what its backward() needs. It returns memory of the layer, which its
// next call overwrites; the input must stay unchanged until backward(). backward() takes the
// gradient of the output, writes the gradients of the layer's parameters, and returns the gradient
// of the input. A matrix has one row for each byte of each sequence.
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cmath>

#include "apps/train/model/gpt.hpp"

namespace train {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using MatrixView = Eigen::Map<Matrix, Eigen::Aligned64>;
using RowView = Eigen::Map<Eigen::RowVectorXf, Eigen::Aligned64>;
using In = const Eigen::Ref<const Matrix, 0, Eigen::OuterStride<>>&;  // a Matrix, a MatrixView or a block of one
using Out = Eigen::Ref<Matrix, 0, Eigen::OuterStride<>>;
using Ready = Gpt::GradientReady;

inline MatrixView matrix(const Parameter& p, std::span<float> of) { return {of.data(), p.shape[0], p.shape[1]}; }
inline RowView row(std::span<float> of) { return {of.data(), static_cast<Eigen::Index>(of.size())}; }

// out = a b, a b^T and a^T b; out has the size of the product. Every product of this model is one of these three
// functions, because Eigen's product is slow to compile for each further pair of types.
inline void multiply(Out out, In a, In b) { out.noalias() = a * b; }
inline void multiply_transposed(Out out, In a, In b) { out.noalias() = a * b.transpose(); }
inline void transposed_multiply(Out out, In a, In b) { out.noalias() = a.transpose() * b; }

// Creates parameters.
struct Initializer {
  Parameters& parameters;

  Parameter& constant(std::string name, std::vector<std::int64_t> shape, float value) {
    Parameter& p = normal(std::move(name), std::move(shape), 0);
    std::fill(p.value.begin(), p.value.end(), value);
    return p;
  }
  Parameter& normal(std::string name, std::vector<std::int64_t> shape, float deviation) {
    std::size_t count = 1;
    for (const std::int64_t n : shape) count *= static_cast<std::size_t>(n);
    return parameters.emplace_back(Parameter{.name = std::move(name),
                                             .shape = std::move(shape),
                                             .index = parameters.size(),
                                             .initial = Floats(count),
                                             .gradient = Floats(count),
                                             .deviation = deviation});
  }
};

// y = x W + b
class Linear {
 public:
  Linear(Initializer& init, const std::string& name, int in, int out, float deviation)
      : weight_(init.normal(name + ".weight", {in, out}, deviation)), bias_(init.constant(name + ".bias", {out}, 0)) {}

  const Matrix& forward(const Matrix& x) {
    x_ = &x;
    const MatrixView weight = matrix(weight_, weight_.value);
    y_.resize(x.rows(), weight.cols());
    multiply(y_, x, weight);
    y_.rowwise() += row(bias_.value);
    return y_;
  }

  const Matrix& backward(const Matrix& dy, const Ready& ready) {
    row(bias_.gradient) = dy.colwise().sum();
    ready(bias_.index);
    transposed_multiply(matrix(weight_, weight_.gradient), *x_, dy);
    ready(weight_.index);
    dx_.resizeLike(*x_);
    multiply_transposed(dx_, dy, matrix(weight_, weight_.value));
    return dx_;
  }

 private:
  Parameter& weight_;
  Parameter& bias_;
  const Matrix* x_ = nullptr;
  Matrix y_, dx_;
};

// y = gain * (x - mean) / deviation + bias, over each row
class LayerNorm {
 public:
  LayerNorm(Initializer& init, const std::string& name, int width)
      : gain_(init.constant(name + ".gain", {width}, 1)), bias_(init.constant(name + ".bias", {width}, 0)) {}

  const Matrix& forward(const Matrix& x) {
    normal_.resizeLike(x);
    scale_.resize(x.rows());
    y_.resizeLike(x);
    const auto width = static_cast<float>(x.cols());
    for (Eigen::Index i = 0; i < x.rows(); ++i) {
      normal_.row(i).array() = x.row(i).array() - x.row(i).sum() / width;
      scale_[i] = 1 / std::sqrt(normal_.row(i).squaredNorm() / width + 1e-5F);
      normal_.row(i) *= scale_[i];
      y_.row(i).array() = normal_.row(i).array() * row(gain_.value).array() + row(bias_.value).array();
    }
    return y_;
  }

  const Matrix& backward(const Matrix& dy, const Ready& ready) {
    row(bias_.gradient) = dy.colwise().sum();
    ready(bias_.index);
    row(gain_.gradient) = dy.cwiseProduct(normal_).colwise().sum();
    ready(gain_.index);
    dx_.resizeLike(dy);
    const auto width = static_cast<float>(dy.cols());
    for (Eigen::Index i = 0; i < dy.rows(); ++i) {
      // Subtract the components along the mean and along x itself: neither changes the output.
      dx_.row(i) = dy.row(i).cwiseProduct(row(gain_.value));
      const float along_mean = dx_.row(i).sum() / width;
      const float along_x = dx_.row(i).dot(normal_.row(i)) / width;
      dx_.row(i).array() = scale_[i] * (dx_.row(i).array() - along_mean - along_x * normal_.row(i).array());
    }
    return dx_;
  }

 private:
  Parameter& gain_;
  Parameter& bias_;
  Eigen::VectorXf scale_;
  Matrix normal_, y_, dx_;
};

// y = x/2 (1 + tanh(c (x + a x^3))), the usual approximation of GELU
class Gelu {
 public:
  const Matrix& forward(const Matrix& x) {
    x_ = &x;
    tanh_ = (kC * x.array() * (1 + kA * x.array().square())).tanh();
    y_ = 0.5F * x.array() * (1 + tanh_.array());
    return y_;
  }

  const Matrix& backward(const Matrix& dy) {
    const auto x = x_->array();
    const auto t = tanh_.array();
    dx_ = dy.array() * (0.5F * (1 + t) + 0.5F * x * (1 - t.square()) * kC * (1 + 3 * kA * x.square()));
    return dx_;
  }

 private:
  static constexpr float kA = 0.044715F;
  static constexpr float kC = 0.7978845608F;  // sqrt(2 / pi)
  const Matrix* x_ = nullptr;
  Matrix tanh_, y_, dx_;
};

// Causal self-attention. Input rows hold query, key and value next to each other, each of them head
// after head.
class Attention {
 public:
  explicit Attention(int heads) : heads_(heads) {}

  // length is the number of rows of one sequence.
  const Matrix& forward(const Matrix& qkv, Eigen::Index length) {
    qkv_ = &qkv;
    length_ = length;
    y_.resize(qkv.rows(), qkv.cols() / 3);
    weights_.resize(qkv.rows() * heads_, length);
    for (Eigen::Index i = 0; i < qkv.rows() / length * heads_; ++i) {
      auto weights = weights_.middleRows(i * length, length);
      multiply_transposed(weights, head(qkv, kQuery, i), head(qkv, kKey, i));
      for (Eigen::Index t = 0; t < length; ++t) {  // row t: softmax over the bytes up to t only
        auto seen = weights.row(t).head(t + 1);
        seen.array() = ((seen.array() - seen.maxCoeff()) * scale()).exp();
        seen /= seen.sum();
        weights.row(t).tail(length - t - 1).setZero();
      }
      multiply(head(y_, 0, i), weights, head(qkv, kValue, i));
    }
    return y_;
  }

  const Matrix& backward(const Matrix& dy) {
    dqkv_.resizeLike(*qkv_);
    dscores_.resize(length_, length_);
    for (Eigen::Index i = 0; i < dy.rows() / length_ * heads_; ++i) {
      const auto weights = weights_.middleRows(i * length_, length_);
      transposed_multiply(head(dqkv_, kValue, i), weights, head(dy, 0, i));
      multiply_transposed(dscores_, head(dy, 0, i), head(*qkv_, kValue, i));
      for (Eigen::Index t = 0; t < length_; ++t) {
        const float along = dscores_.row(t).dot(weights.row(t));
        dscores_.row(t).array() = scale() * weights.row(t).array() * (dscores_.row(t).array() - along);
      }
      multiply(head(dqkv_, kQuery, i), dscores_, head(*qkv_, kKey, i));
      transposed_multiply(head(dqkv_, kKey, i), dscores_, head(*qkv_, kQuery, i));
    }
    return dqkv_;
  }

 private:
  enum Part : Eigen::Index { kQuery = 0, kKey = 1, kValue = 2 };

  // Returns head i, counted over the heads of all sequences, in the given third of m's columns.
  template <typename M>
  Eigen::Block<M> head(M& m, Eigen::Index third, Eigen::Index i) const {
    return {m, i / heads_ * length_, third * y_.cols() + i % heads_ * depth(), length_, depth()};
  }
  Eigen::Index depth() const { return y_.cols() / heads_; }
  float scale() const { return 1 / std::sqrt(static_cast<float>(depth())); }

  Eigen::Index heads_, length_ = 0;
  const Matrix* qkv_ = nullptr;
  Matrix weights_, dscores_, y_, dqkv_;
};

}  // namespace train
