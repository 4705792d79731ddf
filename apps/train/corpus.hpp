// SPDX-License-Identifier: BSD-3-Clause
// The data: one long run of bytes, its end held out for validation, cut into windows.
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
  // A file, or all regular files of a folder by name, a file behind several links once. Throws BadInput.
  explicit Corpus(const std::filesystem::path& path);
  explicit Corpus(std::vector<std::uint8_t> bytes) : bytes_(std::move(bytes)) {}

  Bytes training() const { return Bytes(bytes_).first(bytes_.size() - bytes_.size() / 10); }
  // The last tenth, never trained on.
  Bytes validation() const { return Bytes(bytes_).last(bytes_.size() / 10); }

  // Size and hash: equal for equal data, wherever it lies.
  std::string fingerprint() const;

 private:
  std::vector<std::uint8_t> bytes_;
};

// Data seen as windows of context + 1 bytes, of which each but the first is predicted once: they share their ends.
inline std::size_t window_count(Bytes data, std::size_t context) {
  return data.empty() ? 0 : (data.size() - 1) / context;
}
inline Bytes window(Bytes data, std::size_t context, std::size_t i) { return data.subspan(i * context, context + 1); }

}  // namespace train
