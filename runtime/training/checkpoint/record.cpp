// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training/checkpoint/record.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "rendezvous/base/error.hpp"
#include "runtime/training/tensor_file/checksum.hpp"
#include "runtime/training/tensor_file/safetensors.hpp"

namespace ddp::runtime {
namespace {

using rendezvous::Error;
using rendezvous::ErrorCode;
using Json = nlohmann::ordered_json;
using Record = CheckpointRecord;

constexpr char kFormat[] = "ddp checkpoint 1";
constexpr std::string_view kChecksumStart = "{\"checksum\":\"";
constexpr std::string_view kChecksumEnd = "\",\n";

// What is missing or impossible in a record. Caught by parse_record(), which knows the file.
struct Wrong {
  std::string what;
};

const Json& field(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) throw Wrong{std::string("\"") + key + "\" is missing"};
  return *found;
}

template <typename T>
T get(const Json& object, const char* key) {
  const Json& value = field(object, key);
  if (std::is_unsigned_v<T> && !value.is_number_unsigned()) {
    throw Wrong{std::string("\"") + key + "\" is not a natural number"};
  }
  return value.get<T>();
}

std::uint64_t get_checksum(const Json& text) {
  const auto checksum = parse_checksum(text.get<std::string>());
  if (!checksum) throw Wrong{"\"" + text.get<std::string>() + "\" is not a checksum"};
  return *checksum;
}

Json to_json(const Record::Tensor& tensor) {
  Json parts = Json::array();
  for (const Record::Part& part : tensor.parts) {
    Json checksums = Json::array();
    for (const std::uint64_t each : part.checksums) checksums.push_back(checksum_to_string(each));
    parts.push_back({{"file", part.file},
                     {"begin", part.begin},
                     {"offset", part.box.begin},
                     {"shape", part.box.size},
                     {"checksums", std::move(checksums)}});
  }
  return {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"parts", std::move(parts)}};
}

Record::Part parse_part(const Json& json) {
  Record::Part part;
  part.file = get<std::size_t>(json, "file");
  part.begin = get<std::uint64_t>(json, "begin");
  part.box = {get<Shape>(json, "offset"), get<Shape>(json, "shape")};
  for (const Json& each : field(json, "checksums")) part.checksums.push_back(get_checksum(each));
  return part;
}

Record::Tensor parse_tensor(const std::string& name, const Json& json, const Record& record) {
  Record::Tensor tensor{get<std::string>(json, "dtype"), get<Shape>(json, "shape")};
  const std::uint64_t size = file_type_size(tensor.dtype);
  if (size == 0 || !shape_bytes(tensor.shape, size)) {
    throw Wrong{name + " cannot be " + to_string(tensor.shape) + " of " + tensor.dtype};
  }
  for (const Json& each : field(json, "parts")) {
    Record::Part part = parse_part(each);
    if (part.file >= record.files.size() || !is_within(part.box, tensor.shape)) {
      throw Wrong{name + " has a part " + to_string(part.box) + " that cannot be"};
    }
    const std::uint64_t bytes = part_bytes(tensor, part);
    const std::uint64_t file_bytes = record.files[part.file].bytes;
    if (part.begin > file_bytes || bytes > file_bytes - part.begin || part.checksums.size() != block_count(bytes)) {
      throw Wrong{name + ": its part " + to_string(part.box) + " cannot be where it is said to be"};
    }
    tensor.parts.push_back(std::move(part));
  }
  return tensor;
}

Record parse_json(const Json& json) {
  if (get<std::string>(json, "format") != kFormat)
    throw Wrong{"it has another version: " + get<std::string>(json, "format")};
  if (get<std::uint64_t>(json, "block") != kChecksumBlock) throw Wrong{"its checksums are of blocks of another size"};
  Record record;
  record.step = get<std::int64_t>(json, "step");
  record.metadata = get<std::map<std::string, std::string>>(json, "metadata");
  for (const Json& each : field(json, "files")) {
    record.files.push_back({get<std::string>(each, "name"), get<std::uint64_t>(each, "bytes"),
                            get<std::uint64_t>(each, "header_bytes"), get_checksum(field(each, "header_checksum"))});
    const std::string& name = record.files.back().name;
    if (name.empty() || name.find('/') != std::string::npos) throw Wrong{"\"" + name + "\" is not a file name"};
  }
  for (const auto& item : field(json, "tensors").items()) {
    record.tensors.emplace(item.key(), parse_tensor(item.key(), item.value(), record));
  }
  return record;
}

