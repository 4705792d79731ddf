// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training/safetensors.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "rendezvous/error.hpp"
#include "runtime/src/operation.hpp"

namespace ddp::runtime {
namespace {

using rendezvous::Error;
using rendezvous::ErrorCode;
using Json = nlohmann::ordered_json;

static_assert(std::endian::native == std::endian::little, "safetensors files are little endian");

constexpr char kMetadata[] = "__metadata__";
constexpr std::uint64_t kMaxHeader = 100'000'000;  // the reference implementation's limit
constexpr std::uint64_t kPrefix = 8;

// The names of ours in the order of ddp_dtype, then what others write.
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

std::string_view file_type(std::int32_t dtype) { return kFileTypes[static_cast<std::size_t>(dtype)].name; }

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (const std::int64_t n : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(n);
  return text + "]";
}

// Product of the shape times `size`; false if it is negative or does not fit.
bool shape_bytes(std::span<const std::int64_t> shape, std::uint64_t size, std::uint64_t& bytes) {
  bytes = size;
  bool empty = false;
  for (const std::int64_t n : shape) {
    if (n < 0) return false;
    if (n == 0) empty = true;
    if (n != 0 && __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(n), &bytes)) return false;
  }
  if (empty) bytes = 0;
  return bytes <= static_cast<std::uint64_t>(INT64_MAX);
}

[[noreturn]] void system_error(const std::string& path, const std::string& what, int number) {
  throw Error(ErrorCode::System, "checkpoint " + path + ": " + what + ": " + std::strerror(number));
}

[[noreturn]] void invalid(const std::string& path, const std::string& what) {
  throw Error(ErrorCode::InvalidArgument, "checkpoint " + path + ": " + what);
}

std::uint64_t checked_bytes(const std::string& path, const ddp_tensor& tensor) {
  const std::string name = tensor.name != nullptr ? tensor.name : "";
  if (name.empty() || name == kMetadata) invalid(path, "\"" + name + "\" cannot be a tensor's name");
  if (dtype_size(tensor.dtype) == 0) invalid(path, name + ": there is no element type " + std::to_string(tensor.dtype));
  if (tensor.rank > 0 && tensor.shape == nullptr) invalid(path, name + ": its shape is null");
  const std::span<const std::int64_t> shape(tensor.shape, tensor.rank);
  std::uint64_t bytes = 0;
  if (!shape_bytes(shape, dtype_size(tensor.dtype), bytes)) {
    invalid(path, name + ": a shape of " + shape_text(shape) + " makes no sense");
  }
  if (tensor.data == nullptr && bytes > 0) invalid(path, name + ": its data is null");
  return bytes;
}

std::string make_header(const std::string& path, std::span<const ddp_tensor> tensors,
                        std::span<const ddp_metadata_entry> metadata) {
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
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > kMaxHeader) invalid(path, "the header would be larger than " + human_bytes(kMaxHeader));
  return text;
}

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// A file that is to replace `path`. Unless committed, nothing of it stays.
class Replacement {
 public:
  explicit Replacement(const std::string& path) : path_(path) {
    static std::atomic<unsigned> counter{0};
    temporary_ = path + ".tmp." + std::to_string(getpid()) + "." + std::to_string(counter++);
    file_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file_ < 0) system_error(path_, "cannot create " + temporary_, errno);
  }
  ~Replacement() {
    if (file_ >= 0) close(file_);
    if (!temporary_.empty()) unlink(temporary_.c_str());
  }
  Replacement(const Replacement&) = delete;
  Replacement& operator=(const Replacement&) = delete;

  void write(const void* data, std::uint64_t size) {
    const char* at = static_cast<const char*>(data);
    while (size > 0) {
      const ssize_t written = ::write(file_, at, size);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) system_error(path_, "cannot write (the previous file is untouched)", errno);
      at += written;
      size -= static_cast<std::uint64_t>(written);
    }
  }

  void commit() {
    if (fsync(file_) != 0) system_error(path_, "cannot fsync (the previous file is untouched)", errno);
    if (close(std::exchange(file_, -1)) != 0) system_error(path_, "cannot close", errno);
    if (rename(temporary_.c_str(), path_.c_str()) != 0) system_error(path_, "cannot rename " + temporary_, errno);
    temporary_.clear();
    // The rename itself has to reach the disk too.
    const int folder = open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) system_error(path_, "its folder cannot be opened for fsync", errno);
    const int failed = fsync(folder) != 0 ? errno : 0;
    close(folder);
    if (failed != 0 && failed != EINVAL) system_error(path_, "its folder cannot be fsynced", failed);
  }

 private:
  std::string path_;
  std::string temporary_;
  int file_ = -1;
};

