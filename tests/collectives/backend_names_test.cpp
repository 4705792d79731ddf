// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/backend_names.hpp"

#include <catch2/catch.hpp>

#include "rendezvous/base/error.hpp"

using Catch::Matchers::Contains;
using ddp::collectives::BackendNames;
using ddp::collectives::parse_backend_names;

TEST_CASE("backend names: one name alone serves its kind of memory", "[collectives][unit]") {
  CHECK(parse_backend_names("gloo") == BackendNames{"gloo", ""});
  CHECK(parse_backend_names("nccl") == BackendNames{"", "nccl"});
  CHECK(parse_backend_names("my_mpi-2") == BackendNames{"my_mpi-2", ""});
  CHECK(parse_backend_names("NCCL") == BackendNames{"", "nccl"});
  CHECK(parse_backend_names("") == BackendNames{"ddp", ""});
}

TEST_CASE("backend names: each kind of memory may have its own, in any order", "[collectives][unit]") {
  CHECK(parse_backend_names("cpu:gloo,cuda:nccl") == BackendNames{"gloo", "nccl"});
  CHECK(parse_backend_names("cuda:nccl,cpu:gloo") == BackendNames{"gloo", "nccl"});
  CHECK(parse_backend_names("cpu:gloo") == BackendNames{"gloo", ""});
  CHECK(parse_backend_names("cuda:nccl") == BackendNames{"", "nccl"});
  CHECK(parse_backend_names("cpu:mpi,cuda:hccl") == BackendNames{"mpi", "hccl"});
}

TEST_CASE("backend names: invalid names are refused with the reason", "[collectives][unit]") {
  const auto refusal = [](const char* text, const char* why) {
    CAPTURE(text);
    CHECK_THROWS_WITH(parse_backend_names(text),
                      Contains("backend \"" + std::string(text) + "\": ") && Contains(why) &&
                          Contains("give \"ddp\", \"gloo\", \"nccl\", \"cpu:ddp,cuda:nccl\" or a plug-in's name"));
  };
  refusal("gpu:nccl", "\"gpu\" is neither cpu nor cuda");
  refusal("gloo,nccl", "\"gloo\" does not say for which device, cpu or cuda");
  refusal("cpu:gloo,cpu:gloo", "cpu has two backends, gloo and gloo");
  refusal("cuda:nccl,cuda:hccl", "cuda has two backends, nccl and hccl");
  refusal("cuda:gloo", "gloo serves the CPU's memory only");
  refusal("cpu:nccl", "nccl serves the memory of CUDA devices only");
  refusal("cpu:", "\"\" is not a backend's name");
  refusal("cpu:gloo,", "a name is missing after the comma");
  refusal(",cpu:gloo", "\"\" does not say for which device");
  refusal("cpu:gloo:nccl", "\"gloo:nccl\" is not a backend's name");
  refusal("../evil", "\"../evil\" is not a backend's name");
  refusal(" gloo", "\" gloo\" is not a backend's name");
}
