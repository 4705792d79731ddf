// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/slurm_step.hpp"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

using ddp::rendezvous::count_on_node;
using ddp::rendezvous::expand_hosts;
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

TEST_CASE("slurm lists: a list of nodes is expanded, with zeros as they are written", "[rendezvous][unit]") {
  using Names = std::vector<std::string>;
  CHECK(expand_hosts("gpu[08-10,2],login") == Names{"gpu08", "gpu09", "gpu10", "gpu2", "login"});
  CHECK(expand_hosts("r[1-2]n[1-2]") == Names{"r1n1", "r1n2", "r2n1", "r2n2"});
  CHECK(expand_hosts("a") == Names{"a"});
  for (const char* wrong : {"", "a,,b", "a[", "a[]", "a[2-1]", "a[x]", "a]", ",", "a[1-2000000]"}) {
    INFO(wrong);
    CHECK_FALSE(expand_hosts(wrong).has_value());
  }
}
