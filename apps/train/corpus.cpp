// SPDX-License-Identifier: BSD-3-Clause
#include "apps/train/corpus.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>

#include "apps/train/failure.hpp"

namespace train {
namespace {

namespace fs = std::filesystem;

std::set<fs::path> files_of(const fs::path& path) {
  if (fs::is_regular_file(path)) return {path};
  if (!fs::is_directory(path)) throw BadInput("--data " + path.string() + ": no such file or folder");
  std::set<fs::path> files;  // sorted by name; canonical paths, so that a link and its target are one file
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

}  // namespace train
