// SPDX-License-Identifier: BSD-3-Clause
// The kinds of norms. GPU kernels compile this too, so it includes only what ../kernels/standard has.
#pragma once

#include <cstdint>

namespace ddp::runtime {

enum class Norm : std::int32_t { Sum, Squares, Largest, Power };

}  // namespace ddp::runtime
