// SPDX-License-Identifier: BSD-3-Clause
// Every node reports a worker's failure on one node in full.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "tests/integration/nodes/nodes.hpp"

using namespace ddp::testing;
using nlohmann::json;

TEST_CASE("nodes: the failed worker's error, hint and error record reach every node", "[launcher][integration]") {
  constexpr char kRecord[] =
      R"({"message": {"message": "MemoryError", "extraInfo": {"py_callstack": "Traceback\nMemoryError\n", "timestamp": "17"}}})";
  const Hosts hosts(3);
  NodesJob job(hosts, static_job(3), {"meet", "2:error=" + std::string(kRecord), "2:exit=7", "wait"});
  const TemporaryFolder folder;
  for (int host = 0; host < 3; ++host) {
    Process::Options options;
    options.environment = {{"TORCHELASTIC_ERROR_FILE", folder / std::to_string(host)}};
    job.start_ranked(host, {}, options);
  }
  json expected = json::parse(kRecord);
  expected["message"]["errorCode"] = 7;
  for (int host = 0; host < 3; ++host) {
    const Result result = job.on(host).wait();
    CAPTURE(host, result.err);
    CHECK(result.code == 7);
    CHECK(count(result.err, "  hint: this machine's memory") == 1);
    CHECK(count(result.err, "    | Traceback\nddprun:     | MemoryError\n") == 1);
    CHECK(json::parse(read_file(folder / std::to_string(host))) == expected);
    CHECK(job.on(host).left_over().empty());
  }
}
