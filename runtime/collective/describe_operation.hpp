// SPDX-License-Identifier: BSD-3-Clause
// Operations in words, for errors and logs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/collective/operation.hpp"

namespace ddp::runtime {

const char* operation_name(OperationKind kind);

std::string rank_list(const std::vector<std::size_t>& ranks);                   // "ranks 0, 2"; shows at most eight
std::string numbered_name(const Operation& operation, std::uint64_t sequence);  // "all_reduce #412"
std::string describe(const Operation& operation, std::uint64_t sequence);       // "all_reduce #412 (33.0 MB)"
std::string describe_message(const Operation& operation);                       // "send to rank 2 (4.0 kB, tag 7)"

}  // namespace ddp::runtime
