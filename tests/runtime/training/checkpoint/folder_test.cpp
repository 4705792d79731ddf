// SPDX-License-Identifier: BSD-3-Clause
// Checkpoint folders in a single process, through the public interface.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "ddp/ddp.hpp"
#include "tests/support/process.hpp"

using Catch::Matchers::Contains;
using ddp::testing::TemporaryFolder;
namespace fs = std::filesystem;
using Steps = std::vector<std::int64_t>;

namespace {

std::vector<float> numbers(std::size_t count, float first) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

ddp::Tensor tensor(const std::string& name, const std::vector<float>& values) {
  return {name, values.data(), ddp::DType::Float32, {static_cast<std::int64_t>(values.size())}};
}

void save(ddp::CheckpointFolder& folder, std::int64_t step) {
  const std::vector<float> values = numbers(10, static_cast<float>(step));
  folder.save(step, {tensor("w", values)}, {{"step", std::to_string(step)}});
}

void change_byte(const std::string& path, std::streamoff at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(at);
  const char byte = static_cast<char>(file.get() ^ 1);
  file.seekp(at);
  file.put(byte);
}

std::string what(const std::function<void()>& body) {
  try {
    body();
  } catch (const ddp::Error& e) {
    return std::to_string(static_cast<int>(e.status())) + " " + e.what();
  }
  return "";
}

std::vector<std::string> names_in(const std::string& path) {
  std::vector<std::string> names;
  for (const auto& each : fs::directory_iterator(path)) names.push_back(each.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

// Limits the size of files. With SIGXFSZ ignored, write() then fails with EFBIG.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit small = {bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
  }
  ~FileLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;

 private:
  rlimit before_ = {};
  sighandler_t handler_;
};

}  // namespace

TEST_CASE("checkpoint folder: what was saved is read back, the newest first", "[training][unit]") {
  const TemporaryFolder place;
  ddp::CheckpointFolder folder(place / "a/b");
  CHECK(folder.steps().empty());
  CHECK_FALSE(folder.latest().has_value());
  CHECK_FALSE(folder.latest_valid().has_value());
  const std::vector<double> scalar = {0.5};
  const std::vector<float> values = numbers(6, 1);
  folder.save(1, {{"w", values.data(), ddp::DType::Float32, {2, 3}}}, {});
  folder.save(20,
              {{"w", values.data(), ddp::DType::Float32, {2, 3}},
               {"lr", scalar.data(), ddp::DType::Float64, {}},
               {"none", nullptr, ddp::DType::Int32, {0, 4}}},
              {{"epoch", "3"}, {"näme", "ünïcode"}});
  CHECK(folder.steps() == Steps{1, 20});

  const ddp::Checkpoint newest = folder.latest().value();
  CHECK(newest.step() == 20);
  CHECK(newest.metadata("näme") == "ünïcode");
  CHECK_FALSE(newest.metadata("nothing").has_value());
  std::vector<float> read(6);
  std::vector<double> lr(1);
  std::vector<std::int32_t> none;
  newest.read("w", read, {2, 3});
  newest.read("lr", lr, {});
  newest.read("none", none, {0, 4});
  CHECK(read == values);
  CHECK(lr == scalar);
  newest.verify();
  REQUIRE(newest.tensors().size() == 3);
  CHECK(newest.tensors()[0].name == "lr");
  CHECK(newest.tensors()[2].shape == Steps{2, 3});

  CHECK(folder.open(1).step() == 1);
  CHECK(ddp::Checkpoint(place / "a/b/step-000000001").step() == 1);
  CHECK(ddp::Checkpoint(place / "a/b/step-000000001/model.safetensors").step() == -1);
  CHECK_THAT(what([&] { folder.open(2); }), Contains("step-000000002"));
}

