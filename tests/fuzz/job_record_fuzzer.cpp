// SPDX-License-Identifier: BSD-3-Clause
// libFuzzer for the coordinator's record in a journal or in etcd: an input is its text. This holds:
//   * It is refused with a reason that is a printable line, or read.
//   * What was read is written and read again as the same.
#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>

#include "rendezvous/base/check.hpp"
#include "rendezvous/coordinator/core/job_record.hpp"
#include "tests/fuzz/shown.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ddp::rendezvous;
  const auto read = decode_record(std::string(reinterpret_cast<const char*>(data), size));
  if (const auto* why = std::get_if<std::string>(&read)) {
    DDP_CHECK(!why->empty());
    ddp::fuzz::check_line(*why);
    return 0;
  }
  const auto again = decode_record(encode(std::get<JobRecord>(read)));
  const auto* same = std::get_if<JobRecord>(&again);
  DDP_CHECK(same != nullptr && *same == std::get<JobRecord>(read), encode(std::get<JobRecord>(read)));
  return 0;
}
