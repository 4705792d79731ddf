// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training/checkpoint/shard_file.hpp"

#include <algorithm>

#include "rendezvous/base/error.hpp"
#include "runtime/base/buffer.hpp"
#include "runtime/training/tensor_file/checksum.hpp"
#include "runtime/training/tensor_file/durable_file.hpp"
#include "runtime/training/tensor_file/safetensors.hpp"

namespace ddp::runtime {
namespace {

[[noreturn]] void invalid(const std::string& what) {
  throw rendezvous::Error(rendezvous::ErrorCode::InvalidArgument, what);
}

TensorSlice take_slice(const ddp_tensor_slice& given) {
  const ddp_tensor& part = given.part;
  if (part.name == nullptr) invalid("a tensor's name is null");
  const std::string name = part.name;
  if ((given.offset == nullptr) != (given.whole_shape == nullptr)) {
    invalid(name + ": give both offset and whole_shape, or neither");
  }
  if (part.rank > 0 && part.shape == nullptr) invalid(name + ": its shape is null");
  if (dtype_size(part.dtype) == 0) invalid(name + ": there is no element type " + std::to_string(part.dtype));
  const Shape shape(part.shape, part.shape + part.rank);
  check_device(name.c_str(), part.device);
  TensorSlice slice{name, part.dtype, whole_box(shape), shape, part.data, 0, part.device};
  if (given.offset != nullptr) {
    slice.box.begin.assign(given.offset, given.offset + part.rank);
    slice.whole_shape.assign(given.whole_shape, given.whole_shape + part.rank);
  }
  if (!shape_bytes(slice.whole_shape, dtype_size(part.dtype)) || !is_within(slice.box, slice.whole_shape)) {
    invalid(name + ": " + to_string(slice.box) + " is not within " + to_string(slice.whole_shape));
  }
  slice.bytes = element_count(slice.box) * dtype_size(part.dtype);
  if (slice.data == nullptr && slice.bytes > 0) invalid(name + ": its data is null");
  return slice;
}

std::string name_in_file(const TensorSlice& slice) {
  return slice.box == whole_box(slice.whole_shape) ? slice.name : slice.name + to_string(slice.box);
}

std::string header_of(const std::string& path, std::span<const TensorSlice> slices, const MetadataEntries& metadata) {
  std::vector<std::string> names;
  names.reserve(slices.size());  // `tensors` points to them
  std::vector<ddp_tensor> tensors;
  for (const TensorSlice& s : slices) {
    names.push_back(name_in_file(s));
    tensors.push_back({names.back().c_str(), s.data, s.dtype, s.box.size.data(), s.box.size.size(), {DDP_CPU, 0}});
  }
  std::vector<ddp_metadata_entry> entries;
  for (const auto& [key, value] : metadata) entries.push_back({key.c_str(), value.c_str()});
  return make_header(path, tensors, entries);
}

}  // namespace

std::vector<TensorSlice> take_slices(std::span<const ddp_tensor_slice> slices) {
  if (slices.data() == nullptr && !slices.empty()) invalid("the tensors are null");
  std::vector<TensorSlice> taken;
  for (const ddp_tensor_slice& each : slices) taken.push_back(take_slice(each));
  std::stable_sort(taken.begin(), taken.end(), [](const TensorSlice& a, const TensorSlice& b) {
    return lies_before(a.dtype, a.name, b.dtype, b.name);
  });
  return taken;
}

MetadataEntries take_metadata(std::span<const ddp_metadata_entry> metadata) {
  if (metadata.data() == nullptr && !metadata.empty()) invalid("the metadata is null");
  MetadataEntries taken;
  for (const ddp_metadata_entry& each : metadata) {
    if (each.key == nullptr || each.value == nullptr) invalid("a metadata entry is null");
    taken.emplace_back(each.key, each.value);
  }
  return taken;
}

CheckpointRecord write_shard(const std::string& folder, const std::string& name, std::span<const TensorSlice> slices,
                             const MetadataEntries& metadata, std::atomic<std::uint64_t>& written) {
  const std::string path = folder + "/" + name;
  const std::string header = header_of(path, slices, metadata);
  CheckpointRecord record;
  NewFile file(path);
  file.write(header.data(), header.size());
  // Write the slices one after the other, with a checksum for each block.
  std::uint64_t at = header.size();
  for (const TensorSlice& slice : slices) {
    CheckpointRecord::Part part{0, at, slice.box};
    for (std::uint64_t done = 0; done < slice.bytes; done += kChecksumBlock) {
      const char* block = static_cast<const char*>(slice.data) + done;
      const std::uint64_t size = std::min(kChecksumBlock, slice.bytes - done);
      part.checksums.push_back(checksum(block, size));  // first: the write then finds the block in the cache
      file.write(block, size);
      written += size;
    }
    at += slice.bytes;
    const CheckpointRecord::Tensor tensor{std::string(file_type(slice.dtype)), slice.whole_shape};
    record.tensors.try_emplace(slice.name, tensor).first->second.parts.push_back(std::move(part));
  }
  file.finish();
  record.files.push_back({name, at, header.size(), checksum(header.data(), header.size())});
  return record;
}

}  // namespace ddp::runtime
