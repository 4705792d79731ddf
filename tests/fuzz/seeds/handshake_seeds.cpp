// SPDX-License-Identifier: BSD-3-Clause
// Writes handshake_fuzzer's first inputs: real prefaces of either side, and two sides that meet in each way.
// usage: handshake_seeds CORPUS_FOLDER
#include <string>

#include "rendezvous/membership/handshake.hpp"
#include "tests/fuzz/seeds/seeds.hpp"

int main(int argc, char** argv) {
  using namespace ddp::rendezvous;
  if (argc != 2) return 2;
  ddp::fuzz::Seeds seeds(argv[1]);
  for (int choice = 0; choice < 64; choice += 4) {
    for (char kinds = 0; kinds < 9; ++kinds) {
      const Membership member = kinds % 3 == 1 ? Membership(Secret(Secret::Bytes{})) : Membership();
      const std::string preface = AgentHandshake("x", member, JobTag{7}).preface();
      const std::string head = {static_cast<char>(choice), kinds, '\5'};
      seeds.write(head + preface + std::string(40, '\0'));
      seeds.write(head + std::string("\12\0", 2));
      seeds.write(head + "\106\1");
    }
  }
  return 0;
}
