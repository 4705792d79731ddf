// SPDX-License-Identifier: BSD-3-Clause
// One file of tensors in the safetensors format (github.com/huggingface/safetensors):
//
//     u64 little endian: length H of the header | H bytes of JSON, padded with spaces to 8 | tensor data, no gaps
//
//     {"__metadata__":{"step":"7"},"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}
//
// Files are not trusted when read: everything the header claims is checked against the file before
// it is used. A type that libddp does not know makes only its own tensor unreadable. All functions
// throw rendezvous::Error.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "ddp/ddp.h"
#include "runtime/training/tensor_file/durable_file.hpp"
#include "runtime/training/tensor_file/tensor_box.hpp"

namespace ddp::runtime {

// ---- Element types, as files name them ----

std::string_view file_type(std::int32_t dtype);               // name of a ddp_dtype
std::optional<std::int32_t> own_type(std::string_view type);  // the ddp_dtype that it is read as; none if there is none
std::uint64_t file_type_size(std::string_view type);          // bytes of an element; 0: unknown
// Returns the bytes of a tensor of this shape; none if the shape is negative or too large.
std::optional<std::uint64_t> shape_bytes(std::span<const std::int64_t> shape, std::uint64_t element_size);

// ---- Files ----

inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the reference implementation's limit

struct FileTensor {
  std::string dtype;  // as in the file; may be a type that libddp lacks
  Shape shape;
  std::uint64_t begin = 0;  // byte offset in the file
  std::uint64_t end = 0;
};

struct FileHeader {
  std::uint64_t bytes = 0;  // size of everything before the data
  std::map<std::string, FileTensor> tensors;
  std::map<std::string, std::string> metadata;
};

// Returns whether tensor a's data is to lie before tensor b's: larger elements come first, so that each is aligned,
// then names decide. Source: prepare() of the reference implementation.
bool lies_before(std::int32_t a_dtype, std::string_view a_name, std::int32_t b_dtype, std::string_view b_name);
// Returns everything that precedes the data of these tensors. path is for messages. Throws
// Error{InvalidArgument}.
std::string make_header(const std::string& path, std::span<const ddp_tensor> tensors,
                        std::span<const ddp_metadata_entry> metadata);
// Returns the bytes of a tensor that make_header() has accepted.
std::uint64_t data_bytes(const ddp_tensor& tensor);
// Throws Error{Corrupt} if the file is not a valid safetensors file.
FileHeader read_header(const std::string& path, const OpenFile& file);
// Does the same for the JSON of a header. The file has as many bytes at least as precede its data.
FileHeader parse_header(const std::string& path, std::string_view json, std::uint64_t file_bytes);
[[noreturn]] void corrupt(const std::string& path, const std::string& what);

}  // namespace ddp::runtime
