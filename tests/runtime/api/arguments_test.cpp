// SPDX-License-Identifier: BSD-3-Clause
// Option structs of other versions of ddp.h than the library's, for read_options() and for C functions with options.
#include "runtime/api/arguments.hpp"

#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "ddp/ddp.hpp"

namespace {

using Catch::Matchers::Contains;
using ddp::runtime::FirstLayout;

// An option struct as 0.1.0 had it, as this library knows it, and as a later one may.
struct First {
  std::size_t size;
  std::int64_t timeout_ms;
};
struct Known {
  std::size_t size;
  std::int64_t timeout_ms;
  const char* name;
};
struct Later {
  std::size_t size;
  std::int64_t timeout_ms;
  const char* name;
  std::int32_t strict;
};
constexpr FirstLayout kFirst = {"some_options", sizeof(First)};

template <typename Given>
Known read(const Given& given) {
  Known known = {};
  ddp::runtime::read_options(&known, sizeof known, &given, kFirst);
  return known;
}

template <typename Given>
std::string refusal(const Given& given) {
  try {
    read(given);
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("option structs: a struct of this version is read as it is", "[runtime][unit]") {
  const Known known = read(Known{sizeof(Known), 7, "a"});
  CHECK(known.timeout_ms == 7);
  CHECK(known.name == std::string("a"));
}

TEST_CASE("option structs: fields that a smaller one lacks are zero", "[runtime][unit]") {
  struct {
    First given;
    const char* next_to_it;
  } memory = {{sizeof(First), 7}, "not part of the struct"};
  CHECK(read(memory.given).timeout_ms == 7);
  CHECK(read(memory.given).name == nullptr);
}

TEST_CASE("option structs: size 0 is the layout of 0.1.0", "[runtime][unit]") {
  CHECK(read(Known{0, 7, "a field that 0.1.0 did not have"}).timeout_ms == 7);
  CHECK(read(Known{0, 7, "a field that 0.1.0 did not have"}).name == nullptr);
}

TEST_CASE("option structs: a larger one is read if the rest is zero", "[runtime][unit]") {
  const Known known = read(Later{sizeof(Later), 7, "a", 0});
  CHECK(known.timeout_ms == 7);
  CHECK(known.name == std::string("a"));
}

TEST_CASE("option structs: a field that this version does not know is refused", "[runtime][unit]") {
  CHECK(refusal(Later{sizeof(Later), 7, "a", 1}) ==
        "some_options: a field behind its first 24 bytes is set, which this libddp, version " PROJECT_VERSION
        ", does not know: leave it 0, or use a libddp as new as the program's ddp.h");
}

TEST_CASE("option structs: a size that no version has is refused", "[runtime][unit]") {
  CHECK(
      refusal(Known{15, 7, "a"}) ==
      "some_options: its size is 15 bytes, but no version of it has that: begin with DDP_..._INIT, or with all zeros");
  CHECK_THAT(refusal(Known{1U << 20U, 7, "a"}), Contains("its size is 1048576 bytes"));
}

TEST_CASE("option structs: every function reads the size of its options", "[runtime][unit]") {
  ddp_session* no_session = nullptr;
  ddp_spawned* none = nullptr;
  const auto nothing = [](std::int32_t, void*, char*, std::size_t) { return DDP_OK; };

  ddp_session_options session = DDP_SESSION_OPTIONS_INIT;
  ddp_spawn_options spawn = DDP_SPAWN_OPTIONS_INIT;
  session.size = spawn.size = 1;
  CHECK(ddp_session_init(&session, &no_session) == DDP_INVALID_ARGUMENT);
  CHECK_THAT(ddp_error_last(), Contains("ddp_session_options: its size is 1 "));
  CHECK(ddp_spawn(nothing, nullptr, 1, &spawn, &none) == DDP_INVALID_ARGUMENT);
  CHECK_THAT(ddp_error_last(), Contains("ddp_spawn_options: its size is 1 "));
}

TEST_CASE("option structs: those of a session's objects are read by their size", "[runtime][integration]") {
  ddp::Session session = ddp::init_process_group();
  const ddp::ProcessGroup world = session.world();

  ddp_group_options group = DDP_GROUP_OPTIONS_INIT;
  group.name = "mine";
  ddp_group* made = nullptr;
  REQUIRE(ddp_group_split(world.c(), 0, 0, &group, &made) == DDP_OK);
  CHECK(ddp_group_name(made) == std::string("mine"));
  group.size = 1;
  CHECK(ddp_group_split(world.c(), 0, 0, &group, &made) == DDP_INVALID_ARGUMENT);
  CHECK_THAT(ddp_error_last(), Contains("ddp_group_options: "));

  ddp_reducer_options reducer_options = DDP_REDUCER_OPTIONS_INIT;
  ddp_reducer* reducer = nullptr;
  REQUIRE(ddp_reducer_create(world.c(), nullptr, 0, &reducer_options, &reducer) == DDP_OK);
  ddp_reducer_join_options join = DDP_REDUCER_JOIN_OPTIONS_INIT;
  join.size = 1;
  CHECK(ddp_reducer_join_begin(reducer, &join) == DDP_INVALID_ARGUMENT);
  CHECK_THAT(ddp_error_last(), Contains("ddp_reducer_join_options: "));
  ddp_reducer_destroy(reducer);
  reducer_options.size = 1;
  CHECK(ddp_reducer_create(world.c(), nullptr, 0, &reducer_options, &reducer) == DDP_INVALID_ARGUMENT);
  CHECK_THAT(ddp_error_last(), Contains("ddp_reducer_options: "));

  ddp_checkpoint_folder_options folder_options = DDP_CHECKPOINT_FOLDER_OPTIONS_INIT;
  folder_options.size = 1;
  ddp_checkpoint_folder* folder = nullptr;
  CHECK(ddp_checkpoint_folder_create(nullptr, "none", &folder_options, &folder) == DDP_INVALID_ARGUMENT);
  CHECK_THAT(ddp_error_last(), Contains("ddp_checkpoint_folder_options: "));
}