TEST_CASE("checkpoint folder: any slice is read, however the tensor was sliced", "[training][unit]") {
  const unsigned seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const TemporaryFolder place;
  ddp::CheckpointFolder folder(place.path(), {1});
  // The parts begin and end within checksum blocks: a block of 4 MiB has 1048576 elements.
  const std::int64_t rows = 1500, columns = 1600;
  const std::vector<float> all = numbers(static_cast<std::size_t>(rows * columns), 0);
  const std::int64_t cut = 1 + static_cast<std::int64_t>(random() % 1498),
                     side = 1 + static_cast<std::int64_t>(random() % 1598);
  std::vector<std::vector<float>> memory;
  std::vector<ddp::TensorSlice> slices;
  const auto add = [&](std::int64_t row, std::int64_t column, std::int64_t height, std::int64_t width) {
    std::vector<float>& part = memory.emplace_back();
    for (std::int64_t r = row; r < row + height; ++r) {
      const auto begin = all.begin() + r * columns + column;
      part.insert(part.end(), begin, begin + width);
    }
    slices.push_back({{"m", part.data(), ddp::DType::Float32, {height, width}}, {row, column}, {rows, columns}});
  };
  memory.reserve(3);
  add(0, 0, cut, columns);
  add(cut, 0, rows - cut, side);
  add(cut, side, rows - cut, columns - side);
  folder.save(1, slices);
  const ddp::Checkpoint checkpoint = folder.latest().value();
  for (int round = 0; round < 12; ++round) {
    const auto row = static_cast<std::int64_t>(random() % 1500), column = static_cast<std::int64_t>(random() % 1600);
    const auto height = 1 + static_cast<std::int64_t>(random() % static_cast<unsigned>(rows - row));
    const auto width = 1 + static_cast<std::int64_t>(random() % static_cast<unsigned>(columns - column));
    std::vector<float> read(static_cast<std::size_t>(height * width), -1);
    checkpoint.read_slice("m", read, {row, column}, {height, width});
    bool right = true;
    for (std::int64_t i = 0; i < height * width; ++i) {
      right = right && read[static_cast<std::size_t>(i)] ==
                           all[static_cast<std::size_t>((row + i / width) * columns + column + i % width)];
    }
    INFO("from " << row << ", " << column << " on " << height << " by " << width);
    REQUIRE(right);
  }
  std::vector<float> whole(all.size());
  checkpoint.read("m", whole, {rows, columns});
  CHECK((whole == all));  // in parentheses, so that a failure does not print them all
  std::vector<float> two(2);
  CHECK_THAT(what([&] {
               checkpoint.read_slice("m", two, {1499, 1599}, {1, 2});
             }),
             Contains("5 ") && Contains("tensor m is [1500, 1600] of F32, but [1499:1500, 1599:1601] of F32"));
  CHECK_THAT(what([&] { checkpoint.read_slice("m", two, {0, 0}, {1, 3}); }), Contains("1 ") && Contains("3 elements"));
}

TEST_CASE("checkpoint folder: a plain file is read in slices too", "[training][unit]") {
  const TemporaryFolder place;
  const std::vector<float> values = numbers(12, 0);
  ddp::save_checkpoint(place / "f", {{"w", values.data(), ddp::DType::Float32, {3, 4}}}, {});
  std::vector<float> column(3);
  const ddp::Checkpoint file(place / "f");
  file.read_slice("w", column, {0, 2}, {3, 1});
  CHECK(column == std::vector<float>{2, 6, 10});
  file.verify();
}

TEST_CASE("checkpoint folder: a changed byte is found, and named by file, tensor and place", "[training][unit]") {
  const TemporaryFolder place;
  ddp::CheckpointFolder folder(place.path());
  const std::vector<float> values = numbers(3'000'000, 0), small = numbers(4, 7);
  folder.save(1, {tensor("a", values), tensor("b", small)}, {});
  const std::string file = place / "step-000000001/model.safetensors";
  const auto header = static_cast<std::streamoff>(fs::file_size(file)) - 12'000'016;
  change_byte(file, header + 5'000'000);  // in the second block with a checksum

  const ddp::Checkpoint checkpoint = folder.latest().value();
  std::vector<float> read(3'000'000), first(10), b(4);
  const std::string place_of_it = std::to_string(header + 4194304) + " to " + std::to_string(header + 8388608);
  CHECK_THAT(what([&] { checkpoint.read("a", read, {3'000'000}); }),
             Contains("7 ") && Contains(file) && Contains("tensor a: bytes " + place_of_it) && Contains("checksum"));
  CHECK_THAT(what([&] { checkpoint.verify(); }), Contains("tensor a: bytes " + place_of_it));
  checkpoint.read_slice("a", first, {0}, {10});  // an undamaged slice can still be read
  checkpoint.read("b", b, {4});
  CHECK(b == small);
}

TEST_CASE("checkpoint folder: a changed header, record or size is detected", "[training][unit]") {
  const TemporaryFolder place;
  ddp::CheckpointFolder folder(place.path());
  save(folder, 1);
  const std::string file = place / "step-000000001/model.safetensors";
  const std::string record = place / "step-000000001/checkpoint.json";
  SECTION("header") {
    change_byte(file, 20);
    CHECK_THAT(what([&] { folder.latest().value().verify(); }),
               Contains(file + ": its header is not what was written"));
  }
  SECTION("size") {
    fs::resize_file(file, fs::file_size(file) - 1);
    CHECK_THAT(what([&] { folder.latest().value().verify(); }), Contains(file + ": it has"));
    std::vector<float> read(10);
    CHECK_THAT(what([&] { folder.latest().value().read("w", read, {10}); }), Contains("truncated: tensor w should be"));
  }
  SECTION("gone") {
    fs::remove(file);
    CHECK_THAT(what([&] { folder.latest().value().verify(); }), Contains("7 ") && Contains(file + ": it is not there"));
  }
  SECTION("record") {
    change_byte(record, 70);
    CHECK_THAT(what([&] { folder.latest(); }), Contains("7 ") && Contains(record + ": its checksum is wrong"));
  }
}

