// SPDX-License-Identifier: BSD-3-Clause
// The data: one long run of bytes, its end held out for validation, and the order in which training visits it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace train {

class Corpus {
 public:
  using Bytes = std::span<const std::uint8_t>;

  // A file, or all regular files of a folder by name, a file behind several links once. Throws BadInput.
  explicit Corpus(const std::filesystem::path& path);
  explicit Corpus(std::vector<std::uint8_t> bytes) : bytes_(std::move(bytes)) {}

  Bytes training() const { return Bytes(bytes_).first(bytes_.size() - held_out()); }
  // The last tenth, never trained on.
  Bytes validation() const { return Bytes(bytes_).last(held_out()); }

  // Size and hash: equal for equal data, wherever it lies.
  std::string fingerprint() const;

 private:
  std::size_t held_out() const { return bytes_.size() / 10; }
  std::vector<std::uint8_t> bytes_;
};

// Says which window of the data the n-th sequence of a training is: a function of seed and n alone, so that any number
// of workers, and a resumed training, read the same. Each epoch visits every window once, in a new order and with the
// windows' borders shifted.
class Sampler {
 public:
  Sampler(std::span<const std::uint8_t> data, int context, std::uint64_t seed);

  std::int64_t windows_per_epoch() const { return windows_per_epoch_; }
  // context + 1 bytes.
  std::span<const std::uint8_t> window(std::int64_t n);

 private:
  void shuffle(std::int64_t epoch);

  std::span<const std::uint8_t> data_;
  std::size_t context_;
  std::uint64_t seed_;
  std::int64_t windows_per_epoch_;
  std::int64_t epoch_ = -1;  // whose order is in starts_
  std::vector<std::size_t> starts_;
};

// At most `limit` windows of context + 1 bytes, spread evenly over the data.
std::vector<std::span<const std::uint8_t>> spread_windows(std::span<const std::uint8_t> data, int context,
                                                          std::size_t limit);

}  // namespace train
