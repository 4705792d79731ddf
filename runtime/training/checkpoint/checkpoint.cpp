// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training/checkpoint/checkpoint.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "collectives/gpu/cuda_device.hpp"
#include "rendezvous/base/error.hpp"
#include "runtime/base/buffer.hpp"
#include "runtime/device/current_stream.hpp"
#include "runtime/training/tensor_file/checksum.hpp"
#include "runtime/training/tensor_file/safetensors.hpp"

namespace ddp::runtime {
namespace {

using rendezvous::Error;
using rendezvous::ErrorCode;

bool is_folder(const std::string& path) {
  struct stat facts = {};
  return stat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode);
}

CheckpointRecord read_record(const std::string& path, const OpenFile& file) {
  if (file.size() > kMaxRecordBytes) {
    corrupt(path, "it has " + std::to_string(file.size()) + " bytes, too many for the record of a checkpoint");
  }
  std::string text(file.size(), '\0');
  if (file.read_at(text.data(), text.size(), 0) != text.size()) corrupt(path, "it shrank while being read");
  return parse_record(path, text);
}

CheckpointRecord record_of(const std::string& path, const OpenFile& file) {
  const FileHeader header = read_header(path, file);
  CheckpointRecord record;
  record.metadata = header.metadata;
  record.files.push_back({path, file.size(), header.bytes});
  for (const auto& [name, tensor] : header.tensors) {
    record.tensors[name] = {tensor.dtype, tensor.shape, {{0, tensor.begin, whole_box(tensor.shape)}}};
  }
  return record;
}

// Reads a part's bytes block by block. Reads each block at most once if the requests come in
// ascending order.
class PartReader {
 public:
  PartReader(const OpenFile& file, std::string description, const CheckpointRecord::Part& part, std::uint64_t bytes,
             const std::string& path)
      : file_(file), description_(std::move(description)), part_(part), bytes_(bytes), path_(path) {}

  void copy(char* to, std::uint64_t from, std::uint64_t size) {
    while (size > 0) {
      const std::uint64_t block = from / kChecksumBlock;
      const std::uint64_t within = from - block * kChecksumBlock;
      const std::uint64_t length = block_length(block);
      const std::uint64_t now = std::min(size, length - within);
      if (now == length) {
        read(to, block);
      } else {
        load(block);
        std::memcpy(to, scratch_.data() + within, now);
      }
      to += now;
      from += now;
      size -= now;
    }
  }

  void verify() {
    for (std::uint64_t block = 0; block < block_count(bytes_); ++block) load(block);
  }

 private:
  std::uint64_t block_length(std::uint64_t block) const {
    return std::min(kChecksumBlock, bytes_ - block * kChecksumBlock);
  }

  void load(std::uint64_t block) {
    if (!scratch_.empty() && loaded_ == block) return;
    scratch_.resize(std::min(kChecksumBlock, bytes_));
    read(scratch_.data(), block);
    loaded_ = block;
  }

  void read(char* to, std::uint64_t block) const {
    const std::uint64_t length = block_length(block);
    const std::uint64_t begin = part_.begin + block * kChecksumBlock;
    if (file_.read_at(to, length, begin) != length) {
      corrupt(path_, "it is truncated: " + description_ + " should be at bytes " + std::to_string(begin) + " to " +
                         std::to_string(begin + length));
    }
    if (part_.checksums.empty() || checksum(to, length) == part_.checksums[block]) return;
    corrupt(path_, description_ + ": bytes " + std::to_string(begin) + " to " + std::to_string(begin + length) +
                       " of the file are not what was written there: their checksum is wrong");
  }

  const OpenFile& file_;
  const std::string description_;
  const CheckpointRecord::Part& part_;
  const std::uint64_t bytes_;
  const std::string& path_;
  std::vector<char> scratch_;
  std::uint64_t loaded_ = 0;
};

std::string describe_part(const std::string& name, const CheckpointRecord::Tensor& tensor,
                          const CheckpointRecord::Part& part) {
  return "tensor " + name + (part.box == whole_box(tensor.shape) ? "" : " " + to_string(part.box));
}

}  // namespace

Checkpoint::Checkpoint(const std::string& path) : path_(path) {
  if (is_folder(path)) {
    folder_ = open_folder(path);
    record_ = read_record(path + "/" + kRecordFile, OpenFile(folder_, path, kRecordFile));
  } else {
    record_ = record_of(path, only_.emplace(path));
  }
  for (const auto& tensor : record_.tensors) tensors_.push_back(&tensor);
}

std::optional<std::int64_t> Checkpoint::step() const {
  return only_ ? std::nullopt : std::optional<std::int64_t>(record_.step);
}

const std::string* Checkpoint::metadata(const std::string& key) const {
  const auto it = record_.metadata.find(key);
  return it != record_.metadata.end() ? &it->second : nullptr;
}

ddp_tensor Checkpoint::tensor(std::size_t i) const {
  if (i >= tensors_.size()) {
    throw Error(ErrorCode::InvalidArgument,
                "checkpoint " + path_ + ": there are " + std::to_string(tensors_.size()) + " tensors in it");
  }
  const auto& [name, tensor] = *tensors_[i];
  return {name.c_str(),        nullptr,     own_type(tensor.dtype).value_or(-1), tensor.shape.data(),
          tensor.shape.size(), {DDP_CPU, 0}};
}

