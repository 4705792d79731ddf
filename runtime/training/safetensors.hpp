// SPDX-License-Identifier: BSD-3-Clause
// Checkpoints as safetensors files (github.com/huggingface/safetensors):
//
//     u64 little endian: length H of the header | H bytes of JSON, padded with spaces to 8 | tensor data, no gaps
//
//     {"__metadata__":{"step":"7"},"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}
//
// Written to a temporary name, fsynced and renamed, so that a crash leaves the old file or the new one. What is read is
// not trusted: everything the header claims is checked against the file before anything else is done with it.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "ddp/ddp.h"

namespace ddp::runtime {

// Throws rendezvous::Error; the file at `path` is then as it was.
void save_checkpoint(const std::string& path, std::span<const ddp_tensor> tensors,
                     std::span<const ddp_metadata_entry> metadata);

// An open file. const methods may be called from several threads.
class Checkpoint {
 public:
  // Throws rendezvous::Error: System if it cannot be read, Corrupt if it is not what it should be.
  explicit Checkpoint(const std::string& path);
  ~Checkpoint();
  Checkpoint(const Checkpoint&) = delete;
  Checkpoint& operator=(const Checkpoint&) = delete;

  const std::string* metadata(const std::string& key) const;  // nullptr: no such key
  void read(const std::string& name, const ddp_buffer& buffer, std::span<const std::int64_t> shape) const;

 private:
  struct Tensor {
    std::string dtype;  // as in the file; may be one that only others read
    std::vector<std::int64_t> shape;
    std::uint64_t begin = 0;  // within the data
    std::uint64_t end = 0;
  };

  void parse_header(const std::string& header, std::uint64_t data_size);
  [[noreturn]] void corrupt(const std::string& what) const;

  std::string path_;
  int file_ = -1;
  std::uint64_t data_begin_ = 0;
  std::map<std::string, Tensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace ddp::runtime
