// SPDX-License-Identifier: BSD-3-Clause
// One rank that exchanges objects of all sizes with the others. argv[1] names the scenario. A failed check prints a
// line and makes the exit code 1.
#include <algorithm>
#include <cstddef>
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
using ddp::test::say;
using Sizes = std::function<std::size_t(int rank)>;

// Makes an object that differs between ranks and contains every byte, 0 included.
std::string object_of(int rank, std::size_t size) {
  std::string object(size, '\0');
  unsigned value = static_cast<unsigned>(rank) * 31 + static_cast<unsigned>(size);
  for (char& byte : object) byte = static_cast<char>(value++ % 251);
  return object;
}

void exchange(const ddp::ProcessGroup& group, const std::string& what, const Sizes& size_of) {
  const auto object = [&](int rank) { return object_of(rank, size_of(rank)); };
  const std::string mine = object(group.rank());
  std::vector<std::string> all;
  for (int rank = 0; rank < group.size(); ++rank) all.push_back(object(rank));
  expect(group.all_gather_object(mine) == all, what + ": all_gather_object");
  for (int root = 0; root < group.size(); ++root) {
    const bool is_root = group.rank() == root;
    const std::string from = what + ", root " + std::to_string(root);
    expect(group.broadcast_object(mine, root) == object(root), from + ": broadcast_object");
    expect(group.gather_object(mine, root) == (is_root ? all : std::vector<std::string>()), from + ": gather_object");
    // The root sends its list in reverse order, so that every rank receives something new.
    const std::vector<std::string> list(all.rbegin(), all.rend());
    expect(group.scatter_object(is_root ? list : std::vector<std::string>(), root) ==
               object(group.size() - 1 - group.rank()),
           from + ": scatter_object");
  }
}

void all_sizes(const ddp::ProcessGroup& group) {
  exchange(group, "empty", [](int) { return 0; });
  exchange(group, "one byte", [](int) { return 1; });
  exchange(group, "rank 0's is empty", [](int rank) { return static_cast<std::size_t>(rank) * 1000; });
  exchange(group, "the last one's is empty", [&](int rank) { return rank == group.size() - 1 ? 0U : 77'777U; });
  exchange(group, "only rank 0 has one", [](int rank) { return rank == 0 ? 12U : 0U; });
  exchange(group, "odd", [](int rank) { return static_cast<std::size_t>(rank) * 100'003 + 13; });
}

// Sends more than Gloo's and the kernel's buffers hold.
void large(const ddp::ProcessGroup& group) {
  exchange(group, "large", [](int rank) { return rank == 0 ? 5U : 120'000'001U; });
}

void containers(const ddp::ProcessGroup& group) {
  const std::vector<std::byte> bytes = {std::byte{1}, std::byte{0}, std::byte{255}};
  expect(group.broadcast_object(bytes) == std::string("\1\0\377", 3), "a vector of bytes");
  expect(group.broadcast_object("text") == "text", "a text");
  const std::vector<std::uint8_t> numbers = {7, 8};
  expect(group.broadcast_object(numbers) == "\7\10", "a vector of numbers");
  expect(group.broadcast_object({"memory", 3}) == "mem", "any memory");
  const std::vector<const char*> texts(static_cast<std::size_t>(group.size()), "for you");
  expect(group.scatter_object(texts) == "for you", "a list of texts");
  expect(group.rank() == 0 ? group.scatter_object(texts) == "for you" : group.scatter_object({}) == "for you",
         "a list of nothing from who is not root");
}

// Each exchange takes one number in the sequence of collectives.
void in_order(const ddp::ProcessGroup& group) {
  std::vector<float> values = {1};
  const auto issue_all_reduce = [&] {
    ddp_work work = {};
    ddp_all_reduce(group.c(), ddp::Buffer(values).c(), {DDP_SUM, 1}, 0, &work);
    return work;
  };
  const ddp_work first = issue_all_reduce();
  expect(group.broadcast_object("x") == "x", "after an asynchronous operation");
  expect(ddp::Work(first).is_completed(), "an object waits for its turn");
  const ddp_work last = issue_all_reduce();
  expect(last.sequence == first.sequence + 2, "an object counts as one operation");
  ddp::Work(last).wait();
  expect(values[0] == static_cast<float>(group.size() * group.size()), "the operations around it");
}

void mistakes(const ddp::ProcessGroup& group) {
  const auto failure = [&](const std::function<void()>& body) -> std::string {
    try {
      body();
      return "none";
    } catch (const ddp::Error& e) {
      return std::to_string(static_cast<int>(e.status())) + " " + e.what();
    }
  };
  if (group.rank() == 0) {
    expect(failure([&] { group.scatter_object(std::vector<std::string>(9)); }) ==
               "1 scatter_object: root has 9 objects for " + std::to_string(group.size()) + " ranks; give one for each",
           "too many objects");
    expect(failure([&] {
             group.broadcast_object({nullptr, 4});
           }) == "1 broadcast_object: null data for an object of 4 bytes",
           "an object that is null");
    expect(failure([&] { group.gather_object("x", group.size()); }) ==
               "1 gather_object: root " + std::to_string(group.size()) + " is not a rank of a group of " +
                   std::to_string(group.size()),
           "a root that is nobody");
    expect(ddp_broadcast_object(group.c(), {nullptr, 0}, 0, 0, {nullptr, nullptr}) == DDP_INVALID_ARGUMENT,
           "a sink without a function");
  }
  expect(group.broadcast_object("well") == "well", "a refused call harms nobody");
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, std::function<void(const ddp::ProcessGroup&)>> scenarios = {{"all sizes", all_sizes},
                                                                                          {"large", large},
                                                                                          {"containers", containers},
                                                                                          {"in order", in_order},
                                                                                          {"mistakes", mistakes}};
  if (argc != 2) return 2;
  try {
    ddp::InitOptions options;
    options.backend = ddp::testing::variable("TEST_BACKEND", options.backend);
    const ddp::Session session = ddp::init_process_group(options);
    scenarios.at(argv[1])(session.world());
    session.world().barrier();
  } catch (const std::exception& e) {
    say(std::string("error: ") + e.what());
    return 1;
  }
  return ddp::test::all_right ? 0 : 1;
}
