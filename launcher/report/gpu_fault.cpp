// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/report/gpu_fault.hpp"

#include <unistd.h>

#include <algorithm>

#include "launcher/report/kernel_log.hpp"

namespace ddp::launcher {

namespace {

struct MemoryFault {
  std::string_view xid;
  const char* meaning;
};

// NVIDIA's "XID Errors", those about memory: a process that they hit is not to blame.
constexpr MemoryFault kMemoryFaults[] = {
    {"48", "an uncorrectable memory error"},
    {"63", "a row of memory, or a page, that is to be replaced: reset the GPU"},
    {"64", "a row of memory, or a page, that could not be replaced"},
    {"94", "an uncorrectable memory error, contained to this process"},
    {"95", "an uncorrectable memory error that was not contained: reset the GPU"},
};

// Returns the text between `before` and `after`; empty if one of them is missing.
std::string_view between(std::string_view text, std::string_view before, std::string_view after) {
  const auto at = text.find(before);
  if (at == std::string_view::npos) return {};
  text.remove_prefix(at + before.size());
  const auto end = text.find(after);
  return end == std::string_view::npos ? std::string_view() : text.substr(0, end);
}

bool is_address(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789abcdefABCDEF:.") == std::string_view::npos;
}

}  // namespace

std::string gpu_memory_fault_in(std::string_view record, pid_t pid, std::int64_t since) {
  const std::string_view address = between(record, "NVRM: Xid (PCI:", ")");
  const std::string_view xid = between(record, "): ", ",");
  const auto fault = std::find_if(std::begin(kMemoryFaults), std::end(kMemoryFaults),
                                  [&](const MemoryFault& f) { return f.xid == xid; });
  const bool is_about = between(record, ", pid=", ",") == std::to_string(pid);
  if (fault == std::end(kMemoryFaults) || !is_address(address) || !is_about) return "";
  if (!is_record_since(record, since)) return "";
  return "the kernel's log has Xid " + std::string(xid) + " of the GPU at " + std::string(address) + ": " +
         fault->meaning;
}

GpuFaultWatch::GpuFaultWatch()
    : reads_kernel_log_(access("/proc/driver/nvidia", F_OK) == 0 && kernel_log_has_our_pids()) {}

void GpuFaultWatch::start() { round_started_ = kernel_log_now(); }

std::string GpuFaultWatch::explain(pid_t pid) const {
  std::string fault;
  if (!reads_kernel_log_) return fault;
  search_kernel_log([&](std::string_view record) {
    fault = gpu_memory_fault_in(record, pid, round_started_);
    return !fault.empty();
  });
  return fault;
}

}  // namespace ddp::launcher
