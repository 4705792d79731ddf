// SPDX-License-Identifier: BSD-3-Clause
// Collectives on objects with ranks that lie about the sizes of theirs.
#include "runtime/collective/object_collectives.hpp"

#include <catch2/catch.hpp>
#include <cstring>
#include <limits>
#include <string>

#include "collectives/backend_error.hpp"
#include "runtime/collective/make_operation.hpp"

namespace ddp::runtime {
namespace {

TEST_CASE("objects: sizes of other ranks whose sum wraps around are refused before anything is received",
          "[runtime][unit]") {
  const GroupPlace place = {0, 3};
  const ddp_bytes mine = {"four", 4};
  ddp_operation given = ddp_operation_of(GENERATE(DDP_ALL_GATHER_OBJECT, DDP_GATHER_OBJECT), 0, 0);
  given.objects = &mine;
  given.object_count = 1;
  ObjectExchange exchange;
  const Operation operation = make_operation(given, place, &exchange);
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
