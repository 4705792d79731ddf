// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/base/error_file.hpp"

#include <sys/stat.h>

#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>

#include "rendezvous/base/new_file.hpp"
#include "rendezvous/error_file_schema.hpp"
#include "rendezvous/worker_contract.hpp"

namespace ddp::runtime {

std::string error_file_text(const std::string& message, const std::string& trace, std::int64_t unix_seconds) {
  using namespace rendezvous::error_file;
  const nlohmann::json file = {
      {kMessage, {{kMessage, message}, {kExtraInfo, {{kTrace, trace}, {kTimestamp, std::to_string(unix_seconds)}}}}}};
  // A message may quote any bytes, and dump() throws on invalid UTF-8 unless it replaces it.
  return file.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// torchrun prints py_callstack and falls back to message. Here both are the only line there is.
bool record_error(const std::string& message) noexcept { return record_error(message, message); }

bool record_error(const std::string& message, const std::string& trace) noexcept {
  try {
    const char* path = std::getenv(rendezvous::contract::kErrorFile);
    if (path == nullptr || *path == '\0') return false;
    struct stat there = {};
    if (stat(path, &there) == 0 && !S_ISREG(there.st_mode)) return false;  // do not replace a device
    const std::string text = error_file_text(message, trace, static_cast<std::int64_t>(std::time(nullptr)));
    return rendezvous::replace_file(path, text, rendezvous::error_file::kMode);
  } catch (...) {
    // The launcher still has the exit code and the last lines of stderr.
  }
  return false;
}

}  // namespace ddp::runtime
