// SPDX-License-Identifier: BSD-3-Clause
// Tests go through the public interface, because restarts depend on it.
#include <stdlib.h>
#include <sys/resource.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <sstream>
#include <string>

#include "ddp/ddp.hpp"

using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

// A temporary folder, removed at the end of the test.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "ddp-safetensors-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  std::size_t entries() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(path_), fs::directory_iterator()));
  }

 private:
  fs::path path_;
};

std::string content(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

void put(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

// Returns a file with this header and this many bytes of data.
std::string file_with(const std::string& header, std::size_t data) {
  std::uint64_t length = header.size();
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes + header + std::string(data, 'x');
}

ddp_status open_status(const std::string& path) {
  ddp_checkpoint* checkpoint = nullptr;
  const ddp_status status = ddp_checkpoint_open(path.c_str(), &checkpoint);
  ddp_checkpoint_close(checkpoint);
  return status;
}

struct Model {
  std::vector<float> w = {1.5F, -2.0F, 3.25F, 0.0F, 1e-30F, 6.0F};
  std::vector<double> m = {0.1, 0.2};
  std::vector<std::int32_t> steps = {-7};
  std::vector<std::int64_t> seen = {1'000'000'000'000};
  std::vector<std::uint8_t> flags = {0, 255, 3};

  std::vector<ddp::Tensor> tensors() const {
    return {
        {"layer.w", w.data(), ddp::DType::Float32, {2, 3}}, {"adam/m \"quoted\"", m.data(), ddp::DType::Float64, {2}},
        {"steps", steps.data(), ddp::DType::Int32, {}},     {"seen", seen.data(), ddp::DType::Int64, {1, 1}},
        {"empty", nullptr, ddp::DType::Float32, {0, 4}},    {"flags", flags.data(), ddp::DType::UInt8, {3}}};
  }
};

}  // namespace

TEST_CASE("checkpoint: what was saved is read back bit for bit", "[runtime][unit]") {
  const Folder folder;
  const Model model;
  ddp::save_checkpoint(folder.file("c"), model.tensors(), {{"step", "7"}, {"näme", "ünïcode"}});
  CHECK(folder.entries() == 1);

  const ddp::Checkpoint checkpoint(folder.file("c"));
  CHECK(checkpoint.metadata("step") == "7");
  CHECK(checkpoint.metadata("näme") == "ünïcode");
  CHECK_FALSE(checkpoint.metadata("nothing").has_value());
  Model read{std::vector<float>(6), std::vector<double>(2), {0}, {0}, std::vector<std::uint8_t>(3)};
  std::vector<float> empty;
  checkpoint.read("layer.w", read.w, {2, 3});
  checkpoint.read("adam/m \"quoted\"", read.m, {2});
  checkpoint.read("steps", read.steps, {});
  checkpoint.read("seen", read.seen, {1, 1});
  checkpoint.read("flags", read.flags, {3});
  checkpoint.read("empty", empty, {0, 4});
  CHECK(read.w == model.w);
  CHECK(read.m == model.m);
  CHECK(read.steps == model.steps);
  CHECK(read.seen == model.seen);
  CHECK(read.flags == model.flags);
}

TEST_CASE("checkpoint: data begins at a multiple of 8, and each tensor at a multiple of its element's size",
          "[runtime][unit]") {
  const Folder folder;
  const Model model;
  ddp::save_checkpoint(folder.file("c"), model.tensors(), {});
  const std::string bytes = content(folder.file("c"));
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof(length));
  CHECK(length % 8 == 0);
  // Larger elements come first, then names decide: m and seen, layer.w and steps, flags.
  CHECK(bytes.substr(8, 22) == "{\"adam/m \\\"quoted\\\"\":{");
  const char* const data = bytes.data() + 8 + length;
  CHECK(std::memcmp(data, model.m.data(), 16) == 0);
  CHECK(std::memcmp(data + 16, model.seen.data(), 8) == 0);
  CHECK(std::memcmp(data + 24, model.w.data(), 24) == 0);
  CHECK(std::memcmp(data + 48, model.steps.data(), 4) == 0);
  CHECK(std::memcmp(data + 52, model.flags.data(), 3) == 0);
}