TEST_CASE("checkpoint folder: latest_valid returns the newest undamaged checkpoint, and reports those it skips",
          "[training][unit]") {
  const TemporaryFolder place;
  ddp::CheckpointFolder folder(place.path());
  for (const std::int64_t step : {1, 2, 3}) save(folder, step);
  const auto file = [&](int step) { return place / ("step-00000000" + std::to_string(step) + "/model.safetensors"); };
  change_byte(file(3), static_cast<std::streamoff>(fs::file_size(file(3))) - 1);
  fs::remove(place / "step-000000002/model.safetensors");
  std::vector<std::string> skipped;
  const auto latest = [&] { return folder.latest_valid([&](const std::string& why) { skipped.push_back(why); }); };
  CHECK(latest().value().step() == 1);
  REQUIRE(skipped.size() == 2);
  CHECK_THAT(skipped[0], Contains(file(3)) && Contains("tensor w"));
  CHECK_THAT(skipped[1], Contains(file(2)) && Contains("it is not there"));
  CHECK(folder.latest().value().step() == 3);  // latest() does not verify

  // It is an error if no valid checkpoint is left: a training that started from scratch instead
  // would lose everything by mistake.
  change_byte(file(1), static_cast<std::streamoff>(fs::file_size(file(1))) - 1);
  CHECK_THAT(what([&] { latest(); }), Contains("7 ") && Contains("all of them are damaged"));
  save(folder, 3);  // a damaged checkpoint can be replaced like any other
  CHECK(latest().value().step() == 3);
}

TEST_CASE("checkpoint folder: only the last ones and the multiples are kept", "[training][unit]") {
  const TemporaryFolder place;
  ddp::CheckpointFolder folder(place.path(), {2, 3});
  for (std::int64_t step = 1; step <= 8; ++step) save(folder, step);
  CHECK(folder.steps() == Steps{3, 6, 7, 8});
  CHECK(names_in(place.path()).size() == 4);
}

TEST_CASE("checkpoint folder: a save in the background takes a copy, and only one is in flight", "[training][unit]") {
  const TemporaryFolder place;
  ddp::CheckpointFolder folder(place.path());
  std::vector<float> values = numbers(2'000'000, 0);
  ddp::PendingSave last(nullptr, 0);
  for (std::int64_t step = 1; step <= 4; ++step) {
    last = folder.save_async(step, {tensor("w", values)}, {});
    CHECK(folder.steps().size() >= static_cast<std::size_t>(step) - 1);  // the save before has ended
    for (float& value : values) ++value;                                 // change them for the next step
  }
  last.wait();
  last.wait();
  CHECK(last.is_completed());
  for (std::int64_t step = 1; step <= 4; ++step) {
    std::vector<float> read(values.size());
    folder.open(step).read("w", read, {2'000'000});
    CHECK((read == numbers(2'000'000, static_cast<float>(step - 1))));
  }
}

TEST_CASE("checkpoint folder: its destructor waits for the save in flight", "[training][unit]") {
  const TemporaryFolder place;
  const std::vector<float> values = numbers(2'000'000, 0);
  {
    ddp::CheckpointFolder folder(place.path());
    folder.save_async(1, {tensor("w", values)}, {});
  }
  const ddp::CheckpointFolder folder(place.path(), {0, 0, ddp::kDefaultTimeout, true});
  folder.open(1).verify();
}

