// SPDX-License-Identifier: BSD-3-Clause
// Writes warm_parent_fuzzer's first inputs: what launcher/preload/warm_parent.py says.
// usage: warm_parent_seeds CORPUS_FOLDER
#include <string>

#include "tests/fuzz/seeds/seeds.hpp"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  ddp::fuzz::Seeds seeds(argv[1]);
  for (const char* said : {"ready 2.310 torch,numpy\nspawned 4711 4712\n", "ready 0.001 \nspawned 1\nspawned 2\n",
                           "refused importing x failed: ImportError: No module named 'x'\n", "failed out of memory\n",
                           "ready 1 a\nspawned -1\n", "ready nan\n", "\x1b[2J\n"}) {
    for (const char* piece : {"\1", "\7", "\377"}) seeds.write(std::string(piece) + said);
  }
  return 0;
}
