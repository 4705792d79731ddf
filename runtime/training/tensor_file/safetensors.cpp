// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training/tensor_file/safetensors.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "rendezvous/base/error.hpp"
#include "rendezvous/base/new_file.hpp"
#include "rendezvous/base/text.hpp"
#include "runtime/base/buffer.hpp"
#include "runtime/training/tensor_file/json_form.hpp"

namespace ddp::runtime {
namespace {

using rendezvous::Error;
using rendezvous::ErrorCode;
using Json = nlohmann::ordered_json;

static_assert(std::endian::native == std::endian::little, "safetensors files are little endian");

constexpr char kMetadata[] = "__metadata__";
constexpr std::uint64_t kPrefix = 8;
constexpr char kTypeLetters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";

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

// What a header's entry says of a tensor.
struct Entry {
  std::string dtype;
  Shape shape;
  std::vector<std::uint64_t> offsets;
};

// Returns the entry as a tensor in a file whose data begins at this byte.
FileTensor checked_tensor(const std::string& name, Entry& entry, std::uint64_t data_begin) {
  if (entry.offsets.size() != 2)
    throw WrongJson{"tensor " + name + " has " + std::to_string(entry.offsets.size()) + " data_offsets, not 2"};
  const std::uint64_t begin = entry.offsets[0];
  const std::uint64_t end = entry.offsets[1];
  const std::uint64_t size = file_type_size(entry.dtype);
  // An unknown type's name goes into messages.
  if (entry.dtype.empty() || entry.dtype.find_first_not_of(kTypeLetters) != std::string::npos)
    throw WrongJson{"tensor " + name + ": \"" + entry.dtype + "\" is no type's name"};
  if (begin > end || (size != 0 && shape_bytes(entry.shape, size) != end - begin)) {
    throw WrongJson{"tensor " + name + ": bytes " + std::to_string(begin) + " to " + std::to_string(end) +
                    " cannot be " + to_string(entry.shape) + " of " + entry.dtype};
  }
  return {std::move(entry.dtype), std::move(entry.shape), data_begin + begin, data_begin + end};
}

// Reads a header's JSON into `header`, whose `bytes` is known.
void read_entries(std::string_view text, FileHeader& header) {
  std::map<std::string, Entry> entries;
  Entry* entry = nullptr;        // the one that is being read
  std::string* value = nullptr;  // an entry of the metadata
  const JsonForm tensor = JsonForm::object(
      {{"dtype", JsonForm::text([&](const std::string& dtype) { entry->dtype = dtype; })},
       {"shape", JsonForm::array(
                     JsonForm::number([&](std::uint64_t n) { entry->shape.push_back(static_cast<std::int64_t>(n)); }))},
       {"data_offsets", JsonForm::array(JsonForm::number([&](std::uint64_t n) { entry->offsets.push_back(n); }))}});
  const JsonForm metadata = JsonForm::map(JsonForm::text([&](const std::string& given) { *value = given; }),
                                          [&](const std::string& key) { value = &header.metadata[key]; });
  const auto next_tensor = [&](const std::string& name) {
    const auto [place, is_new] = entries.try_emplace(name);
    if (!is_new) throw WrongJson{"it has two tensors named " + name};
    entry = &place->second;
  };
  read_json(text, JsonForm::map(tensor, next_tensor, {{kMetadata, metadata}}));
  for (auto& [name, each] : entries) header.tensors.emplace(name, checked_tensor(name, each, header.bytes));
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
  if (type == "BOOL") return DDP_UINT8;  // its elements are bytes of 0 and 1
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
  std::string shown = what;
  // Parts of it may be what a file says, and must not do more to a terminal than be read: U+009B begins an escape
  // sequence, and U+202E turns the text after it.
  const auto is_not_plain = [](char byte) { return !(byte >= ' ' && byte < 0x7f); };
  std::replace_if(shown.begin(), shown.end(), is_not_plain, '?');
  throw Error(ErrorCode::Corrupt, "checkpoint " + path + ": " + shown + " (delete it and go on from an older one)");
}

bool lies_before(std::int32_t a_dtype, std::string_view a_name, std::int32_t b_dtype, std::string_view b_name) {
  return std::pair(dtype_size(b_dtype), a_name) < std::pair(dtype_size(a_dtype), b_name);
}

std::string make_header(const std::string& path, std::span<const ddp_tensor> tensors,
                        std::span<const ddp_metadata_entry> metadata) {
  if (metadata.data() == nullptr && !metadata.empty()) invalid(path, "the metadata is null");
  // The metadata comes first, then the tensors with their offsets.
  std::vector<std::pair<std::string, Json>> header;
  if (!metadata.empty()) {
    std::map<std::string, std::string> entries;
    for (const ddp_metadata_entry& e : metadata) {
      if (e.key == nullptr || e.value == nullptr) invalid(path, "a metadata entry is null");
      entries[e.key] = e.value;
    }
    header.emplace_back(kMetadata, std::move(entries));
  }
  std::set<std::string_view> names;
  std::uint64_t offset = 0;
  for (const ddp_tensor& t : tensors) {
    const std::uint64_t bytes = checked_bytes(path, t);
    if (!names.insert(t.name).second) invalid(path, std::string("two tensors are named ") + t.name);
    header.emplace_back(t.name, Json{{"dtype", file_type(t.dtype)},
                                     {"shape", std::vector<std::int64_t>(t.shape, t.shape + t.rank)},
                                     {"data_offsets", {offset, offset + bytes}}});
    offset += bytes;
  }
  std::string text;
  try {
    // Made at once: an ordered JSON object searches all its keys at each insertion.
    text = Json(Json::object_t(header.begin(), header.end())).dump();
  } catch (const Json::exception&) {
    invalid(path, "a name or a metadata entry is not valid UTF-8");
  }
  // Pad, so that the data begins at a multiple of 8, and prepend the length.
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > kMaxHeaderBytes)
    invalid(path, "the header would be larger than " + rendezvous::describe_bytes(kMaxHeaderBytes));
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
  if (length > kMaxHeaderBytes) {
    corrupt(path, "it announces a header of " + std::to_string(length) + " bytes: not a safetensors file");
  }
  if (length > size - kPrefix) {
    corrupt(path, "it is truncated: " + std::to_string(length) + " bytes of header announced, " +
                      std::to_string(size - kPrefix) + " there");
  }
  std::string text(length, '\0');
  if (file.read_at(text.data(), length, kPrefix) != length) corrupt(path, "it shrank while being read");
  return parse_header(path, text, size);
}

FileHeader parse_header(const std::string& path, std::string_view text, std::uint64_t file_bytes) {
  FileHeader header;
  header.bytes = kPrefix + text.size();
  try {
    read_entries(text, header);
  } catch (const WrongJson& wrong) {
    corrupt(path, "its header is wrong: " + wrong.what);
  }
  check_places(path, header, file_bytes - header.bytes);
  return header;
}

}  // namespace ddp::runtime