const CheckpointRecord::Tensor& Checkpoint::find(const std::string& name) const {
  const auto it = record_.tensors.find(name);
  if (it != record_.tensors.end()) return it->second;
  throw Error(ErrorCode::Corrupt,
              "checkpoint " + path_ + ": there is no tensor " + name + " in it (it was written by a different model)");
}

void Checkpoint::mismatch(const std::string& name, const Record::Tensor& tensor, const std::string& asked,
                          std::int32_t dtype) const {
  throw Error(ErrorCode::Mismatch, "checkpoint " + path_ + ": tensor " + name + " is " + to_string(tensor.shape) +
                                       " of " + tensor.dtype + (own_type(tensor.dtype) ? "" : ", which libddp lacks") +
                                       ", but " + asked + " of " + std::string(file_type(dtype)) + " was asked for");
}

void Checkpoint::read(const std::string& name, const ddp_buffer& buffer, std::span<const std::int64_t> shape) const {
  check_elements(name.c_str(), buffer.data, buffer.count, buffer.dtype);
  check_device(name.c_str(), buffer.device);
  const Record::Tensor& tensor = find(name);
  if (own_type(tensor.dtype) != buffer.dtype || !std::ranges::equal(tensor.shape, shape)) {
    mismatch(name, tensor, to_string(shape), buffer.dtype);
  }
  read_slice(name, buffer, whole_box(tensor.shape));
}

void Checkpoint::read_slice(const std::string& name, const ddp_buffer& buffer, const Box& box) const {
  check_elements(name.c_str(), buffer.data, buffer.count, buffer.dtype);
  check_device(name.c_str(), buffer.device);
  const Record::Tensor& tensor = find(name);
  if (own_type(tensor.dtype) != buffer.dtype || !is_within(box, tensor.shape)) {
    mismatch(name, tensor, to_string(box), buffer.dtype);
  }
  if (buffer.count != element_count(box)) {
    throw Error(ErrorCode::InvalidArgument, "checkpoint " + path_ + ": tensor " + name + ": " + to_string(box) +
                                                " are " + std::to_string(element_count(box)) +
                                                " elements, but the buffer has " + std::to_string(buffer.count));
  }
  if (buffer.device.kind == DDP_CPU) return read_box(name, tensor, box, static_cast<char*>(buffer.data));
  const std::size_t bytes = buffer.count * dtype_size(buffer.dtype);
  const std::unique_ptr<char[]> copy(new char[bytes]);
  read_box(name, tensor, box, copy.get());
  const collectives::CudaDevice device(collectives::cuda_api(), buffer.device.index);
  device.upload(buffer.data, copy.get(), bytes, current_stream(device.index()));
}

void Checkpoint::read_box(const std::string& name, const Record::Tensor& tensor, const Box& box, char* to) const {
  const std::uint64_t size = file_type_size(tensor.dtype);
  for (const Record::Part& part : tensor.parts) {
    // A scalar has no dimension, so its boxes always intersect; boxes of an empty tensor never do.
    const auto shared = intersection(part.box, box);
    if (!shared) continue;
    const std::string path = file_path(part.file);
    const auto read_from = [&](const OpenFile& file) {
      PartReader reader(file, describe_part(name, tensor, part), part, part_bytes(tensor, part), path);
      for_each_run(*shared, part.box, box,
                   [&](const Run& run) { reader.copy(to + run.to * size, run.from * size, run.count * size); });
    };
    only_ ? read_from(*only_) : read_from(open_file(part.file));
  }
}

void Checkpoint::verify(std::size_t first, std::size_t stride) const {
  if (only_) return;
  std::vector<std::vector<NamedPart>> parts(record_.files.size());
  for (const auto& tensor : record_.tensors) {
    for (const Record::Part& part : tensor.second.parts) parts[part.file].push_back({&tensor, &part});
  }
  for (std::size_t file = first; file < record_.files.size(); file += stride) verify_file(file, parts[file]);
}

void Checkpoint::verify_file(std::size_t i, const std::vector<NamedPart>& parts) const {
  const Record::File& expected = record_.files[i];
  const std::string path = file_path(i);
  const OpenFile file = open_file(i);
  if (file.size() != expected.bytes) {
    corrupt(path, "it has " + std::to_string(file.size()) + " bytes, but " + std::to_string(expected.bytes) +
                      " were written");
  }
  std::string header(expected.header_bytes, '\0');
  if (file.read_at(header.data(), header.size(), 0) != header.size() ||
      checksum(header.data(), header.size()) != expected.header_checksum) {
    corrupt(path, "its header is not what was written: its checksum is wrong");
  }
  for (const NamedPart& each : parts) {
    const auto& [name, tensor] = *each.tensor;
    const Record::Part& part = *each.part;
    PartReader(file, describe_part(name, tensor, part), part, part_bytes(tensor, part), path).verify();
  }
}

std::string Checkpoint::file_path(std::size_t file) const {
  return only_ ? path_ : path_ + "/" + record_.files[file].name;
}

OpenFile Checkpoint::open_file(std::size_t file) const { return {folder_, path_, record_.files[file].name}; }

}  // namespace ddp::runtime
