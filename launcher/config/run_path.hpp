// SPDX-License-Identifier: BSD-3-Clause
// The code behind --run-path: the user's Python gets it with -c, followed by the script and its arguments. It does what
// torchrun does in its own interpreter: runpy runs the script as __main__, faulthandler is enabled, and an exception is
// written to the error file as PyTorch's @record writes it, unless the script's own @record has done so. It needs no
// PyTorch.
#pragma once

#include <string_view>

#include "rendezvous/error_file_schema.hpp"

namespace ddp::launcher {

inline constexpr char kRunPath[] = R"python(
import faulthandler, json, os, runpy, sys, time, traceback

def record(error):
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not path or os.path.exists(path):
        return
    record = {"message": f"{type(error).__name__}: {error}",
              "extraInfo": {"py_callstack": traceback.format_exc(), "timestamp": str(int(time.time()))}}
    try:
        with open(path, "w") as file:
            json.dump({"message": record}, file)
    except OSError as reason:
        print(f"cannot write the error file: {reason}", file=sys.stderr)

try:
    faulthandler.enable(all_threads=True)
except Exception:
    pass  # it needs a stderr
sys.argv = sys.argv[1:]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except Exception as error:
    record(error)
    raise
)python";

// The keys that the Python above writes are those of the schema.
namespace run_path {
// Not find(): GCC 12 does not evaluate it at compile time under -fsanitize=undefined.
constexpr bool writes(std::string_view key) {
  for (std::string_view rest = kRunPath; !rest.empty(); rest.remove_prefix(1)) {
    if (rest.starts_with(key)) return true;
  }
  return false;
}
}  // namespace run_path
static_assert(run_path::writes(rendezvous::error_file::kMessage) &&
              run_path::writes(rendezvous::error_file::kExtraInfo));
static_assert(run_path::writes(rendezvous::error_file::kTrace) && run_path::writes(rendezvous::error_file::kTimestamp));

}  // namespace ddp::launcher
