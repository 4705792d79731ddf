// SPDX-License-Identifier: BSD-3-Clause
// Small promises of the C interface itself.
#include <stdlib.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "ddp/ddp.hpp"

TEST_CASE("C interface: null handles are errors, not crashes", "[runtime][unit]") {
  CHECK(ddp_session_init(nullptr, nullptr) == DDP_INVALID_ARGUMENT);
  CHECK(ddp_barrier(nullptr, 0, nullptr) == DDP_INVALID_ARGUMENT);
  CHECK(ddp_reducer_mark_ready(nullptr, 0) == DDP_INVALID_ARGUMENT);
  CHECK(ddp_reducer_gradient(nullptr, 0) == nullptr);
  CHECK(ddp_checkpoint_open(nullptr, nullptr) == DDP_INVALID_ARGUMENT);
  CHECK(std::string(ddp_error_last()).find("is null") != std::string::npos);
  ddp_session_destroy(nullptr);
  ddp_reducer_destroy(nullptr);
  ddp_checkpoint_close(nullptr);
}

TEST_CASE("C interface: the last error is each thread's own", "[runtime][unit]") {
  CHECK(ddp_barrier(nullptr, 0, nullptr) == DDP_INVALID_ARGUMENT);
  std::string other = "unset";
  std::thread([&] { other = ddp_error_last(); }).join();
  CHECK(other.empty());
  CHECK(std::string(ddp_error_last()) == "the group is null");
}

TEST_CASE("C interface: an operation that is described wrongly is refused, in words", "[runtime][integration]") {
  ddp::Session session = ddp::init_process_group();
  ddp_group* const world = session.world().c();
  ddp_work work = {};
  ddp_operation operation = ddp_operation_of(DDP_BARRIER, 0, 0);
  const auto why_not = [&](ddp_work* its_work) {
    CHECK(ddp_issue(world, &operation, its_work) == DDP_INVALID_ARGUMENT);
    return std::string(ddp_error_last());
  };
  CHECK(ddp_issue(world, &operation, nullptr) == DDP_OK);
  operation.size -= 8;
  CHECK(why_not(nullptr) == "ddp_operation: its size is " + std::to_string(operation.size) +
                                " bytes, but this libddp's is " + std::to_string(sizeof operation) +
                                ": begin with ddp_operation_of()");
  operation = ddp_operation_of(16, 0, 0);
  CHECK(why_not(nullptr) == "there is no operation of kind 16");
  operation = ddp_operation_of(DDP_MONITORED_BARRIER, 0, 0);
  CHECK(why_not(&work) == "monitored_barrier: it ends within its call; give no work");
  operation = ddp_operation_of(DDP_ALL_GATHER_OBJECT, 0, 0);
  CHECK(why_not(&work) == "all_gather_object: it ends within its call; give no work");
  CHECK(why_not(nullptr) == "all_gather_object: given 0 objects; give one");
}

TEST_CASE("C interface: knows its version and its types", "[runtime][unit]") {
  CHECK(std::string(ddp_version()) == PROJECT_VERSION);
  CHECK(ddp_dtype_size(DDP_FLOAT64) == 8);
  CHECK(ddp_dtype_size(-1) == 0);
  CHECK(ddp_dtype_size(DDP_BFLOAT16) == 2);
  CHECK(ddp_dtype_size(12) == 0);
  CHECK(ddp::element_size(ddp::DType::Int16) == 2);
  CHECK(ddp::Buffer(nullptr, 3, ddp::DType::Float64).bytes() == 24);
}

TEST_CASE("C interface: an error is recorded where the launcher said, and only there", "[runtime][unit]") {
  std::string folder = (std::filesystem::temp_directory_path() / "ddp-error-XXXXXX").string();
  REQUIRE(mkdtemp(folder.data()) != nullptr);
  unsetenv("TORCHELASTIC_ERROR_FILE");
  CHECK_FALSE(ddp::record_error("nobody asked"));
  setenv("TORCHELASTIC_ERROR_FILE", (folder + "/error.json").c_str(), 1);
  CHECK(ddp::record_error("loss is NaN in step 7"));
  setenv("TORCHELASTIC_ERROR_FILE", (folder + "/none/error.json").c_str(), 1);
  CHECK_FALSE(ddp::record_error("no such folder"));
  unsetenv("TORCHELASTIC_ERROR_FILE");
  std::ostringstream text;
  text << std::ifstream(folder + "/error.json").rdbuf();
  CHECK(text.str().find(R"("message":"loss is NaN in step 7")") != std::string::npos);
  CHECK(std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator()) == 1);
  std::filesystem::remove_all(folder);
}
