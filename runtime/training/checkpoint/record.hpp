// SPDX-License-Identifier: BSD-3-Clause
// Contents of a checkpoint of several files: which slice of which tensor lies where, with
// checksums. The record is written last, as checkpoint.json; a folder without it is not a
// checkpoint. Each rank makes a record of the file it wrote, and rank 0 joins them.
//
//     {"checksum":"1f0e...",                                            of everything after this line
//     "format":"ddp checkpoint 1","step":500,"metadata":{"lr":"0.1"},"block":4194304,
//     "files":[{"name":"model-00001-of-00002.safetensors","bytes":48128,"header_bytes":128,"header_checksum":"..."},
//     ...], "tensors":{"w":{"dtype":"F32","shape":[4,3],"parts":[
//       {"file":0,"begin":128,"offset":[0,0],"shape":[2,3],"checksums":["..."]}, ...]}}}
//
// A part has one checksum for each block of its bytes, so that a slice can be read and checked
// without reading the rest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/training/tensor_file/tensor_box.hpp"

namespace ddp::runtime {

inline constexpr std::uint64_t kChecksumBlock = 4ULL << 20;     // bytes
inline constexpr std::uint64_t kMaxRecordBytes = 512ULL << 20;  // what four million parts need

struct CheckpointRecord {
  struct File {
    std::string name;
    std::uint64_t bytes = 0;
    std::uint64_t header_bytes = 0;
    std::uint64_t header_checksum = 0;
  };
  struct Part {
    std::size_t file = 0;     // index in files
    std::uint64_t begin = 0;  // byte offset in the file
    Box box;                  // its elements within the tensor
    std::vector<std::uint64_t> checksums = {};
  };
  struct Tensor {
    std::string dtype;  // the name used in safetensors files
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
// Returns the record that `text` holds. path is for messages. Throws Error{Corrupt} if the text is
// not what to_string() writes, if a part is not possible or a tensor is not whole, or if the parts do
// not fill the files. The checksum is no proof: anybody can compute it.
CheckpointRecord parse_record(const std::string& path, std::string_view text);
// Does the same for the record of one rank, whose tensors need not be whole.
CheckpointRecord parse_rank_record(const std::string& path, std::string_view text);
// Returns the files and tensors of all ranks, with the step and metadata of rank 0. Throws
// Error{Mismatch} if ranks disagree about a tensor, or if the parts do not make a tensor whole.
CheckpointRecord join(const std::vector<CheckpointRecord>& ranks);

// Returns whether there are several files and every tensor is whole in one of them. Hugging Face's
// libraries can then read the files, with index_json() as model.safetensors.index.json.
bool has_index(const CheckpointRecord& record);
std::string index_json(const CheckpointRecord& record);

}  // namespace ddp::runtime
