// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/report/gpu_fault.hpp"

#include <catch2/catch.hpp>

using namespace ddp::launcher;

TEST_CASE("gpu fault: an Xid about memory is found by the whole pid that it hit", "[launcher][unit]") {
  const std::string record =
      "4,9,5000000,-;NVRM: Xid (PCI:0000:3b:00): 94, pid=4242, name=python3, Contained: SM (0x1). RST: No, D-RST: No";
  CHECK(gpu_memory_fault_in(record, 4242, 5'000'000) ==
        "the kernel's log has Xid 94 of the GPU at 0000:3b:00: an uncorrectable memory error, contained to this "
        "process");
  CHECK(gpu_memory_fault_in(record, 424, 0).empty());
  CHECK(gpu_memory_fault_in(record, 42422, 0).empty());
  CHECK(gpu_memory_fault_in(record, 4242, 9'000'000).empty());  // an earlier process had this pid
  const struct {
    const char* rest;
    const char* says;
  } rows[] = {
      {"48, pid=4242, name=x, An uncorrectable double bit error (DBE) has been detected on GPU", "uncorrectable"},
      {"63, pid=4242, Row Remapper: New row marked for remapping, reset gpu to activate.", "to be replaced"},
      {"64, pid=4242, name=x, Row Remapper: Failure", "could not be replaced"},
      {"95, pid=4242, name=x, Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No", "not contained"},
  };
  for (const auto& row : rows) {
    CAPTURE(row.rest);
    const std::string said =
        gpu_memory_fault_in(std::string("4,9,1,-;NVRM: Xid (PCI:0000:3b:00): ") + row.rest, 4242, 0);
    CHECK_THAT(said, Catch::Contains(row.says));
  }
}

TEST_CASE("gpu fault: other records, and those that are cut off, say nothing", "[launcher][unit]") {
  for (const char* record : {
           "4,9,1,-;NVRM: Xid (PCI:0000:3b:00): 31, pid=4242, name=x, Ch 00000008, MMU Fault",  // the program's fault
           "4,9,1,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
           "4,9,1,-;NVRM: Xid (PCI:0000:3b:00): 48, pid='<unknown>', name=<unknown>, An uncorrectable",
           "4,9,1,-;NVRM: Xid (PCI:0000:3b:00): 48, pid=4242",
           "4,9,1,-;NVRM: Xid (PCI:0000:3b:00\x1b[31m): 48, pid=4242, name=x",
           "NVRM: Xid (PCI:0000:3b:00): 48, pid=4242, name=x",
           "4,9,1,-;Killed process 4242 (python3)",
           "",
       }) {
    CAPTURE(record);
    CHECK(gpu_memory_fault_in(record, 4242, 0).empty());
  }
}
