// SPDX-License-Identifier: BSD-3-Clause
#include <catch2/catch.hpp>
#include <filesystem>

#include "apps/train/checkpoint.hpp"
#include "apps/train/failure.hpp"
#include "apps/train/model/optimizer.hpp"
#include "tests/support/process.hpp"

namespace train {
namespace {

using Catch::Contains;
using ddp::testing::TemporaryFolder;
using StartMode = CheckpointFile::StartMode;

const GptShape kSmallest = {.context = 4, .layers = 1, .heads = 2, .width = 8};
const ddp::Metadata kIdentity = {{"width", "8"}, {"seed", "1"}};

// A model that has been trained for a while.
struct Training {
  explicit Training(const GptShape& shape = kSmallest) : gpt(shape) {
    gpt.initialise(1);
    optimizer.set_lr(1e-2);
  }
  Gpt gpt;
  ddp::AdamW optimizer = make_optimizer(gpt.parameters(), 0.1);

  void advance() {
    const std::vector<std::uint8_t> bytes = {'h', 'e', 'l', 'l', 'o'};
    const Bytes window(bytes);
    gpt.forward({&window, 1});
    gpt.backward([](std::size_t) {});
    optimizer.step();
  }
};

struct Fixture {
  TemporaryFolder folder;
  std::string path = folder / "checkpoint";
  CheckpointFile file{path, kIdentity, "job-1"};
  Training training;

  void write() {
    training.advance();
    file.write(training.gpt.parameters(), training.optimizer, {.step = 1, .sequences = 16});
  }
};

TEST_CASE_METHOD(Fixture, "checkpoint: without a file, a training starts from scratch", "[train][unit]") {
  CHECK(file.choose_start(false, 0) == StartMode::Fresh);
  CHECK(file.choose_start(true, 0) == StartMode::Fresh);
  CHECK(file.choose_start(false, 1) == StartMode::Fresh);
}

TEST_CASE_METHOD(Fixture, "checkpoint: it is continued when asked for, or by a restart of its own job",
                 "[train][unit]") {
  write();
  CHECK(file.choose_start(true, 0) == StartMode::Continue);
  CHECK(file.choose_start(false, 1) == StartMode::Continue);
  CHECK(file.choose_start(true, 1) == StartMode::Continue);
}

TEST_CASE_METHOD(Fixture, "checkpoint: a first start, or a restart of another job, sets it aside", "[train][unit]") {
  write();
  CHECK(file.choose_start(false, 0) == StartMode::SetAside);
  const CheckpointFile of_another_job{path, kIdentity, "job-2"};
  CHECK(of_another_job.choose_start(false, 1) == StartMode::SetAside);
  CHECK(of_another_job.choose_start(true, 0) == StartMode::Continue);
}

TEST_CASE_METHOD(Fixture, "checkpoint: another training's checkpoint is refused, with the difference",
                 "[train][unit]") {
  write();
  const CheckpointFile wider{path, {{"width", "16"}, {"seed", "1"}}, "job-1"};
  for (const bool resume : {false, true}) {
    CHECK_THROWS_WITH(wider.choose_start(resume, 0), Contains(path) && Contains("width 8, here 16"));
    CHECK_THROWS_AS(wider.choose_start(resume, 1), Failure);
  }
  CHECK(file.choose_start(true, 0) == StartMode::Continue);
}

TEST_CASE_METHOD(Fixture, "checkpoint: a file that is not a checkpoint is refused and not changed", "[train][unit]") {
  folder.write("checkpoint", "My diary. Do not overwrite.");
  CHECK_THROWS_WITH(file.choose_start(false, 0), Contains(path));
  CHECK_THROWS_AS(file.choose_start(true, 0), Failure);
  CHECK(std::filesystem::file_size(path) == 27);
}

TEST_CASE_METHOD(Fixture, "checkpoint: cut short at any place, it is refused", "[train][unit]") {
  write();
  const auto size = std::filesystem::file_size(path);
  for (const auto cut : {size - 1, size / 2, std::uintmax_t{9}, std::uintmax_t{0}}) {
    std::filesystem::resize_file(path, cut);
    CHECK_THROWS_AS(file.choose_start(true, 0), Failure);
  }
}

TEST_CASE_METHOD(Fixture, "checkpoint: a missing folder is reported before training", "[train][unit]") {
  const CheckpointFile lost{folder / "missing/checkpoint", kIdentity, ""};
  CHECK_THROWS_WITH(lost.choose_start(false, 0), Contains("missing/checkpoint") && Contains("cannot be written"));
}

TEST_CASE_METHOD(Fixture, "checkpoint: a training continued from it takes the same next step, bit for bit",
                 "[train][unit]") {
  write();
  Training resumed;
  const Position position = file.read(resumed.gpt.parameters(), resumed.optimizer);
  CHECK(position.step == 1);
  CHECK(position.sequences == 16);

  training.advance();
  resumed.advance();
  for (const Parameter& p : training.gpt.parameters())
    CHECK(std::ranges::equal(p.value, resumed.gpt.parameters()[p.index].value));
}

TEST_CASE_METHOD(Fixture, "checkpoint: parameters of another shape are not read", "[train][unit]") {
  write();
  Training deeper({.context = 4, .layers = 2, .heads = 2, .width = 8});
  CHECK_THROWS_AS(file.read(deeper.gpt.parameters(), deeper.optimizer), Failure);
}

TEST_CASE_METHOD(Fixture, "checkpoint: one without the optimizer's state is not continued from", "[train][unit]") {
  write();
  std::vector<ddp::Tensor> tensors;
  for (const Parameter& p : training.gpt.parameters()) {
    tensors.push_back({p.name, p.value.data(), ddp::DType::Float32, p.shape});
  }
  ddp::save_checkpoint(path, tensors, {{"step", "1"}, {"sequences", "16"}});
  CHECK_THROWS_WITH(file.read(training.gpt.parameters(), training.optimizer),
                    Contains(path) && Contains("exp_avg") && Contains("move it away to start from scratch"));
}

}  // namespace
}  // namespace train