TEST_CASE("checkpoint: another type or shape than the saved one is a mismatch that names both", "[runtime][unit]") {
  const Folder folder;
  ddp::save_checkpoint(folder.file("c"), Model().tensors(), {});
  const ddp::Checkpoint checkpoint(folder.file("c"));
  std::vector<float> w(6);
  std::vector<std::int32_t> integers(6);
  const auto status = [&](auto&&... arguments) {
    try {
      checkpoint.read(std::forward<decltype(arguments)>(arguments)...);
    } catch (const ddp::Error& e) {
      return e.status();
    }
    return ddp::Status::Ok;
  };
  const std::vector<std::int64_t> transposed = {3, 2};
  const std::vector<std::int64_t> right = {2, 3};
  CHECK(status("layer.w", w, transposed) == ddp::Status::Mismatch);
  CHECK_THAT(ddp_error_last(), Contains("tensor layer.w is [2, 3] of F32, but [3, 2] of F32 was asked for"));
  CHECK(status("layer.w", integers, right) == ddp::Status::Mismatch);
  CHECK(status("layer.v", w, right) == ddp::Status::Corrupt);
  CHECK_THAT(ddp_error_last(), Contains("no tensor layer.v"));
  CHECK(status("layer.w", ddp::Buffer(w.data(), 5), right) == ddp::Status::InvalidArgument);
  CHECK(status("layer.w", w, right) == ddp::Status::Ok);
}

TEST_CASE("checkpoint: a file cut at any length is corrupt", "[runtime][unit]") {
  const Folder folder;
  ddp::save_checkpoint(folder.file("c"), Model().tensors(), {{"step", "7"}});
  const std::string whole = content(folder.file("c"));
  for (std::size_t length = 0; length < whole.size(); ++length) {
    put(folder.file("cut"), whole.substr(0, length));
    INFO("cut at " << length);
    REQUIRE(open_status(folder.file("cut")) == DDP_CORRUPT);
    REQUIRE_THAT(ddp_error_last(), Contains(folder.file("cut")) && Contains("go on from an older one"));
  }
  put(folder.file("long"), whole + "x");
  CHECK(open_status(folder.file("long")) == DDP_CORRUPT);
  CHECK_THAT(ddp_error_last(), Contains("1 bytes after the last tensor"));
  CHECK(open_status(folder.file("c")) == DDP_OK);
}

TEST_CASE("checkpoint: any changed byte of the header is either noticed or harmless", "[runtime][unit]") {
  const Folder folder;
  ddp::save_checkpoint(folder.file("c"), Model().tensors(), {{"step", "7"}});
  const std::string whole = content(folder.file("c"));
  const std::size_t header_end = whole.size() - (24 + 16 + 4 + 8 + 3);
  const unsigned seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 3000; ++round) {
    std::string changed = whole;
    for (auto n = 1 + random() % 3; n > 0; --n) changed[random() % header_end] = static_cast<char>(random());
    put(folder.file("changed"), changed);
    const ddp_status status = open_status(folder.file("changed"));
    REQUIRE((status == DDP_OK || status == DDP_CORRUPT));
  }
}

