// SPDX-License-Identifier: BSD-3-Clause
// Collectives on objects with ranks that lie about the sizes of theirs.
#include "runtime/collective/object_collectives.hpp"

#include <catch2/catch.hpp>
#include <cstring>
#include <limits>
#include <string>

#include "collectives/backend_error.hpp"

namespace ddp::runtime {
namespace {

TEST_CASE("objects: sizes of other ranks whose sum wraps around are refused before anything is received",
          "[runtime][unit]") {
  const OperationKind kind = GENERATE(OperationKind::AllGatherObject, OperationKind::GatherObject);
  const char mine[] = "four";
  const GroupPlace place = {0, 3};
  ObjectExchange exchange;
  const Operation operation = kind == OperationKind::AllGatherObject
                                  ? make_all_gather_object(exchange, {mine, 4})
                                  : make_gather_object(exchange, {mine, 4}, 0, place);
  int calls = 0;
  const auto perform = [&calls](const Operation& plain) {
    ++calls;
    const std::size_t sizes[] = {4, std::numeric_limits<std::size_t>::max() - 3, 8};  // 8 in all, wrapped around
    std::memcpy(plain.data, sizes, sizeof sizes);
    return DDP_BACKEND_OK;
  };
  collectives::BackendError error;
  CHECK(perform_object(operation, place, perform, &error) == DDP_BACKEND_ERROR);
  CHECK(std::string(error.text) == "no memory for as many bytes as the other ranks announce");
  CHECK(calls == 1);
  CHECK(exchange.received().empty());
}

}  // namespace
}  // namespace ddp::runtime
