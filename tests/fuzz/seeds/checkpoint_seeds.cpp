// SPDX-License-Identifier: BSD-3-Clause
// Writes the fuzzer's first inputs: records and headers as they are saved, and the header of a file
// that PyTorch's users wrote.
// usage, in the root of the repository: checkpoint_seeds CORPUS_FOLDER
#include <cstdint>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "runtime/training/checkpoint/record.hpp"
#include "runtime/training/tensor_file/safetensors.hpp"

using namespace ddp::runtime;

namespace {

constexpr char kGolden[] = "tests/runtime/training/golden/ddp/world_1.safetensors";
constexpr std::size_t kSeedBytes = 4095;  // scripts/stress/fuzz allows inputs of 4096

// Returns the record of one rank's file with one row, column or block of a tensor of 2 x 2 x 2, and a scalar.
CheckpointRecord rank_with(const std::string& file, const Box& box, bool has_scalar) {
  const std::uint64_t bytes = element_count(box) * 4;
  CheckpointRecord record{7, {{"lr", "0.1"}}, {{file, 128 + bytes + (has_scalar ? 8 : 0), 128, 0xfeed}}};
  record.tensors["layer.w"] = {"F32", {2, 2, 2}, {{0, 128, box, {17}}}};
  if (has_scalar) record.tensors["step"] = {"I64", {}, {{0, 128 + bytes, whole_box({}), {1}}}};
  return record;
}

// A record without the line that has its checksum.
std::string body_of(const CheckpointRecord& record) {
  const std::string text = to_string(record);
  return "r" + text.substr(text.find('\n') + 1);
}

// The JSON of a header, from the file's first bytes.
std::string json_of(const std::string& bytes) {
  std::uint64_t length = 0;
  bytes.copy(reinterpret_cast<char*>(&length), sizeof length);
  return "h" + bytes.substr(sizeof length, length);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  std::vector<std::string> seeds = {body_of(join({rank_with("a", whole_box({2, 2, 2}), true)}))};
  for (std::size_t d = 0; d < 3; ++d) {
    Box first = whole_box({2, 2, 2}), second = first;
    first.size[d] = second.size[d] = second.begin[d] = 1;
    seeds.push_back(body_of(join({rank_with("a", first, true), rank_with("b", second, false)})));
  }
  std::vector<CheckpointRecord> blocks;
  for (std::int64_t i = 0; i < 4; ++i) {
    blocks.push_back(rank_with("block" + std::to_string(i), {{i / 2, i % 2, 0}, {1, 1, 2}}, i == 0));
  }
  seeds.push_back(body_of(join(blocks)));

  const std::vector<float> values(6);
  const std::vector<std::int64_t> matrix = {2, 3}, none = {0, 4};
  const std::vector<ddp_tensor> tensors = {{"w", values.data(), DDP_FLOAT32, matrix.data(), matrix.size()},
                                           {"empty", nullptr, DDP_FLOAT64, none.data(), none.size()},
                                           {"n \u00e4 \"", values.data(), DDP_INT64, nullptr, 0}};
  const std::vector<ddp_metadata_entry> metadata = {{"step", "7"}, {"lr", "0.1"}};
  seeds.push_back(json_of(make_header("seed", tensors, metadata)));
  seeds.push_back(json_of(make_header("seed", {}, {})));
  std::ifstream golden(kGolden, std::ios::binary);
  if (!golden) {
    std::cerr << "checkpoint_seeds: cannot read " << kGolden
              << "; the current folder has to be the repository's root\n";
    return 1;
  }
  seeds.push_back(json_of(std::string(std::istreambuf_iterator<char>(golden), {})).substr(0, kSeedBytes));

  for (std::size_t i = 0; i < seeds.size(); ++i) std::ofstream(argv[1] + ("/" + std::to_string(i))) << seeds[i];
  std::cout << seeds.size() << " seeds\n";
  return seeds.back().size() > 1 ? 0 : 1;
}