// Reads exactly size bytes, or says how many there were.
std::uint64_t read_at(int file, void* to, std::uint64_t size, std::uint64_t offset, const std::string& path) {
  std::uint64_t done = 0;
  while (done < size) {
    const ssize_t got = pread(file, static_cast<char*>(to) + done, size - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) system_error(path, "cannot read", errno);
    if (got == 0) break;
    done += static_cast<std::uint64_t>(got);
  }
  return done;
}

}  // namespace

void save_checkpoint(const std::string& path, std::span<const ddp_tensor> tensors,
                     std::span<const ddp_metadata_entry> metadata) {
  if (tensors.data() == nullptr && !tensors.empty()) invalid(path, "the tensors are null");
  if (metadata.data() == nullptr && !metadata.empty()) invalid(path, "the metadata is null");
  const std::string header = make_header(path, tensors, metadata);
  Replacement file(path);
  const std::uint64_t length = header.size();
  file.write(&length, sizeof(length));
  file.write(header.data(), header.size());
  for (const ddp_tensor& t : tensors) file.write(t.data, checked_bytes(path, t));
  file.commit();
}

Checkpoint::Checkpoint(const std::string& path) : path_(path), file_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (file_ < 0) system_error(path_, "cannot open", errno);
  try {
    struct stat facts = {};
    if (fstat(file_, &facts) != 0) system_error(path_, "cannot stat", errno);
    if (!S_ISREG(facts.st_mode)) corrupt("it is not a regular file");
    const auto size = static_cast<std::uint64_t>(facts.st_size);
    std::uint64_t length = 0;
    if (size < kPrefix || read_at(file_, &length, kPrefix, 0, path_) != kPrefix) {
      corrupt("it is truncated: " + std::to_string(size) + " bytes, shorter than the length of a header");
    }
    if (length > kMaxHeader)
      corrupt("it announces a header of " + std::to_string(length) + " bytes: not a safetensors file");
    if (length > size - kPrefix) {
      corrupt("it is truncated: " + std::to_string(length) + " bytes of header announced, " +
              std::to_string(size - kPrefix) + " there");
    }
    std::string header(length, '\0');
    if (read_at(file_, header.data(), length, kPrefix, path_) != length) corrupt("it shrank while being read");
    data_begin_ = kPrefix + length;
    parse_header(header, size - data_begin_);
  } catch (...) {
    close(file_);
    throw;
  }
}

Checkpoint::~Checkpoint() { close(file_); }

void Checkpoint::corrupt(const std::string& what) const {
  throw Error(ErrorCode::Corrupt, "checkpoint " + path_ + ": " + what + " (delete it and go on from an older one)");
}