TEST_CASE("checkpoint folder: a write that fails leaves what was there and nothing else", "[training][unit]") {
  const TemporaryFolder place;
  ddp::CheckpointFolder folder(place.path());
  save(folder, 1);
  const std::vector<float> values = numbers(10'000, 0);
  ddp::PendingSave pending(nullptr, 0);
  {
    const FileLimit limit(4096);
    const std::string why = what([&] { folder.save(2, {tensor("w", values)}, {}); });
    CHECK_THAT(why, Contains("6 ") && Contains("step 2: not saved (those before it are untouched)") &&
                        Contains("model.safetensors: cannot write: File too large"));
    CHECK(names_in(place.path()) == std::vector<std::string>{"step-000000001"});
    pending = folder.save_async(2, {tensor("w", values)}, {});
    CHECK_THAT(what([&] { pending.wait(); }), Contains("File too large"));
    pending = folder.save_async(3, {tensor("w", values)}, {});
    CHECK_THAT(what([&] { folder.save_async(4, {tensor("w", values)}, {}); }), Contains("step 3: not saved"));
  }
  CHECK(names_in(place.path()) == std::vector<std::string>{"step-000000001"});
  folder.save(4, {tensor("w", values)}, {});  // the error is reported once; then saving goes on
  CHECK(folder.latest_valid().value().step() == 4);
}

TEST_CASE("checkpoint folder: what cannot be saved is refused, and nothing is written", "[training][unit]") {
  const TemporaryFolder place;
  ddp::CheckpointFolder folder(place.path());
  const std::vector<float> x = numbers(4, 0);
  const auto refused = [&](std::int64_t step, const ddp::TensorSlices& slices, const ddp::Metadata& metadata = {}) {
    return what([&] { folder.save(step, slices, metadata); });
  };
  const ddp::DType f32 = ddp::DType::Float32;
  CHECK_THAT(refused(-1, {}), Contains("1 ") && Contains("cannot be negative"));
  CHECK_THAT(refused(1, {{"", x.data(), f32, {4}}}), Contains("1 ") && Contains("cannot be a tensor's name"));
  CHECK_THAT(refused(1, {{"w", nullptr, f32, {4}}}), Contains("1 ") && Contains("its data is null"));
  CHECK_THAT(refused(1, {{"w", x.data(), f32, {-4}}}), Contains("1 ") && Contains("not within"));
  CHECK_THAT(refused(1, {{"w", x.data(), f32, {INT64_MAX, 4}}}), Contains("1 ") && Contains("not within"));
  CHECK_THAT(refused(1, {{"w", x.data(), static_cast<ddp::DType>(77), {4}}}), Contains("1 ") && Contains("type 77"));
  CHECK_THAT(refused(1, {{"\xff", x.data(), f32, {4}}}), Contains("1 ") && Contains("UTF-8"));
  CHECK_THAT(refused(1, {}, {{"k", "\xff"}}), Contains("UTF-8"));
  CHECK_THAT(refused(1, {{"w", x.data(), f32, {4}}, {"w", x.data(), f32, {4}}}), Contains("two tensors are named w"));
  const std::vector<ddp::TensorSlice> half = {{{"w", x.data(), f32, {4}}, {0}, {8}}};
  CHECK_THAT(refused(1, half), Contains("5 ") && Contains("tensor w is not whole: 4 of the 8 elements"));
  const std::vector<ddp::TensorSlice> beyond = {{{"w", x.data(), f32, {4}}, {5}, {8}}};
  CHECK_THAT(refused(1, beyond), Contains("1 ") && Contains("[5:9] is not within [8]"));
  const std::vector<ddp::TensorSlice> flat = {{{"w", x.data(), f32, {4}}, {0, 0}, {8}}};
  CHECK_THAT(refused(1, flat), Contains("1 ") && Contains("one entry for each of its 1 dimensions"));
  CHECK(fs::is_empty(place.path()));
}

TEST_CASE("checkpoint folder: a folder that is not writable is reported at once, and can still be read",
          "[training][unit]") {
  const TemporaryFolder place;
  CHECK_THAT(what([&] { ddp::CheckpointFolder(""); }), Contains("1 ") && Contains("its path is empty"));
  CHECK_THAT(what([&] { ddp::CheckpointFolder(place / "x", {-1}); }), Contains("1 ") && Contains("negative"));
  place.write("file", "");
  CHECK_THAT(what([&] { ddp::CheckpointFolder(place / "file"); }), Contains("6 ") && Contains("Not a directory"));
  CHECK_THAT(what([&] { ddp::CheckpointFolder("/proc/none"); }), Contains("6 ") && Contains("/proc/none"));
  {
    ddp::CheckpointFolder folder(place / "x");
    save(folder, 3);
  }
  ddp::CheckpointFolder reader(place / "x", {0, 0, ddp::kDefaultTimeout, true});
  CHECK(reader.latest().value().step() == 3);
  CHECK_THAT(what([&] { save(reader, 4); }), Contains("1 ") && Contains("reading only"));
  ddp::CheckpointFolder nowhere(place / "y", {0, 0, ddp::kDefaultTimeout, true});
  CHECK(nowhere.steps().empty());
  CHECK_FALSE(fs::exists(place / "y"));
  if (geteuid() == 0) return;  // root is allowed everything
  fs::permissions(place / "x", fs::perms::owner_read | fs::perms::owner_exec);
  CHECK_THAT(what([&] { ddp::CheckpointFolder(place / "x"); }), Contains("6 ") && Contains("Permission denied"));
  fs::permissions(place / "x", fs::perms::owner_all);
}
