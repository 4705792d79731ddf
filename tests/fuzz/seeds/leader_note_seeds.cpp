// SPDX-License-Identifier: BSD-3-Clause
// Writes leader_note_fuzzer's first inputs: whole notes, and one that lacks a line.
// usage: leader_note_seeds CORPUS_FOLDER
#include "launcher/coordination/leader_note.hpp"
#include "tests/fuzz/seeds/seeds.hpp"

int main(int argc, char** argv) {
  using ddp::launcher::LeaderNote;
  if (argc != 2) return 2;
  ddp::fuzz::Seeds seeds(argv[1]);
  seeds.write(text_of(LeaderNote{"5d1f0e6a9c3b7284", "node0", {"10.0.0.1", "fe80::1%eth0"}, 40313}));
  seeds.write(text_of(LeaderNote{"a", "b", {"::1"}, 1}));
  seeds.write("node a\nhost b\nport 1\n");
  return 0;
}
