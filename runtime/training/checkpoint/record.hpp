// SPDX-License-Identifier: BSD-3-Clause
// What a checkpoint of several files consists of: which slice of which tensor lies where, with checksums. Written last,
// as checkpoint.json; a folder without it is no checkpoint. Each rank makes one of the file it wrote, rank 0 joins
// them.
//
//     {"checksum":"1f0e...",                                            of all that follows this line
//     "format":"ddp checkpoint 1","step":500,"metadata":{"lr":"0.1"},"block":4194304,
//     "files":[{"name":"model-00001-of-00002.safetensors","bytes":48128,"header_bytes":128,"header_checksum":"..."},
//     ...], "tensors":{"w":{"dtype":"F32","shape":[4,3],"parts":[
//       {"file":0,"begin":128,"offset":[0,0],"shape":[2,3],"checksums":["..."]}, ...]}}}
//
// A part's bytes have a checksum for each block of them, so that a slice can be read and checked without the rest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/training/tensor_file/tensor_box.hpp"

namespace ddp::runtime {

inline constexpr std::uint64_t kChecksumBlock = 4ULL << 20;  // bytes

struct CheckpointRecord {
  struct File {
    std::string name;
    std::uint64_t bytes = 0;
    std::uint64_t header_bytes = 0;
    std::uint64_t header_checksum = 0;
  };
  struct Part {
    std::size_t file = 0;     // in files
    std::uint64_t begin = 0;  // in the file
    Box box;                  // of the tensor
    std::vector<std::uint64_t> checksums = {};
  };
  struct Tensor {
    std::string dtype;  // as safetensors files name it
    Shape shape;
    std::vector<Part> parts = {};
  };

  std::int64_t step = 0;
  std::map<std::string, std::string> metadata = {};
  std::vector<File> files = {};
  std::map<std::string, Tensor> tensors = {};
};

std::uint64_t part_bytes(const CheckpointRecord::Tensor& tensor, const CheckpointRecord::Part& part);
std::uint64_t block_count(std::uint64_t bytes);

std::string to_string(const CheckpointRecord& record);
// path: for messages. Error{Corrupt} if it is not what to_string() makes, or if some part cannot be.
CheckpointRecord parse_record(const std::string& path, std::string_view text);
// The files and tensors of all ranks, the step and metadata of the first. Error{Mismatch} if they do not agree about a
// tensor, or if the parts do not make it whole.
CheckpointRecord join(const std::vector<CheckpointRecord>& ranks);

// Is every tensor whole in one file, and are there several? Then Hugging Face's libraries can read them, with this
// index (model.safetensors.index.json).
bool has_index(const CheckpointRecord& record);
std::string index_json(const CheckpointRecord& record);

}  // namespace ddp::runtime
