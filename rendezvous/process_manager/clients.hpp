// SPDX-License-Identifier: BSD-3-Clause
// The two key-value stores of exchange.hpp. Each function blocks, and is for a process that can be killed.
#pragma once

#include <string>

namespace ddp::rendezvous {

inline constexpr char kExchangeKey[] = "ddp-exchange";

// Return `text` of rank 0. Throw Error with the reason.
std::string exchange_by_pmi(int rank, const std::string& text);
std::string exchange_by_pmix(int rank, const std::string& text);

}  // namespace ddp::rendezvous
