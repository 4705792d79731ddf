// SPDX-License-Identifier: BSD-3-Clause
// The model: a byte-level GPT with forward and backward written out by hand.
//
// It knows nothing of other processes. backward() reports when each gradient is complete; the
// caller decides what happens then (in trainer.cpp, libddp starts to average it).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "apps/train/corpus.hpp"

namespace train {

// Allocates on a cache-line boundary: vectorised sums then have the same order, and so the same
// bits, in every run. New elements have no value until one is written: memory that nobody writes costs no time.
template <typename T>
struct CacheLineAllocator {
  using value_type = T;
  static constexpr std::align_val_t kLine{64};
  T* allocate(std::size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), kLine)); }
  void deallocate(T* p, std::size_t) { ::operator delete(p, kLine); }
  template <typename... Args>
  void construct(T* p, Args&&... args) {
    if constexpr (sizeof...(Args) > 0) {
      ::new (p) T(std::forward<Args>(args)...);
    } else {
      ::new (p) T;
    }
  }
  bool operator==(const CacheLineAllocator&) const = default;
};
using Floats = std::vector<float, CacheLineAllocator<float>>;

// One trainable tensor.
struct Parameter {
  std::string name;
  std::vector<std::int64_t> shape;
  std::size_t index = 0;  // position in the model, in the order of the forward pass
  Floats initial = {};    // memory of `value`, unless that has moved
  Floats gradient = {};
  float deviation = 0;  // standard deviation of the values that initialise() draws; 0: it draws none
  std::span<float> value = initial;
};
// A deque, because layers keep references to their parameters while more are added.
using Parameters = std::deque<Parameter>;

struct GptShape {
  int context = 64;  // number of bytes the model sees at once
  int layers = 2;
  int heads = 4;
  int width = 96;
};

class Gpt {
 public:
  static constexpr int kVocabulary = 256;
  using GradientReady = std::function<void(std::size_t index)>;

  explicit Gpt(const GptShape& shape);
  ~Gpt();

  // Draws the weights. Equal seeds give equal weights. Until this is called, or a checkpoint is read, they have no
  // values: a process that finds its parameters in kept memory spares the time, 0.2 s for ten million of them.
  void initialise(std::uint64_t seed);

  Parameters& parameters() { return parameters_; }
  std::size_t parameter_count() const;  // counts numbers, not tensors

  // Predicts every byte of each window but the first from the bytes before it. A window has context
  // + 1 bytes. Returns the mean loss in nats per byte, and keeps what backward() needs.
  double forward(std::span<const Bytes> windows);

  // Computes the gradients of the last forward()'s loss, last parameter first, and calls `ready` as
  // each is complete.
  void backward(const GradientReady& ready);

  // Returns 256 scores for the byte that follows, for each byte of text. text has at most `context`
  // bytes.
  std::vector<float> logits(Bytes text);

 private:
  struct Network;
  Parameters parameters_;
  std::unique_ptr<Network> network_;
};

}  // namespace train
