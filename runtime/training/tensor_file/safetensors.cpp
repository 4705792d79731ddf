// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training/tensor_file/safetensors.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "rendezvous/base/error.hpp"
#include "rendezvous/base/text.hpp"
#include "runtime/base/buffer.hpp"

namespace ddp::runtime {
namespace {

using rendezvous::Error;
using rendezvous::ErrorCode;
using Json = nlohmann::ordered_json;

static_assert(std::endian::native == std::endian::little, "safetensors files are little endian");

constexpr char kMetadata[] = "__metadata__";
constexpr std::uint64_t kMaxHeader = 100'000'000;  // the reference implementation's limit
constexpr std::uint64_t kPrefix = 8;

// The names of libddp's types, in the order of ddp_dtype, then those that only other programs
// write.
struct FileType {
  std::string_view name;
  std::uint64_t size;
};
constexpr std::array<FileType, 15> kFileTypes = {{{"F32", 4},
                                                  {"F64", 8},
                                                  {"I32", 4},
                                                  {"I64", 8},
                                                  {"U8", 1},
                                                  {"I8", 1},
                                                  {"I16", 2},
                                                  {"U16", 2},
                                                  {"U32", 4},
                                                  {"U64", 8},
                                                  {"F16", 2},
                                                  {"BF16", 2},
                                                  {"BOOL", 1},
                                                  {"F8_E4M3", 1},
                                                  {"F8_E5M2", 1}}};

[[noreturn]] void invalid(const std::string& path, const std::string& what) {
  throw Error(ErrorCode::InvalidArgument, "checkpoint " + path + ": " + what);
}

std::uint64_t checked_bytes(const std::string& path, const ddp_tensor& tensor) {
  const std::string name = tensor.name != nullptr ? tensor.name : "";
  if (name.empty() || name == kMetadata) invalid(path, "\"" + name + "\" cannot be a tensor's name");
  if (dtype_size(tensor.dtype) == 0) invalid(path, name + ": there is no element type " + std::to_string(tensor.dtype));
  if (tensor.rank > 0 && tensor.shape == nullptr) invalid(path, name + ": its shape is null");
  const std::span<const std::int64_t> shape(tensor.shape, tensor.rank);
  const auto bytes = shape_bytes(shape, dtype_size(tensor.dtype));
  if (!bytes) invalid(path, name + ": a shape of " + to_string(shape) + " makes no sense");
  if (tensor.data == nullptr && *bytes > 0) invalid(path, name + ": its data is null");
  return *bytes;
}

// Returns a name next to path that no other process or thread uses.
std::string temporary_name(const std::string& path) {
  static std::atomic<unsigned> counter{0};
  return path + ".tmp." + std::to_string(getpid()) + "." + std::to_string(counter++);
}

FileTensor parse_tensor(const std::string& path, const std::string& name, const Json& entry, std::uint64_t data_begin) {
  const auto natural = [](const Json& j) { return j.is_number_unsigned() && j.get<std::uint64_t>() <= INT64_MAX / 2; };
  const auto dtype = entry.find("dtype");
  const auto shape = entry.find("shape");
  const auto offsets = entry.find("data_offsets");
  if (dtype == entry.end() || shape == entry.end() || offsets == entry.end() || !dtype->is_string() ||
      !shape->is_array() || !offsets->is_array() || offsets->size() != 2 ||
      !std::all_of(shape->begin(), shape->end(), natural) || !std::all_of(offsets->begin(), offsets->end(), natural)) {
    corrupt(path, "tensor " + name + " lacks a valid dtype, shape or data_offsets");
  }
  const auto begin = (*offsets)[0].get<std::uint64_t>();
  const auto end = (*offsets)[1].get<std::uint64_t>();
  FileTensor tensor{dtype->get<std::string>(), shape->get<Shape>(), data_begin + begin, data_begin + end};
  const std::uint64_t size = file_type_size(tensor.dtype);
  if (size == 0) corrupt(path, "tensor " + name + " is of the unknown type " + tensor.dtype);
  if (begin > end || shape_bytes(tensor.shape, size) != end - begin) {
    corrupt(path, "tensor " + name + ": bytes " + std::to_string(begin) + " to " + std::to_string(end) + " cannot be " +
                      to_string(tensor.shape) + " of " + tensor.dtype);
  }
  return tensor;
}

// Checks that the tensors fill the data one after the other, without gaps.
void check_places(const std::string& path, const FileHeader& header, std::uint64_t data_size) {
  std::vector<const std::pair<const std::string, FileTensor>*> tensors;
  tensors.reserve(header.tensors.size());
  for (const auto& tensor : header.tensors) tensors.push_back(&tensor);
  // An empty tensor may share its place with the one that follows it.
  std::sort(tensors.begin(), tensors.end(), [](const auto* a, const auto* b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  std::uint64_t next = header.bytes;
  for (const auto* tensor : tensors) {
    if (tensor->second.begin != next) {
      corrupt(path, "tensor " + tensor->first + " begins at byte " +
                        std::to_string(tensor->second.begin - header.bytes) + ", the one before it ends at " +
                        std::to_string(next - header.bytes));
    }
    next = tensor->second.end;
  }
  next -= header.bytes;
  if (next > data_size) {
    corrupt(path, "it is truncated: " + std::to_string(next) + " bytes of data announced, " +
                      std::to_string(data_size) + " there");
  }
  if (next < data_size) {
    corrupt(path, "it has " + std::to_string(data_size - next) + " bytes after the last tensor");
  }
}

}  // namespace

std::string_view file_type(std::int32_t dtype) { return kFileTypes[static_cast<std::size_t>(dtype)].name; }

std::optional<std::int32_t> own_type(std::string_view type) {
  for (std::int32_t dtype = 0; dtype_size(dtype) > 0; ++dtype) {
    if (file_type(dtype) == type) return dtype;
  }
  return std::nullopt;
}

std::uint64_t file_type_size(std::string_view type) {
  const auto found =
      std::find_if(kFileTypes.begin(), kFileTypes.end(), [&](const FileType& each) { return each.name == type; });
  return found != kFileTypes.end() ? found->size : 0;
}

std::optional<std::uint64_t> shape_bytes(std::span<const std::int64_t> shape, std::uint64_t element_size) {
  std::uint64_t bytes = element_size;
  bool empty = false;
  for (const std::int64_t n : shape) {
    if (n < 0) return std::nullopt;
    if (n == 0) empty = true;
    if (n != 0 && __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(n), &bytes)) return std::nullopt;
  }
  if (bytes > static_cast<std::uint64_t>(INT64_MAX)) return std::nullopt;
  return empty ? 0 : bytes;
}

void corrupt(const std::string& path, const std::string& what) {
  throw Error(ErrorCode::Corrupt, "checkpoint " + path + ": " + what + " (delete it and go on from an older one)");
}

std::string make_header(const std::string& path, std::span<const ddp_tensor> tensors,
                        std::span<const ddp_metadata_entry> metadata) {
  if (tensors.data() == nullptr && !tensors.empty()) invalid(path, "the tensors are null");
  if (metadata.data() == nullptr && !metadata.empty()) invalid(path, "the metadata is null");
  // The metadata comes first, then the tensors with their offsets.
  Json header = Json::object();
  if (!metadata.empty()) {
    Json entries = Json::object();
    for (const ddp_metadata_entry& e : metadata) {
      if (e.key == nullptr || e.value == nullptr) invalid(path, "a metadata entry is null");
      entries[e.key] = e.value;
    }
    header[kMetadata] = std::move(entries);
  }
  std::set<std::string_view> names;
  std::uint64_t offset = 0;
  for (const ddp_tensor& t : tensors) {
    const std::uint64_t bytes = checked_bytes(path, t);
    if (!names.insert(t.name).second) invalid(path, std::string("two tensors are named ") + t.name);
    header[t.name] = {{"dtype", file_type(t.dtype)},
                      {"shape", std::vector<std::int64_t>(t.shape, t.shape + t.rank)},
                      {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const Json::exception&) {
    invalid(path, "a name or a metadata entry is not valid UTF-8");
  }
  // Pad, so that the data begins at a multiple of 8, and prepend the length.
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > kMaxHeader)
    invalid(path, "the header would be larger than " + rendezvous::describe_bytes(kMaxHeader));
  const std::uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), kPrefix) + text;
}

std::uint64_t data_bytes(const ddp_tensor& tensor) {
  return shape_bytes({tensor.shape, tensor.rank}, dtype_size(tensor.dtype)).value();
}

FileHeader read_header(const std::string& path, const OpenFile& file) {
  // The length must fit the file before anything of that size is allocated.
  std::uint64_t length = 0;
  const std::uint64_t size = file.size();
  if (size < kPrefix || file.read_at(&length, kPrefix, 0) != kPrefix) {
    corrupt(path, "it is truncated: " + std::to_string(size) + " bytes, shorter than the length of a header");
  }
  if (length > kMaxHeader) {
    corrupt(path, "it announces a header of " + std::to_string(length) + " bytes: not a safetensors file");
  }
  if (length > size - kPrefix) {
    corrupt(path, "it is truncated: " + std::to_string(length) + " bytes of header announced, " +
                      std::to_string(size - kPrefix) + " there");
  }
  std::string text(length, '\0');
  if (file.read_at(text.data(), length, kPrefix) != length) corrupt(path, "it shrank while being read");
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) corrupt(path, "its header is not a JSON object");

  FileHeader header;
  // Each entry is a tensor, except the one with the metadata.
  header.bytes = kPrefix + length;
  for (const auto& item : json.items()) {
    const std::string& name = item.key();
    const Json& entry = item.value();
    if (!entry.is_object()) corrupt(path, "the entry " + name + " of its header is not an object");
    if (name == kMetadata) {
      for (const auto& pair : entry.items()) {
        if (!pair.value().is_string()) corrupt(path, "the metadata " + pair.key() + " is not a string");
        header.metadata[pair.key()] = pair.value().get<std::string>();
      }
    } else if (!header.tensors.emplace(name, parse_tensor(path, name, entry, header.bytes)).second) {
      corrupt(path, "it has two tensors named " + name);
    }
  }
  check_places(path, header, size - header.bytes);
  return header;
}

void save_checkpoint(const std::string& path, std::span<const ddp_tensor> tensors,
                     std::span<const ddp_metadata_entry> metadata) {
  const std::string header = make_header(path, tensors, metadata);
  NewFile file(temporary_name(path));
  file.write(header.data(), header.size());
  for (const ddp_tensor& t : tensors) file.write(t.data, data_bytes(t));
  file.replace(path);
}

}  // namespace ddp::runtime
