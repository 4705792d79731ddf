// SPDX-License-Identifier: BSD-3-Clause
// What must be equal on all ranks about a collective, in a form that ranks exchange to compare their calls.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/collective/operation.hpp"

namespace ddp::runtime {

using Fingerprint = std::array<std::int64_t, 2>;
Fingerprint fingerprint(const Operation& operation);

std::string describe(const Fingerprint& fingerprint);  // "all_reduce of 1000 float32 (sum)"
// Takes one fingerprint per rank. Returns "rank 0 called all_reduce of 1000 float32 (sum); ranks 1, 2 called barrier".
std::string describe_calls(const std::vector<Fingerprint>& fingerprints);

}  // namespace ddp::runtime
