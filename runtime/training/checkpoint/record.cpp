// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training/checkpoint/record.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <utility>

#include "rendezvous/base/error.hpp"
#include "runtime/training/tensor_file/checksum.hpp"
#include "runtime/training/tensor_file/json_form.hpp"
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
constexpr std::uint64_t kMaxFileHeaderBytes = sizeof(std::uint64_t) + kMaxHeaderBytes;  // with the length before it

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

std::uint64_t checksum_in(const std::string& text) {
  const auto checksum = parse_checksum(text);
  if (!checksum) throw WrongJson{"\"" + text + "\" is not a checksum"};
  return *checksum;
}

// Returns the record as the text gives it, which may be impossible.
Record parse_json(std::string_view text) {
  Record record;
  std::string* value = nullptr;      // an entry of the metadata
  Record::Tensor* tensor = nullptr;  // the one that is being read
  const auto natural = [](auto take) {
    return JsonForm::number([take](std::uint64_t n) { take(static_cast<std::int64_t>(n)); });
  };
  const JsonForm format = JsonForm::text([](const std::string& name) {
    if (name != kFormat) throw WrongJson{"it has another version: " + name};
  });
  const JsonForm block = JsonForm::number([](std::uint64_t bytes) {
    if (bytes != kChecksumBlock) throw WrongJson{"its checksums are of blocks of another size"};
  });
  const JsonForm metadata = JsonForm::map(JsonForm::text([&](const std::string& given) { *value = given; }),
                                          [&](const std::string& key) { value = &record.metadata[key]; });
  const JsonForm file = JsonForm::object(
      {{"name", JsonForm::text([&](const std::string& name) { record.files.back().name = name; })},
       {"bytes", JsonForm::number([&](std::uint64_t n) { record.files.back().bytes = n; })},
       {"header_bytes", JsonForm::number([&](std::uint64_t n) { record.files.back().header_bytes = n; })},
       {"header_checksum",
        JsonForm::text([&](const std::string& given) { record.files.back().header_checksum = checksum_in(given); })}});
  const JsonForm checksum =
      JsonForm::text([&](const std::string& given) { tensor->parts.back().checksums.push_back(checksum_in(given)); });
  const JsonForm part = JsonForm::object(
      {{"file", JsonForm::number([&](std::uint64_t n) { tensor->parts.back().file = n; })},
       {"begin", JsonForm::number([&](std::uint64_t n) { tensor->parts.back().begin = n; })},
       {"offset", JsonForm::array(natural([&](std::int64_t n) { tensor->parts.back().box.begin.push_back(n); }))},
       {"shape", JsonForm::array(natural([&](std::int64_t n) { tensor->parts.back().box.size.push_back(n); }))},
       {"checksums", JsonForm::array(checksum)}});
  const JsonForm one_tensor =
      JsonForm::object({{"dtype", JsonForm::text([&](const std::string& dtype) { tensor->dtype = dtype; })},
                        {"shape", JsonForm::array(natural([&](std::int64_t n) { tensor->shape.push_back(n); }))},
                        {"parts", JsonForm::array(part, [&] { tensor->parts.emplace_back(); })}});
  const auto next_tensor = [&](const std::string& name) {
    const auto [place, is_new] = record.tensors.try_emplace(name);
    if (!is_new) throw WrongJson{"it has two tensors named " + name};
    tensor = &place->second;
  };
  read_json(text, JsonForm::object({{"format", format},
                                    {"step", natural([&](std::int64_t n) { record.step = n; })},
                                    {"metadata", metadata},
                                    {"block", block},
                                    {"files", JsonForm::array(file, [&] { record.files.emplace_back(); })},
                                    {"tensors", JsonForm::map(one_tensor, next_tensor)}}));
  return record;
}

void check_files(const Record& record) {
  std::set<std::string_view> names;
  for (const Record::File& file : record.files) {
    const std::string_view name = file.name;
    // Messages show the path of a file as it is, so that a name must do nothing to a terminal.
    const bool is_plain =
        std::all_of(name.begin(), name.end(), [](char c) { return c >= ' ' && c < 0x7f && c != '/'; });
    if (name.empty() || name == "." || name == ".." || !is_plain) {
      throw WrongJson{"\"" + file.name + "\" is not a file name"};
    }
    if (!names.insert(name).second) throw WrongJson{"it names the file " + file.name + " twice"};
    if (file.header_bytes > std::min(file.bytes, kMaxFileHeaderBytes)) {
      throw WrongJson{file.name + " cannot have a header of " + std::to_string(file.header_bytes) + " bytes"};
    }
  }
}