void Checkpoint::parse_header(const std::string& header, std::uint64_t data_size) {
  const Json json = Json::parse(header, nullptr, false);
  if (!json.is_object()) corrupt("its header is not a JSON object");
  struct Range {
    std::uint64_t begin;
    std::uint64_t end;
    const std::string* name;
  };
  std::vector<Range> ranges;
  const auto natural = [](const Json& j) { return j.is_number_unsigned() && j.get<std::uint64_t>() <= INT64_MAX; };
  for (const auto& item : json.items()) {
    const std::string& name = item.key();
    const Json& entry = item.value();
    if (!entry.is_object()) corrupt("the entry " + name + " of its header is not an object");
    if (name == kMetadata) {
      for (const auto& pair : entry.items()) {
        if (!pair.value().is_string()) corrupt("the metadata " + pair.key() + " is not a string");
        metadata_[pair.key()] = pair.value().get<std::string>();
      }
      continue;
    }
    const auto dtype = entry.find("dtype");
    const auto shape = entry.find("shape");
    const auto offsets = entry.find("data_offsets");
    if (dtype == entry.end() || shape == entry.end() || offsets == entry.end() || !dtype->is_string() ||
        !shape->is_array() || !offsets->is_array() || offsets->size() != 2 ||
        !std::all_of(shape->begin(), shape->end(), natural) ||
        !std::all_of(offsets->begin(), offsets->end(), natural)) {
      corrupt("tensor " + name + " lacks a valid dtype, shape or data_offsets");
    }
    Tensor tensor{dtype->get<std::string>(), shape->get<std::vector<std::int64_t>>(),
                  (*offsets)[0].get<std::uint64_t>(), (*offsets)[1].get<std::uint64_t>()};
    const auto type =
        std::find_if(kFileTypes.begin(), kFileTypes.end(), [&](const FileType& t) { return t.name == tensor.dtype; });
    if (type == kFileTypes.end()) corrupt("tensor " + name + " is of the unknown type " + tensor.dtype);
    std::uint64_t bytes = 0;
    if (!shape_bytes(tensor.shape, type->size, bytes) || tensor.begin > tensor.end ||
        tensor.end - tensor.begin != bytes) {
      corrupt("tensor " + name + ": bytes " + std::to_string(tensor.begin) + " to " + std::to_string(tensor.end) +
              " cannot be " + shape_text(tensor.shape) + " of " + tensor.dtype);
    }
    const auto [at, added] = tensors_.emplace(name, std::move(tensor));
    if (!added) corrupt("it has two tensors named " + name);
    ranges.push_back({at->second.begin, at->second.end, &at->first});
  }
  // An empty tensor may share its place with the one that follows it.
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  std::uint64_t next = 0;
  for (const Range& r : ranges) {
    if (r.begin != next) {
      corrupt("tensor " + *r.name + " begins at byte " + std::to_string(r.begin) + ", the one before it ends at " +
              std::to_string(next));
    }
    next = r.end;
  }
  if (next > data_size) {
    corrupt("it is truncated: " + std::to_string(next) + " bytes of data announced, " + std::to_string(data_size) +
            " there");
  }
  if (next < data_size) {
    corrupt("it has " + std::to_string(data_size - next) + " bytes after the last tensor");
  }
}

const std::string* Checkpoint::metadata(const std::string& key) const {
  const auto it = metadata_.find(key);
  return it != metadata_.end() ? &it->second : nullptr;
}

void Checkpoint::read(const std::string& name, const ddp_buffer& buffer, std::span<const std::int64_t> shape) const {
  check_buffer(name.c_str(), buffer.data, buffer.count, buffer.dtype, buffer.device);
  const auto it = tensors_.find(name);
  if (it == tensors_.end()) {
    throw Error(ErrorCode::Corrupt, "checkpoint " + path_ + ": there is no tensor " + name +
                                        " in it (it was written by " + "a different model)");
  }
  const Tensor& tensor = it->second;
  if (tensor.dtype != file_type(buffer.dtype) || !std::ranges::equal(tensor.shape, shape)) {
    throw Error(ErrorCode::Mismatch, "checkpoint " + path_ + ": tensor " + name + " is " + shape_text(tensor.shape) +
                                         " of " + tensor.dtype + ", but " + shape_text(shape) + " of " +
                                         std::string(file_type(buffer.dtype)) + " was asked for");
  }
  const std::uint64_t bytes = tensor.end - tensor.begin;
  if (buffer.count * dtype_size(buffer.dtype) != bytes) {
    invalid(path_, "tensor " + name + " has a shape of " + shape_text(shape) + ", but the buffer has " +
                       std::to_string(buffer.count) + " elements");
  }
  if (read_at(file_, buffer.data, bytes, data_begin_ + tensor.begin, path_) != bytes) {
    corrupt("it was truncated after it was opened, within tensor " + name);
  }
}

}  // namespace ddp::runtime
