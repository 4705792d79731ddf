// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/collective/call_checker.hpp"

#include <algorithm>

#include "runtime/base/deadline_watch.hpp"

namespace ddp::runtime {

ddp_backend_status CallChecker::compare(const Operation& operation, std::uint32_t tag, Deadline deadline,
                                        std::string* disagreement, ddp_backend_error* error) {
  disagreement->clear();
  const Fingerprint mine = fingerprint(operation);
  fingerprints_.resize(static_cast<std::size_t>(place_.size));
  const auto status = gather_words(mine.data(), fingerprints_.data(), mine.size(), tag, deadline, error);
  if (status != DDP_BACKEND_OK) return status;
  if (std::any_of(fingerprints_.begin(), fingerprints_.end(), [&](const Fingerprint& f) { return f != mine; })) {
    *disagreement = "ranks disagree: " + describe_calls(fingerprints_);
    return DDP_BACKEND_OK;
  }
  if (operation.kind != OperationKind::AllToAll) return DDP_BACKEND_OK;
  return compare_counts(operation, tag, deadline, disagreement, error);
}

// Compares the counts of an all_to_all: what rank r sends to s must be what s expects from r.
ddp_backend_status CallChecker::compare_counts(const Operation& operation, std::uint32_t tag, Deadline deadline,
                                               std::string* disagreement, ddp_backend_error* error) {
  const auto size = static_cast<std::size_t>(place_.size);
  std::vector<std::size_t> mine(2 * size, operation.count);
  std::copy(operation.input_counts.begin(), operation.input_counts.end(), mine.begin());
  std::copy(operation.output_counts.begin(), operation.output_counts.end(),
            mine.begin() + static_cast<std::ptrdiff_t>(size));
  std::vector<std::size_t> all(mine.size() * size);
  const auto status = gather_words(mine.data(), all.data(), mine.size(), tag, deadline, error);
  if (status != DDP_BACKEND_OK) return status;
  for (std::size_t from = 0; from < size; ++from) {
    for (std::size_t to = 0; to < size; ++to) {
      const std::size_t sent = all[from * 2 * size + to];
      const std::size_t expected = all[to * 2 * size + size + from];
      if (sent == expected) continue;
      *disagreement = "ranks disagree: rank " + std::to_string(from) + " sends " + std::to_string(sent) +
                      " elements to rank " + std::to_string(to) + ", which expects " + std::to_string(expected);
      return DDP_BACKEND_OK;
    }
  }
  return DDP_BACKEND_OK;
}

// Gathers `count` 64-bit numbers from every rank.
ddp_backend_status CallChecker::gather_words(const void* mine, void* all, std::size_t count, std::uint32_t tag,
                                             Deadline deadline, ddp_backend_error* error) {
  return backend_.all_gather(group_, mine, all, count, DDP_INT64, tag, backend_timeout_ms(deadline), error);
}

}  // namespace ddp::runtime
