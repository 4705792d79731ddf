// SPDX-License-Identifier: BSD-3-Clause
// libFuzzer for what is read of a checkpoint before its data: checkpoint.json (record.hpp) and the
// header of a safetensors file. An input is a letter and JSON:
//   r  a record, which gets the checksum that belongs to it
//   h  a header, of a file with as many bytes of data as its tensors need, if they are within reason
// Either it is refused as corrupt, or this holds:
//   * Every tensor has each of its elements once. This is counted here, element by element.
//   * Every byte of a file belongs to its header or to one tensor or part.
//   * A record is the same once it is written and read again.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/base/check.hpp"
#include "rendezvous/base/error.hpp"
#include "runtime/training/checkpoint/record.hpp"
#include "runtime/training/tensor_file/checksum.hpp"
#include "runtime/training/tensor_file/safetensors.hpp"

namespace ddp::runtime::fuzz {
namespace {

using rendezvous::Error;
using rendezvous::ErrorCode;
using Range = std::pair<std::uint64_t, std::uint64_t>;

constexpr std::uint64_t kCounted = 4096;  // larger tensors are not counted

void check_refusal(const Error& error) {
  DDP_CHECK(error.code() == ErrorCode::Corrupt, error.what());
  const std::string_view text = error.what();
  DDP_CHECK(std::none_of(text.begin(), text.end(), [](char c) { return c >= 0 && c < ' '; }), text);
}

// Adds one to each element of the box, in a tensor of this shape.
void count(const Box& box, const Shape& shape, std::vector<int>& elements) {
  for (std::size_t i = 0; i < elements.size(); ++i) {
    auto rest = static_cast<std::int64_t>(i);
    bool is_in = true;
    for (std::size_t d = shape.size(); d-- > 0; rest /= shape[d]) {
      const std::int64_t at = rest % shape[d];
      is_in = is_in && at >= box.begin[d] && at - box.begin[d] < box.size[d];
    }
    elements[i] += is_in ? 1 : 0;
  }
}

void check_whole(const CheckpointRecord::Tensor& tensor) {
  const std::uint64_t all = element_count(whole_box(tensor.shape));
  if (all > kCounted || tensor.parts.size() * all > 64 * kCounted) return;
  std::vector<int> elements(all);
  for (const CheckpointRecord::Part& part : tensor.parts) count(part.box, tensor.shape, elements);
  DDP_CHECK(std::all_of(elements.begin(), elements.end(), [](int n) { return n == 1; }), to_string(tensor.shape));
}

void check_filled(std::vector<Range> ranges, std::uint64_t begin, std::uint64_t end) {
  std::sort(ranges.begin(), ranges.end());
  for (const Range& range : ranges) {
    DDP_CHECK(range.first == begin, range.first, begin);
    DDP_CHECK(range.second >= range.first, range.first, range.second);
    begin = range.second;
  }
  DDP_CHECK(begin == end, begin, end);
}

void check_record(const std::string& body) {
  const std::string checksum_of_body = checksum_to_string(checksum(body.data(), body.size()));
  const CheckpointRecord record = parse_record("R", "{\"checksum\":\"" + checksum_of_body + "\",\n" + body);
  std::vector<std::vector<Range>> ranges(record.files.size());
  for (const auto& [name, tensor] : record.tensors) {
    check_whole(tensor);
    for (const CheckpointRecord::Part& part : tensor.parts) {
      ranges.at(part.file).push_back({part.begin, part.begin + part_bytes(tensor, part)});
    }
  }
  for (std::size_t i = 0; i < record.files.size(); ++i) {
    check_filled(ranges[i], record.files[i].header_bytes, record.files[i].bytes);
  }
  const std::string text = to_string(record);
  DDP_CHECK(to_string(parse_record("R", text)) == text, text);
}

void check_header(const std::string& json) {
  // The first reading says how much data there should be.
  std::uint64_t file_bytes = sizeof(std::uint64_t) + json.size();
  const std::string_view announced = "checkpoint H: it is truncated: ";
  try {
    parse_header("H", json, file_bytes);
  } catch (const Error& error) {
    const std::string_view text = error.what();
    if (!text.starts_with(announced)) throw;
    file_bytes += std::stoull(std::string(text.substr(announced.size())));
  }
  const FileHeader header = parse_header("H", json, file_bytes);
  std::vector<Range> ranges;
  for (const auto& [name, tensor] : header.tensors) {
    ranges.push_back({tensor.begin, tensor.end});
    const std::uint64_t size = file_type_size(tensor.dtype);
    DDP_CHECK(size == 0 || shape_bytes(tensor.shape, size) == tensor.end - tensor.begin, name);
  }
  check_filled(ranges, header.bytes, file_bytes);
}

}  // namespace
}  // namespace ddp::runtime::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    if (data[0] == 'r') ddp::runtime::fuzz::check_record(text);
    if (data[0] == 'h') ddp::runtime::fuzz::check_header(text);
  } catch (const ddp::rendezvous::Error& error) {
    ddp::runtime::fuzz::check_refusal(error);
  }
  return 0;
}
