// SPDX-License-Identifier: BSD-3-Clause
// One rank of a training that only saves checkpoints. argv[1] names the scenario; the environment
// has FOLDER, the FIRST and LAST step, and the folder's options. Element i of the table of step s is
// 1000 s + i, so that every reader knows what to expect.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "ddp/ddp.hpp"
#include "tests/runtime/job/scenario.hpp"
#include "tests/support/environment.hpp"

namespace {

using ddp::test::expect;
using ddp::test::report_failure;
using ddp::test::say;

std::int64_t number(const char* variable) { return ddp::testing::number_from<std::int64_t>(variable, 0); }

constexpr std::int64_t kRows = 12;
constexpr std::int64_t kColumns = 7;

std::vector<float> table(std::int64_t step) {
  std::vector<float> values(kRows * kColumns);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(step * 1000) + static_cast<float>(i);
  return values;
}

// Returns rank r's first row, with the 12 rows divided as evenly as possible.
std::int64_t first_row(int rank, int size) { return kRows * rank / size; }

ddp::TensorSlice rows_of(const ddp::ProcessGroup& group, const std::vector<float>& all) {
  const std::int64_t first = first_row(group.rank(), group.size());
  const std::int64_t rows = first_row(group.rank() + 1, group.size()) - first;
  return {
      {"table", all.data() + first * kColumns, ddp::DType::Float32, {rows, kColumns}}, {first, 0}, {kRows, kColumns}};
}

// Returns all tensors, for rank 0: a table, a number, and a tensor large enough for several writes.
std::vector<ddp::Tensor> whole(const std::vector<float>& values, const std::vector<float>& large) {
  return {{"table", values.data(), ddp::DType::Float32, {kRows, kColumns}},
          {"first", values.data(), ddp::DType::Float32, {}},
          {"large", large.data(), ddp::DType::Float32, {static_cast<std::int64_t>(large.size())}}};
}

void check(const ddp::Checkpoint& checkpoint) {
  std::vector<float> read(kRows * kColumns);
  checkpoint.read("table", read, {kRows, kColumns});
  expect(read == table(checkpoint.step()), "the table of step " + std::to_string(checkpoint.step()));
  expect(checkpoint.metadata("step") == std::to_string(checkpoint.step()), "the metadata");
}

// Saves one step after the other.
void save(ddp::CheckpointFolder& folder, bool alone) {
  const std::vector<float> large(1'100'000, 1);
  for (std::int64_t step = number("FIRST"); step <= number("LAST"); ++step) {
    const std::vector<float> values = table(step);
    const ddp::Metadata metadata = {{"step", std::to_string(step)}};
    if (alone) folder.save(step, whole(values, large), metadata);
    if (!alone) folder.save(step, {rows_of(ddp::default_group(), values)}, metadata);
    say("saved " + std::to_string(step));
  }
}

// Saves in the background while the group trains. The values change as soon as they are copied.
void save_async(ddp::CheckpointFolder& folder) {
  const ddp::ProcessGroup world = ddp::default_group();
  for (std::int64_t step = number("FIRST"); step <= number("LAST"); ++step) {
    std::vector<float> values = table(step);
    const ddp::PendingSave save = folder.save_async(step, {rows_of(world, values)}, {{"step", std::to_string(step)}});
    values.assign(values.size(), -1);
    for (int i = 0; i < 20; ++i) {
      float one = 1;
      world.all_reduce({&one, 1});
      expect(one == static_cast<float>(world.size()), "an all_reduce beside a save");
    }
    if (step % 2 == 0) save.wait();
    say("saved " + std::to_string(step));
  }
}

// Loads this rank's rows, divided by the current number of ranks, which may differ from the number
// when they were saved.
void load(ddp::CheckpointFolder& folder) {
  const ddp::ProcessGroup world = ddp::default_group();
  const auto checkpoint = folder.latest_valid([](const std::string& why) { say("skipped: " + why); });
  if (!checkpoint) return say("none");
  const std::vector<float> all = table(checkpoint->step());
  const ddp::TensorSlice mine = rows_of(world, all);
  std::vector<float> read(static_cast<std::size_t>(mine.part.shape[0] * kColumns));
  checkpoint->read_slice("table", read, mine.offset, mine.part.shape);
  const float* expected = static_cast<const float*>(mine.part.data);
  expect(std::equal(read.begin(), read.end(), expected), "this rank's rows");
  // Also loads a column, which crosses the shards of all ranks.
  std::vector<float> column(kRows);
  checkpoint->read_slice("table", column, {0, 3}, {kRows, 1});
  for (std::size_t row = 0; row < column.size(); ++row) {
    expect(column[row] == all[row * static_cast<std::size_t>(kColumns) + 3], "a column");
  }
  check(*checkpoint);
  say("loaded " + std::to_string(checkpoint->step()));
}

// A mistake of one rank is the same error on all ranks, and the folder remains usable.
void mistakes(ddp::CheckpointFolder& folder) {
  const ddp::ProcessGroup world = ddp::default_group();
  const std::vector<float> values = table(1);
  const bool last = world.rank() == world.size() - 1;
  report_failure("rows missing",
                 [&] { folder.save(1, last ? ddp::TensorSlices() : ddp::TensorSlices({rows_of(world, values)})); });
  report_failure("given twice", [&] { folder.save(1, {{"w", values.data(), ddp::DType::Float32, {kRows}}}); });
  report_failure("two types", [&] {
    folder.save(1, last ? ddp::TensorSlices({{"w", values.data(), ddp::DType::Int32, {2}}})
                        : ddp::TensorSlices({{"w", values.data(), ddp::DType::Float32, {2}}}));
  });
  report_failure("no data", [&] {
    folder.save(1, last ? ddp::TensorSlices({{"v", nullptr, ddp::DType::Float32, {2}}})
                        : ddp::TensorSlices({{"w", values.data(), ddp::DType::Float32, {2}}}));
  });
  report_failure("two steps", [&] { folder.save(last ? 2 : 1, {}); });
  const ddp::PendingSave pending =
      folder.save_async(1, last ? ddp::TensorSlices() : ddp::TensorSlices({rows_of(world, values)}));
  report_failure("waited", [&] { pending.wait(); });
  folder.save_async(1, last ? ddp::TensorSlices() : ddp::TensorSlices({rows_of(world, values)}));
  report_failure("told by the next", [&] { folder.save(7, {rows_of(world, values)}); });
  expect(folder.steps().empty(), "nothing is there yet");
  folder.save(7, {rows_of(world, values)});
  expect(folder.steps() == std::vector<std::int64_t>{7}, "the step is there");
}

// Saves the first step, which must fail, then saves once more.
void try_save(ddp::CheckpointFolder& folder) {
  const std::int64_t step = number("FIRST");
  const std::vector<float> values = table(step);
  const auto save_it = [&] {
    folder.save(step, {rows_of(ddp::default_group(), values)}, {{"step", std::to_string(step)}});
  };
  report_failure("save", save_it);
  report_failure("again", save_it);
}

// Saves whole tensors, each on one of the ranks, for others to read.
void shares(ddp::CheckpointFolder& folder) {
  const ddp::ProcessGroup world = ddp::default_group();
  const std::vector<float> values = table(5);
  std::vector<ddp::Tensor> tensors;
  for (int i = 0; i < 6; ++i) {
    tensors.push_back({"layer" + std::to_string(i), values.data() + i, ddp::DType::Float32, {2, 3}});
  }
  const std::vector<ddp::Tensor> mine = ddp::share_of(tensors, world);
  say("saves " + std::to_string(mine.size()));
  folder.save(5, mine, {{"format", "pt"}});
}

// Saves tensors without elements, before, between and behind others, or alone.
void empty_shares(ddp::CheckpointFolder& folder) {
  const ddp::ProcessGroup world = ddp::default_group();
  const float value = 1;
  const auto empty = [](const char* name) { return ddp::Tensor{name, nullptr, ddp::DType::Float32, {0, 3}}; };
  const ddp::Tensor scalar = {"scalar", &value, ddp::DType::Float32, {}};
  const std::vector<std::vector<ddp::Tensor>> all = {
      {empty("first"), scalar, empty("last"), empty("very last")}, {empty("only")}, {scalar}, {}};
  std::int64_t step = 0;
  for (const std::vector<ddp::Tensor>& tensors : all) {
    folder.save(++step, ddp::share_of(tensors, world));
    expect(folder.latest()->tensors().size() == tensors.size(), "each tensor is saved by one rank");
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::string what = argv[1];
  const std::string path = ddp::testing::variable("FOLDER");
  const ddp::CheckpointOptions options = {number("KEEP_LAST"), number("KEEP_EVERY"),
                                          ddp::Milliseconds(number("TIMEOUT_MS"))};
  try {
    if (what == "save alone") {
      ddp::CheckpointFolder folder(path, options);
      save(folder, true);
      return ddp::test::all_right ? 0 : 1;
    }
    ddp::InitOptions join;
    join.backend = ddp::testing::variable("BACKEND", join.backend);
    const ddp::Session session = ddp::init_process_group(join);
    ddp::CheckpointFolder folder(session.world(), path, options);
    const std::map<std::string, std::function<void()>> programs = {
        {"save", [&] { save(folder, false); }},
        {"save async", [&] { save_async(folder); }},
        {"load", [&] { load(folder); }},
        {"mistakes", [&] { mistakes(folder); }},
        {"try", [&] { try_save(folder); }},
        {"shares", [&] { shares(folder); }},
        {"empty shares", [&] { empty_shares(folder); }},
    };
    programs.at(what)();
  } catch (const std::exception& e) {
    say(std::string("error: ") + e.what());
    return 1;
  }
  return ddp::test::all_right ? 0 : 1;
}
