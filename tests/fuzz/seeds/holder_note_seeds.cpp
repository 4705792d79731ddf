// SPDX-License-Identifier: BSD-3-Clause
// Writes holder_note_fuzzer's first inputs: whole notes, and one that lacks a line.
// usage: holder_note_seeds CORPUS_FOLDER
#include "launcher/coordination/holder_note.hpp"
#include "tests/fuzz/seeds/seeds.hpp"

int main(int argc, char** argv) {
  using ddp::launcher::HolderNote;
  if (argc != 2) return 2;
  ddp::fuzz::Seeds seeds(argv[1]);
  seeds.write(text_of(HolderNote{"5d1f0e6a9c3b7284", "node0", {"10.0.0.1", "fe80::1%eth0"}, 40313}));
  seeds.write(text_of(HolderNote{"a", "b", {"::1"}, 1}));
  seeds.write("node a\nhost b\nport 1\n");
  return 0;
}
