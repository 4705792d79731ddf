// SPDX-License-Identifier: BSD-3-Clause
#include "apps/train/corpus.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <random>
#include <set>

#include "apps/train/failure.hpp"

namespace train {
namespace {

namespace fs = std::filesystem;

std::set<fs::path> files_of(const fs::path& path) {
  if (fs::is_regular_file(path)) return {path};
  if (!fs::is_directory(path)) throw BadInput("--data " + path.string() + ": no such file or folder");
  std::set<fs::path> files;  // by name; canonical, so that a link and its target are one
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
    if (entry.is_regular_file()) files.insert(fs::canonical(entry));
  }
  return files;
}

}  // namespace

Corpus::Corpus(const fs::path& path) try {
  for (const fs::path& file : files_of(path)) {
    std::ifstream in(file, std::ios::binary);
    if (!in) throw BadInput("--data " + file.string() + ": " + std::strerror(errno));
    bytes_.resize(bytes_.size() + fs::file_size(file));
    const auto size = static_cast<std::streamsize>(fs::file_size(file));
    in.read(reinterpret_cast<char*>(bytes_.data() + bytes_.size()) - size, size);
    if (!in) throw BadInput("--data " + file.string() + ": could not be read to its end");
  }
  if (bytes_.empty())
    throw BadInput("--data " + path.string() + ": has no bytes to train on: name a file or folder with text");
} catch (const fs::filesystem_error& e) {
  throw BadInput("--data " + e.path1().string() + ": " + e.code().message() +
                 ": name a file or folder that can be read");
}

std::string Corpus::fingerprint() const {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const std::uint8_t byte : bytes_) hash = (hash ^ byte) * 0x100000001b3;
  return std::to_string(bytes_.size()) + " bytes, fnv1a " + std::to_string(hash);
}

Sampler::Sampler(std::span<const std::uint8_t> data, int context, std::uint64_t seed)
    : data_(data),
      context_(static_cast<std::size_t>(context)),
      seed_(seed),
      windows_per_epoch_((std::ssize(data) - context) / context) {}

std::span<const std::uint8_t> Sampler::window(std::int64_t n) {
  if (n / windows_per_epoch_ != epoch_) shuffle(n / windows_per_epoch_);
  return data_.subspan(starts_[static_cast<std::size_t>(n % windows_per_epoch_)], context_ + 1);
}

void Sampler::shuffle(std::int64_t epoch) {
  std::seed_seq sequence{seed_, seed_ >> 32, static_cast<std::uint64_t>(epoch)};
  std::mt19937_64 random(sequence);
  const std::size_t shift = random() % context_;
  starts_.resize(static_cast<std::size_t>(windows_per_epoch_));
  for (std::size_t i = 0; i < starts_.size(); ++i) starts_[i] = shift + i * context_;
  std::shuffle(starts_.begin(), starts_.end(), random);
  epoch_ = epoch;
}

std::vector<std::span<const std::uint8_t>> spread_windows(std::span<const std::uint8_t> data, int context,
                                                          std::size_t limit) {
  const auto length = static_cast<std::size_t>(context);
  const std::size_t available = data.empty() ? 0 : (data.size() - 1) / length;
  const std::size_t count = std::min(available, limit);
  std::vector<std::span<const std::uint8_t>> windows;
  for (std::size_t i = 0; i < count; ++i) {
    windows.push_back(data.subspan(i * available / count * length, length + 1));
  }
  return windows;
}

}  // namespace train