void check_tensor(const std::string& name, const Record::Tensor& tensor, const Record& record) {
  const std::uint64_t size = file_type_size(tensor.dtype);
  if (size == 0 || !shape_bytes(tensor.shape, size)) {
    throw WrongJson{name + " cannot be " + to_string(tensor.shape) + " of " + tensor.dtype};
  }
  for (const Record::Part& part : tensor.parts) {
    if (part.file >= record.files.size() || !is_within(part.box, tensor.shape)) {
      throw WrongJson{name + " has a part " + to_string(part.box.size) + " at " + to_string(part.box.begin) +
                      " that cannot be"};
    }
    const Record::File& file = record.files[part.file];
    const std::uint64_t bytes = part_bytes(tensor, part);
    if (part.begin > file.bytes || bytes > file.bytes - part.begin || part.checksums.size() != block_count(bytes)) {
      throw WrongJson{name + ": its part " + to_string(part.box) + " cannot be where it is said to be"};
    }
  }
}

// Checks that the parts fill each file from its header to its end, without gaps. So no byte is read twice.
void check_places(const Record& record) {
  struct Place {
    std::size_t file;
    std::uint64_t begin;
    std::uint64_t end;
  };
  std::vector<Place> places;
  for (const auto& [name, tensor] : record.tensors) {
    for (const Record::Part& part : tensor.parts) {
      places.push_back({part.file, part.begin, part.begin + part_bytes(tensor, part)});
    }
  }
  // An empty part may share its place with the one that follows it.
  std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) {
    return std::tie(a.file, a.begin, a.end) < std::tie(b.file, b.begin, b.end);
  });
  auto place = places.begin();
  for (std::size_t i = 0; i < record.files.size(); ++i) {
    const Record::File& file = record.files[i];
    std::uint64_t next = file.header_bytes;
    for (; place != places.end() && place->file == i; next = (place++)->end) {
      if (place->begin != next) {
        throw WrongJson{"a part begins at byte " + std::to_string(place->begin) + " of " + file.name +
                        ", but what is before it ends at " + std::to_string(next)};
      }
    }
    if (next != file.bytes) {
      throw WrongJson{file.name + " has " + std::to_string(file.bytes) + " bytes, but its parts end at " +
                      std::to_string(next)};
    }
  }
}

// Returns which tensor is not whole, and why; empty if all are.
std::string why_not_whole(const Record& record) {
  for (const auto& [name, tensor] : record.tensors) {
    std::vector<Box> boxes;
    boxes.reserve(tensor.parts.size());
    for (const Record::Part& part : tensor.parts) boxes.push_back(part.box);
    const std::string why = why_not_whole(tensor.shape, boxes);
    if (!why.empty()) return "tensor " + name + " is not whole: " + why;
  }
  return "";
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

Record parse_rank_record(const std::string& path, std::string_view text) {
  const std::size_t body = kChecksumStart.size() + 16 + kChecksumEnd.size();
  if (text.size() < body || !text.starts_with(kChecksumStart) || !text.substr(0, body).ends_with(kChecksumEnd)) {
    corrupt(path, "it does not begin as it should");
  }
  const auto expected = parse_checksum(text.substr(kChecksumStart.size(), 16));
  if (expected != checksum(text.data() + body, text.size() - body)) corrupt(path, "its checksum is wrong");
  try {
    const Record record = parse_json("{" + std::string(text.substr(body)));
    check_files(record);
    for (const auto& [name, tensor] : record.tensors) check_tensor(name, tensor, record);
    check_places(record);
    return record;
  } catch (const WrongJson& wrong) {
    corrupt(path, wrong.what);
  }
}

Record parse_record(const std::string& path, std::string_view text) {
  Record record = parse_rank_record(path, text);
  const std::string why = why_not_whole(record);
  if (!why.empty()) corrupt(path, why);
  return record;
}

Record join(const std::vector<Record>& ranks) {
  Record whole;
  whole.step = ranks.at(0).step;
  whole.metadata = ranks.at(0).metadata;
  for (const Record& rank : ranks) add(whole, rank);
  const std::string why = why_not_whole(whole);
  if (!why.empty()) throw Error(ErrorCode::Mismatch, why);
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
