// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/diagnosis/stacks/frames.hpp"

#include <catch2/catch.hpp>

using namespace ddp::launcher;

TEST_CASE("python frames: what py-spy prints of two threads", "[launcher][unit]") {
  const auto threads = python_threads(R"([
      {"pid": 7, "thread_id": 1405, "thread_name": "loader", "os_thread_id": 9, "active": false, "owns_gil": false,
       "frames": [{"name": "inner", "filename": "/a/h.py", "module": null, "short_filename": "h.py", "line": 3},
                  {"name": "outer", "filename": "/a/h.py", "module": null, "short_filename": "h.py", "line": 5}]},
      {"pid": 7, "thread_id": 1406, "thread_name": null, "os_thread_id": 7, "active": true, "owns_gil": true,
       "frames": []},
      {"pid": 7, "thread_id": 1407, "thread_name": "ends", "os_thread_id": null, "active": true, "owns_gil": true,
       "frames": []}])");
  REQUIRE(threads);
  REQUIRE(threads->size() == 2);
  CHECK(threads->at(9).name == "loader");
  CHECK(threads->at(9).frames == std::vector<StackFrame>{{"inner", "/a/h.py", 3}, {"outer", "/a/h.py", 5}});
  CHECK(threads->at(7).name.empty());
  CHECK(threads->at(7).frames.empty());
}

TEST_CASE("python frames: other text is no stack", "[launcher][unit]") {
  for (const char* text : {"", "Error: No such process", "{}", "[{}]", "[{\"os_thread_id\":\"x\"}]", "[1]"}) {
    CAPTURE(text);
    CHECK((!python_threads(text) || python_threads(text)->empty()));
  }
  CHECK_FALSE(python_threads("[1]"));
}
