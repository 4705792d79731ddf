// SPDX-License-Identifier: BSD-3-Clause
// Writes the fuzzer's first inputs: every recorded conversation, cut into short pieces, as scripts
// (../store_script.hpp).
// usage, in the root of the repository: store_seeds CORPUS_FOLDER
#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/fuzz/store_script.hpp"
#include "tests/rendezvous/store/hex.hpp"

namespace ddp::rendezvous::fuzz {
namespace {

constexpr std::size_t kSeedBytes = 500;    // at most; scripts/stress/fuzz allows inputs of 512
constexpr std::size_t kPiecesBetween = 4;  // distance between the beginnings of two seeds

struct Piece {  // a piece of one client's bytes
  std::uint64_t connection;
  std::string bytes;
};

void append_pieces(std::string& script, std::size_t connection, std::string_view bytes) {
  while (!bytes.empty()) {
    const std::string_view part = bytes.substr(0, 255);
    script += static_cast<char>(step_byte(connection, Step::Bytes));
    script += static_cast<char>(part.size());
    script += part;
    bytes.remove_prefix(part.size());
  }
}

std::string script_of(const std::vector<Piece>& pieces, bool modern) {
  std::string script;
  std::vector<std::uint64_t> seen;
  for (const Piece& piece : pieces) {
    auto place = std::find(seen.begin(), seen.end(), piece.connection);
    const auto connection = static_cast<std::size_t>(place - seen.begin()) % kConnections;
    if (place == seen.end()) {
      if (seen.size() >= kConnections) script += static_cast<char>(step_byte(connection, Step::Disconnect));
      seen.push_back(piece.connection);
      const bool says_hello = piece.bytes.starts_with(std::string_view("\0\xce\xf7", 3));
      if (modern && !says_hello) script += static_cast<char>(step_byte(connection, Step::Hello));
    }
    append_pieces(script, connection, piece.bytes);
  }
  return script;
}

int write_seeds(const std::filesystem::path& captures, const std::filesystem::path& corpus) {
  std::filesystem::create_directories(corpus);
  int seeds = 0;
  for (const auto& entry : std::filesystem::directory_iterator(captures)) {
    if (entry.path().extension() != ".txt") continue;
    std::ifstream lines(entry.path());
    bool modern = false;
    std::vector<Piece> all;
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string kind, hex;
      std::uint64_t connection = 0;
      if (words >> kind >> connection >> hex, kind != ">") continue;
      all.push_back({connection, from_hex(hex)});
      modern = modern || hex.starts_with("00cef7853c");
    }
    for (std::size_t first = 0; first < all.size(); first += kPiecesBetween) {
      std::string script;
      for (std::size_t end = first + 1; end <= all.size(); ++end) {
        std::string longer = script_of(
            {all.begin() + static_cast<std::ptrdiff_t>(first), all.begin() + static_cast<std::ptrdiff_t>(end)}, modern);
        if (longer.size() > kSeedBytes) break;
        script = std::move(longer);
      }
      if (script.empty()) continue;
      std::ofstream(corpus / ("seed-" + std::to_string(seeds++)), std::ios::binary) << script;
    }
  }
  return seeds;
}

}  // namespace
}  // namespace ddp::rendezvous::fuzz

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: store_seeds CORPUS_FOLDER\n";
    return 2;
  }
  const int seeds = ddp::rendezvous::fuzz::write_seeds("tests/rendezvous/store/captures", argv[1]);
  std::cout << seeds << " seeds\n";
  return seeds > 0 ? 0 : 1;
}
