// SPDX-License-Identifier: BSD-3-Clause
// Writes journal_fuzzer's first inputs: whole and torn journals, and what a journal is made of.
// usage: journal_seeds CORPUS_FOLDER
#include <string>

#include "rendezvous/journal/journal_format.hpp"
#include "tests/fuzz/seeds/seeds.hpp"

int main(int argc, char** argv) {
  using namespace ddp::rendezvous;
  if (argc != 2) return 2;
  ddp::fuzz::Seeds seeds(argv[1]);
  std::string journal = journal_begin("epoch", std::chrono::nanoseconds(1));
  for (int records = 0; records < 4; ++records) {
    seeds.write(journal);
    seeds.write(std::string_view(journal).substr(0, journal.size() - 1));
    journal += journal_record(std::string(static_cast<std::size_t>(records) * 20, 'x'), std::chrono::nanoseconds(2));
  }
  for (int choice = 0; choice < 256; choice += 16) {
    seeds.write(std::string{'\0', static_cast<char>(choice), '\7', '\1'} + "some contents, one after another");
  }
  return 0;
}
