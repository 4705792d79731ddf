// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/base/text.hpp"

#include <catch2/catch.hpp>
#include <csignal>
#include <cstring>
#include <string>

#include "rendezvous/base/signal_abbreviation.hpp"

using namespace ddp::rendezvous;
using std::chrono::milliseconds;

TEST_CASE("text: sizes are shown in decimal units", "[rendezvous][unit]") {
  CHECK(describe_bytes(0) == "0 B");
  CHECK(describe_bytes(999) == "999 B");
  CHECK(describe_bytes(1000) == "1.0 kB");
  CHECK(describe_bytes(33'000'000) == "33.0 MB");
  CHECK(describe_bytes(999'960'000) == "1.0 GB");
  CHECK(describe_bytes(5'000'000'000'000'000) == "5000.0 TB");
}

TEST_CASE("text: a time of a second or more is rounded to tenths", "[rendezvous][unit]") {
  CHECK(to_string(milliseconds(300)) == "300 ms");
  CHECK(to_string(milliseconds(1500)) == "1.5 s");
  CHECK(to_string(milliseconds(59'999)) == "60 s");
  CHECK(to_string(milliseconds(30'000)) == "30 s");
}

TEST_CASE("text: a misspelt word leads to the nearest one, or to one that has its parts", "[rendezvous][unit]") {
  CHECK(nearest("ncll", {"gloo", "nccl"}) == "nccl");
  CHECK_FALSE(nearest("mpi", {"gloo", "nccl"}));
  CHECK_FALSE(nearest("ucc", {"gloo", "nccl"}));
  CHECK(nearest("nproc-node", {"nnodes", "no-python", "nproc-per-node"}) == "nproc-per-node");
  CHECK_FALSE(nearest("node-nproc", {"nproc-per-node"}));
  CHECK_FALSE(nearest("x", {}));
}

TEST_CASE("text: each signal has the name that glibc gives it", "[rendezvous][unit]") {
#if __GLIBC_PREREQ(2, 32)  // not in a portable build
  for (int signal = -1; signal <= NSIG; ++signal) {
    const char* const ours = signal_abbreviation(signal);
    const char* const theirs = sigabbrev_np(signal);
    CAPTURE(signal);
    CHECK(std::string(ours ? ours : "none") == (theirs ? theirs : "none"));
  }
#endif
  CHECK(signal_name(SIGTERM) == "SIGTERM");
  CHECK(signal_name(40) == "signal 40");
}
