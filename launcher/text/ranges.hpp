// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

namespace ddp::launcher {

// Returns "0-3, 5".
std::string ranges(std::vector<int> numbers);

// Returns "5,0,2": each of the numbers, in their order.
std::string comma_list(const std::vector<int>& numbers);

// Returns "rank 4", or "ranks 0-3, 5".
std::string describe_ranks(const std::vector<int>& ranks);

}  // namespace ddp::launcher
