// SPDX-License-Identifier: BSD-3-Clause
// Writes handshake_fuzzer's first inputs: real prefaces of either side, and two sides that meet in each way.
// usage: handshake_seeds CORPUS_FOLDER
#include <filesystem>
#include <fstream>
#include <string>

#include "rendezvous/link/handshake.hpp"

int main(int argc, char** argv) {
  using namespace ddp::rendezvous;
  if (argc != 2) return 2;
  std::filesystem::create_directories(argv[1]);
  int seeds = 0;
  const auto write = [&](const std::string& bytes) {
    std::ofstream(std::filesystem::path(argv[1]) / ("seed-" + std::to_string(seeds++)), std::ios::binary) << bytes;
  };
  for (int choice = 0; choice < 64; ++choice) {
    const auto secret = choice & 1 ? std::optional(Secret(Secret::Bytes{})) : std::nullopt;
    const std::string preface = AgentHandshake("x", secret, JobTag{7}, Nonce{9}).preface();
    write(static_cast<char>(choice) + std::string("\5") + preface + std::string(40, '\0'));
    write(std::string{static_cast<char>(choice), 5, 10, 0});
    write(std::string{static_cast<char>(choice), 5, 70, 1});
  }
  return 0;
}
