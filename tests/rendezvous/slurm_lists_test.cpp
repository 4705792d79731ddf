// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/slurm_lists.hpp"

#include <catch2/catch.hpp>

using ddp::rendezvous::count_on_node;
using ddp::rendezvous::first_host;

TEST_CASE("slurm lists: the first of some nodes is found in every form srun writes", "[rendezvous][unit]") {
  CHECK(first_host("login") == "login");
  CHECK(first_host("a-1,a-2") == "a-1");
  CHECK(first_host("gpu[03-07,12],login1") == "gpu03");
  CHECK(first_host("gpu[12,03-07]") == "gpu12");
  CHECK(first_host("gpu[007]") == "gpu007");
  CHECK(first_host("rack[1-2]-node[03,05-07],x") == "rack1-node03");
  CHECK(first_host("node[1-2].cluster") == "node1.cluster");
  CHECK(first_host("").empty());
  CHECK(first_host("gpu[03") == "gpu03");  // cut off
}

TEST_CASE("slurm lists: each node has its count of tasks", "[rendezvous][unit]") {
  CHECK(count_on_node("4", 0) == 4);
  CHECK(count_on_node("16(x2),3", 0) == 16);
  CHECK(count_on_node("16(x2),3", 1) == 16);
  CHECK(count_on_node("16(x2),3", 2) == 3);
  CHECK(count_on_node("1,2(x10),5", 10) == 2);
  CHECK(count_on_node("1,2(x10),5", 11) == 5);
  CHECK_FALSE(count_on_node("16(x2),3", 3));
  for (const char* wrong : {"", "x", "4(2)", "4(xx)", "4("}) {
    CAPTURE(wrong);
    CHECK_FALSE(count_on_node(wrong, 1));
  }
}
