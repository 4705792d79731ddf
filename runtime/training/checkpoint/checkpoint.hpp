// SPDX-License-Identifier: BSD-3-Clause
// A checkpoint opened for reading: one safetensors file, written by libddp or by another program,
// or the folder of one step with its record. A plain file is treated as a record of one file in
// which each tensor is one part, without checksums.
//
// const methods may be called from several threads. All methods throw rendezvous::Error: System if
// a file cannot be read, Corrupt if a file is damaged; that message names file, tensor and bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ddp/ddp.h"
#include "runtime/training/checkpoint/record.hpp"
#include "runtime/training/tensor_file/durable_file.hpp"

namespace ddp::runtime {

inline constexpr char kRecordFile[] = "checkpoint.json";

class Checkpoint {
 public:
  explicit Checkpoint(const std::string& path);

  std::optional<std::int64_t> step() const;                   // none for a plain file
  const std::string* metadata(const std::string& key) const;  // nullptr: no such key

  std::size_t tensor_count() const { return tensors_.size(); }
  ddp_tensor tensor(std::size_t i) const;  // in the order of names; dtype -1: a type that libddp does not have

  // Reads the whole tensor, which must have this shape.
  void read(const std::string& name, const ddp_buffer& buffer, std::span<const std::int64_t> shape) const;
  // Reads the elements of one box of the tensor.
  void read_slice(const std::string& name, const ddp_buffer& buffer, const Box& box) const;

  // Reads every stride-th file, beginning with the first-th, and checks everything that has a
  // checksum.
  void verify(std::size_t first = 0, std::size_t stride = 1) const;

 private:
  using Record = CheckpointRecord;
  using NamedTensor = std::pair<const std::string, Record::Tensor>;
  struct NamedPart {
    const NamedTensor* tensor;
    const Record::Part* part;
  };

  const Record::Tensor& find(const std::string& name) const;
  [[noreturn]] void mismatch(const std::string& name, const Record::Tensor& tensor, const std::string& asked,
                             std::int32_t dtype) const;
  void read_box(const std::string& name, const Record::Tensor& tensor, const Box& box, char* to) const;
  void verify_file(std::size_t file, const std::vector<NamedPart>& parts) const;
  std::string file_path(std::size_t file) const;
  OpenFile open_file(std::size_t file) const;

  std::string path_;
  std::optional<OpenFile> only_;   // set if this is a plain file
  rendezvous::Descriptor folder_;  // set if it is not
  Record record_;
  std::vector<const NamedTensor*> tensors_;  // point into record_
};

}  // namespace ddp::runtime
