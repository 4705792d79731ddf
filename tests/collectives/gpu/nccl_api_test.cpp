// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/gpu/nccl_api.hpp"

#include <dlfcn.h>
#include <glob.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "collectives/gpu/cuda_api.hpp"
#include "rendezvous/base/error.hpp"
#include "tests/support/hosts.hpp"

using namespace ddp::collectives;
using Catch::Matchers::Contains;
using ddp::rendezvous::Error;

namespace {

std::string failure_of(const auto& body) {
  try {
    body();
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing failed";
}

// Returns where PyTorch's package of NCCL has its library, if that is installed for DDPRUN_TEST_PYTHON.
std::vector<std::string> nccl_of_torch() {
  const char* python = std::getenv("DDPRUN_TEST_PYTHON");
  if (python == nullptr) return {};
  const auto environment = std::filesystem::path(python).parent_path().parent_path();
  glob_t found = {};
  glob((environment / "lib/python3*/site-packages/nvidia/nccl/lib/libnccl.so.2").c_str(), 0, nullptr, &found);
  const std::vector<std::string> paths(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  return paths;
}

// Returns the path of the real library, or "" if it is not installed.
std::string real_nccl() {
  std::vector<std::string> names = {"libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2",
                                    "/usr/local/cuda/lib/libnccl.so.2"};
  for (const std::string& path : nccl_of_torch()) names.push_back(path);
  for (const std::string& name : names) {
    if (void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {
      dlclose(library);
      return name;
    }
  }
  return "";
}

}  // namespace

TEST_CASE("nccl api: a missing library is an error that says what to do", "[collectives][unit]") {
  const std::string text = failure_of([] { open_nccl("/nowhere/libnccl.so.2"); });
  CHECK_THAT(text, Contains("NCCL cannot be opened: /nowhere/libnccl.so.2: cannot open shared object file"));
  CHECK_THAT(text, Contains("DDP_NCCL_LIBRARY"));
  CHECK_THAT(failure_of([] { open_cuda("/nowhere/libcuda.so.1"); }),
             Contains("the CUDA driver cannot be opened: /nowhere/libcuda.so.1"));
}

TEST_CASE("nccl api: a library that lacks a function is an error that names the function", "[collectives][unit]") {
  CHECK_THAT(failure_of([] { open_nccl(FAKE_CUDA); }), Contains("has no ncclGetVersion: it is too old"));
}

TEST_CASE("nccl api: the fakes have every function", "[collectives][unit]") {
  open_cuda(FAKE_CUDA);
  int version = 0;
  CHECK(open_nccl(FAKE_NCCL).get_version(&version) == NcclResult::Success);
  CHECK(version >= 21400);
}

TEST_CASE("nccl api: the real library has every function and speaks our types", "[collectives][unit]") {
  const std::string path = real_nccl();
  if (path.empty()) ddp::testing::skip("there is no libnccl.so.2");
  const NcclApi api = open_nccl(path.c_str());
  int version = 0;
  REQUIRE(api.get_version(&version) == NcclResult::Success);
  CHECK(version >= 21400);
  CHECK(((api.comm_split != nullptr) == (version >= 21800)));
  CHECK(((api.comm_register != nullptr) == (version >= 21900)));
  CHECK(((api.comm_window_register != nullptr) == (version >= 22700)));
  NcclUniqueId id = {};
  REQUIRE(api.get_unique_id(&id) == NcclResult::Success);
  CHECK(std::string(id.bytes, sizeof(id.bytes)) != std::string(sizeof(id.bytes), '\0'));
  CHECK(api.get_error_string(NcclResult::Success) == std::string("no error"));
}