TEST_CASE("checkpoint: a header that contradicts the file is corrupt", "[runtime][unit]") {
  const Folder folder;
  const auto [header, data, why] = GENERATE(table<std::string, std::size_t, std::string>({
      {"[]", 0, "its header is wrong: it is not an object"},
      {"{", 0, "it is no JSON: byte 2 cannot be there"},
      {R"({"w":7})", 0, "w is not an object"},
      {R"({"__metadata__":{"step":7}})", 0, "__metadata__.step is not a string"},
      {R"({"__metadata__":{},"__metadata__":{}})", 0, "__metadata__ is given twice"},
      {R"({"w":{"dtype":"F32","shape":[1]}})", 4, "w.data_offsets is missing"},
      {R"({"w":{"dtype":["F32"],"shape":[1],"data_offsets":[0,4]}})", 4, "w.dtype is not a string"},
      {R"({"w":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "w.shape is not a natural number"},
      {R"({"w":{"dtype":"F32","shape":[1],"shape":[1],"data_offsets":[0,4]}})", 4, "w.shape is given twice"},
      {R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}})", 4, "3 data_offsets, not 2"},
      {R"({"w":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", 4, "w.shape is not a natural number"},
      {R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[9223372036854775807,4]}})", 4, "is not a natural number"},
      {R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       8, "two tensors named w"},
      {R"({"\u001b[2J":7})", 0, "?[2J is not an object"},
      {R"({"w":{"dtype":"Q4","shape":[1],"data_offsets":[0,4]}})", 3, "truncated: 4 bytes of data announced, 3 there"},
      {R"({"w":{"dtype":"Q4","shape":[1],"data_offsets":[4,0]}})", 4, "cannot be"},
      {R"({"v":{"dtype":"Q4","shape":[9],"data_offsets":[0,3]},"w":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})",
       6, "begins at byte 2"},
      {R"({"w":{"dtype":"BOOL","shape":[2],"data_offsets":[0,4]}})", 4, "cannot be [2] of BOOL"},
      {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4, "cannot be [2] of F32"},
      {R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4, "cannot be"},
      {R"({"w":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0, "cannot be"},
      {R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8, "begins at byte 4"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})",
       6, "begins at byte 2"},
      {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 4, "truncated: 8 bytes of data announced, 4 there"},
  }));
  put(folder.file("c"), file_with(header, data));
  INFO(header);
  CHECK(open_status(folder.file("c")) == DDP_CORRUPT);
  CHECK_THAT(ddp_error_last(), Contains(why));
}

TEST_CASE("checkpoint: an impossible header length is corrupt, and nothing is allocated", "[runtime][unit]") {
  const Folder folder;
  put(folder.file("c"), std::string(8, '\xff') + "{}");
  CHECK(open_status(folder.file("c")) == DDP_CORRUPT);
  CHECK_THAT(ddp_error_last(), Contains("not a safetensors file"));
}

TEST_CASE("checkpoint: a file can be read although it has types that libddp lacks", "[runtime][unit]") {
  const Folder folder;
  // F4 has two elements in a byte; what Q9 is nobody knows.
  put(folder.file("c"), file_with(R"({"a":{"dtype":"F8_E8M0","shape":[3],"data_offsets":[0,3]},)"
                                  R"("b":{"dtype":"F4","shape":[4,2],"data_offsets":[3,7]},)"
                                  R"("c":{"dtype":"C64","shape":[1],"data_offsets":[7,15]},)"
                                  R"("d":{"dtype":"Q9","shape":[9,9],"data_offsets":[15,16]},)"
                                  R"("h":{"dtype":"BF16","shape":[3],"data_offsets":[16,22]},)"
                                  R"("known":{"dtype":"U8","shape":[2],"data_offsets":[22,24]}})",
                                  24));
  const ddp::Checkpoint checkpoint(folder.file("c"));
  std::vector<std::uint8_t> known(2);
  checkpoint.read("known", known, {2});
  CHECK(known == std::vector<std::uint8_t>{'x', 'x'});
  std::vector<std::string> names;
  for (const ddp::Tensor& tensor : checkpoint.tensors()) names.push_back(tensor.name);
  CHECK(names == std::vector<std::string>{"h", "known"});
  std::vector<float> values(3);
  CHECK_THROWS_WITH(checkpoint.read("h", values, {3}), Contains("[3] of BF16, but [3] of F32 was asked for"));
  CHECK_THROWS_WITH(checkpoint.read("a", values, {3}), Contains("a is [3] of F8_E8M0, which libddp lacks"));
  for (const char* name : {"a", "b", "c", "d"}) {
    CHECK_THROWS_WITH(checkpoint.read_slice(name, ddp::Buffer(values.data(), 0), {}, {}),
                      Contains("which libddp lacks"));
  }
  checkpoint.verify();
}

