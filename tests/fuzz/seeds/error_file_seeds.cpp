// SPDX-License-Identifier: BSD-3-Clause
// Writes the fuzzer's first inputs: what PyTorch's @record, libddp and ddprun leave, and what programs
// have been seen to leave instead.
// usage, in the root of the repository: error_file_seeds CORPUS_FOLDER
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "launcher/report/error_file.hpp"
#include "runtime/base/error_file.hpp"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  ddp::rendezvous::WorkerFailure failure;
  failure.rank = 3;
  failure.host = "b";
  failure.status = {0, 11};
  failure.message = "no more memory";
  failure.stderr_tail = {"terminate called after throwing an instance of 'St9bad_alloc'"};
  const std::string torch =
      R"({"message": {"message": "ValueError: no", "extraInfo": {"py_callstack": "Traceback (most recent call last):\n  File \"train.py\", line 3, in main\nValueError: no\n", "timestamp": "1700000000"}}})";
  failure.error_record = torch;
  const std::vector<std::string> seeds = {
      torch,
      R"({"message": "plain", "timestamp": 1700000000})",
      R"({"message": {"message": "cut off", "extraInfo": {"py_cal)",
      R"({"message": {"errorCode": -9, "message": "a\u001b[31mb\u009bc\u0000", "extraInfo": {"timestamp": "17"}}})",
      "not JSON at all\n\x1b]0;title\a\xff",
      ddp::runtime::error_file_text("CUDA error: _ZN3ddp5Error", "CUDA error\nin main", 1700000000),
      ddp::launcher::record_for_parent(failure),
      ddp::launcher::record_for_parent("the rendezvous was closed", 1700000000),
  };
  for (std::size_t i = 0; i < seeds.size(); ++i) std::ofstream(argv[1] + ("/" + std::to_string(i))) << seeds[i];
  std::cout << seeds.size() << " seeds\n";
}