void add(Record& whole, const Record& rank) {
  const std::size_t first_file = whole.files.size();
  whole.files.insert(whole.files.end(), rank.files.begin(), rank.files.end());
  for (const auto& [name, tensor] : rank.tensors) {
    Record::Tensor& known = whole.tensors.try_emplace(name, Record::Tensor{tensor.dtype, tensor.shape}).first->second;
    if (known.dtype != tensor.dtype || known.shape != tensor.shape) {
      throw Error(ErrorCode::Mismatch, "tensor " + name + " is " + to_string(known.shape) + " of " + known.dtype +
                                           " to one rank and " + to_string(tensor.shape) + " of " + tensor.dtype +
                                           " to another");
    }
    for (Record::Part part : tensor.parts) {
      part.file += first_file;
      known.parts.push_back(std::move(part));
    }
  }
}

}  // namespace

std::uint64_t part_bytes(const Record::Tensor& tensor, const Record::Part& part) {
  return element_count(part.box) * file_type_size(tensor.dtype);
}

std::uint64_t block_count(std::uint64_t bytes) { return (bytes + kChecksumBlock - 1) / kChecksumBlock; }

std::string to_string(const Record& record) {
  Json files = Json::array();
  for (const Record::File& file : record.files) {
    files.push_back({{"name", file.name},
                     {"bytes", file.bytes},
                     {"header_bytes", file.header_bytes},
                     {"header_checksum", checksum_to_string(file.header_checksum)}});
  }
  // Collected in a map first, because an ordered JSON object searches all its keys at each
  // insertion.
  std::map<std::string, Json> tensors;
  for (const auto& [name, tensor] : record.tensors) tensors.emplace(name, to_json(tensor));
  const Json json = {{"format", kFormat},       {"step", record.step},       {"metadata", record.metadata},
                     {"block", kChecksumBlock}, {"files", std::move(files)}, {"tensors", tensors}};
  const std::string body = json.dump().substr(1) + "\n";
  return std::string(kChecksumStart) + checksum_to_string(checksum(body.data(), body.size())) +
         std::string(kChecksumEnd) + body;
}

Record parse_record(const std::string& path, std::string_view text) {
  const std::size_t body = kChecksumStart.size() + 16 + kChecksumEnd.size();
  if (text.size() < body || !text.starts_with(kChecksumStart) || !text.substr(0, body).ends_with(kChecksumEnd)) {
    corrupt(path, "it does not begin as it should");
  }
  const auto expected = parse_checksum(text.substr(kChecksumStart.size(), 16));
  if (expected != checksum(text.data() + body, text.size() - body)) corrupt(path, "its checksum is wrong");
  try {
    const Json json = Json::parse("{" + std::string(text.substr(body)));
    return parse_json(json);
  } catch (const Wrong& wrong) {
    corrupt(path, wrong.what);
  } catch (const Json::exception& error) {
    corrupt(path, error.what());
  }
}

Record join(const std::vector<Record>& ranks) {
  Record whole;
  whole.step = ranks.at(0).step;
  whole.metadata = ranks.at(0).metadata;
  for (const Record& rank : ranks) add(whole, rank);
  for (const auto& [name, tensor] : whole.tensors) {
    // The parts of each tensor must cover it exactly once.
    std::vector<Box> boxes;
    for (const Record::Part& part : tensor.parts) boxes.push_back(part.box);
    const std::string why = why_not_whole(tensor.shape, boxes);
    if (!why.empty()) throw Error(ErrorCode::Mismatch, "tensor " + name + " is not whole: " + why);
  }
  return whole;
}

bool has_index(const Record& record) {
  return record.files.size() > 1 && std::all_of(record.tensors.begin(), record.tensors.end(), [](const auto& each) {
           return each.second.parts.size() == 1 && each.second.parts[0].box == whole_box(each.second.shape);
         });
}

std::string index_json(const Record& record) {
  std::uint64_t total = 0;
  std::map<std::string, std::string> files;
  for (const auto& [name, tensor] : record.tensors) {
    total += part_bytes(tensor, tensor.parts.at(0));
    files[name] = record.files[tensor.parts[0].file].name;
  }
  const Json json = {{"metadata", {{"total_size", total}}}, {"weight_map", files}};
  return json.dump(2) + "\n";
}

}  // namespace ddp::runtime