TEST_CASE("checkpoint: a file's booleans are read as bytes", "[runtime][unit]") {
  const Folder folder;
  put(folder.file("c"), file_with(R"({"mask":{"dtype":"BOOL","shape":[2,2],"data_offsets":[0,4]}})", 4));
  const ddp::Checkpoint checkpoint(folder.file("c"));
  CHECK(checkpoint.tensors().at(0).dtype == ddp::DType::UInt8);
  std::vector<std::uint8_t> mask(4);
  checkpoint.read("mask", mask, {2, 2});
  CHECK(mask == std::vector<std::uint8_t>(4, 'x'));
  std::vector<std::int8_t> other(4);
  CHECK_THROWS_WITH(checkpoint.read("mask", other, {2, 2}), Contains("[2, 2] of BOOL, but [2, 2] of I8 was asked for"));
}

TEST_CASE("checkpoint: no file, a folder, and nonsense are errors with the path", "[runtime][unit]") {
  const Folder folder;
  CHECK(open_status(folder.file("none")) == DDP_SYSTEM);
  CHECK_THAT(ddp_error_last(), Contains(folder.file("none")) && Contains("No such file"));
  CHECK(open_status(folder.file("")) == DDP_CORRUPT);
  CHECK_THROWS_AS(ddp::save_checkpoint(folder.file("no/such/folder"), {}, {}), ddp::Error);
}

TEST_CASE("checkpoint: what cannot be saved is refused before anything is written", "[runtime][unit]") {
  const Folder folder;
  const float x = 1;
  const auto status = [&](const std::vector<ddp::Tensor>& tensors, const ddp::Metadata& metadata = {}) {
    try {
      ddp::save_checkpoint(folder.file("c"), tensors, metadata);
    } catch (const ddp::Error& e) {
      return e.status();
    }
    return ddp::Status::Ok;
  };
  CHECK(status({{"w", &x, ddp::DType::Float32, {}}, {"w", &x, ddp::DType::Float32, {}}}) ==
        ddp::Status::InvalidArgument);
  CHECK_THAT(ddp_error_last(), Contains("two tensors are named w"));
  CHECK(status({{"__metadata__", &x, ddp::DType::Float32, {}}}) == ddp::Status::InvalidArgument);
  CHECK(status({{"w", nullptr, ddp::DType::Float32, {1}}}) == ddp::Status::InvalidArgument);
  CHECK(status({{"w", &x, ddp::DType::Float32, {-1}}}) == ddp::Status::InvalidArgument);
  CHECK(status({{"w", &x, static_cast<ddp::DType>(77), {1}}}) == ddp::Status::InvalidArgument);
  CHECK(status({{"\xff", &x, ddp::DType::Float32, {}}}) == ddp::Status::InvalidArgument);
  CHECK(status({}, {{"key", "\xff"}}) == ddp::Status::InvalidArgument);
  CHECK(folder.entries() == 0);
}

TEST_CASE("checkpoint: a write that fails leaves the old file and nothing else", "[runtime][unit][P23]") {
  const Folder folder;
  ddp::save_checkpoint(folder.file("c"), Model().tensors(), {{"step", "7"}});
  const std::string before = content(folder.file("c"));
  // The kernel limits the file's size. With SIGXFSZ ignored, write() then fails with EFBIG.
  rlimit limit = {};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &limit) == 0);
  const rlimit small = {4096, limit.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  const std::vector<float> large(10'000);
  ddp::Status status = ddp::Status::Ok;
  std::string why;
  try {
    ddp::save_checkpoint(folder.file("c"), {{"large", large.data(), ddp::DType::Float32, {10'000}}}, {});
  } catch (const ddp::Error& e) {
    status = e.status();
    why = e.what();
  }
  setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, handler);
  CHECK(status == ddp::Status::System);
  CHECK_THAT(why, Contains(folder.file("c")) && Contains("File too large"));
  CHECK(content(folder.file("c")) == before);
  CHECK(folder.entries() == 1);
}
