// SPDX-License-Identifier: BSD-3-Clause
// The data: one long run of bytes, cut into windows. Its end is held out for validation.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace train {

using Bytes = std::span<const std::uint8_t>;

class Corpus {
 public:
  // Reads a file, or all regular files of a folder in the order of their names. A file with several
  // links is read once. Throws BadInput.
  explicit Corpus(const std::filesystem::path& path);
  explicit Corpus(std::vector<std::uint8_t> bytes) : bytes_(std::move(bytes)) {}

  Bytes training() const { return Bytes(bytes_).first(bytes_.size() - bytes_.size() / 10); }
  // The last tenth, which is never trained on.
  Bytes validation() const { return Bytes(bytes_).last(bytes_.size() / 10); }

  // Returns size and hash: equal for equal data, whatever its path.
  std::string fingerprint() const;

 private:
  std::vector<std::uint8_t> bytes_;
};

// Data is cut into windows of context + 1 bytes. Neighbours share one byte, so that every byte but
// the first is predicted exactly once.
inline std::size_t window_count(Bytes data, std::size_t context) {
  return data.empty() ? 0 : (data.size() - 1) / context;
}
inline Bytes window(Bytes data, std::size_t context, std::size_t i) { return data.subspan(i * context, context + 1); }

}  // namespace train
