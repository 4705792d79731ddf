// SPDX-License-Identifier: BSD-3-Clause
// libFuzzer for the error file: an input is what a worker leaves. This holds:
//   * What is shown of it has neither control characters, but for the end of a line, nor bytes that are not UTF-8.
//   * What is passed on is JSON, whether it is the worker's record or none is left, and has the worker's exit code if
//   it
//     has the first of the two known shapes. Read again, it says the same.
//   * What libddp writes for these bytes as a message is read as a record.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "launcher/report/error_file.hpp"
#include "rendezvous/base/check.hpp"
#include "runtime/base/error_file.hpp"

namespace ddp::launcher::fuzz {
namespace {

using nlohmann::json;

// A file in memory, which is read by its path as any other.
class MemoryFile {
 public:
  MemoryFile() : fd_(memfd_create("error.json", MFD_CLOEXEC)), path_("/proc/self/fd/" + std::to_string(fd_)) {
    DDP_CHECK(fd_ >= 0);
  }
  const std::string& with(const std::string& bytes) const {
    DDP_CHECK(ftruncate(fd_, 0) == 0);
    DDP_CHECK(pwrite(fd_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
    return path_;
  }

 private:
  int fd_;
  std::string path_;
};

void check_text(const std::string& text) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    DDP_CHECK(byte == '\n' || byte == '\t' || (byte >= ' ' && byte != 0x7f), static_cast<int>(byte), text);
  }
  json(text).dump();  // throws if it is not UTF-8
}

void check(const std::string& bytes) {
  static const MemoryFile file;
  const ErrorFile left = read_error_file(file.with(bytes));
  check_text(left.text);
  if (!left.record.empty()) {
    DDP_CHECK(json::parse(left.record).is_object(), left.record);
    const ErrorFile again = read_error_file(file.with(left.record));
    DDP_CHECK(again.record == left.record, left.record, again.record);
  }
  for (const std::string& record : {left.record, bytes}) {  // `bytes` may have come from another node
    rendezvous::WorkerFailure failure;
    failure.status = {3, 0};
    failure.error_record = record;
    failure.message = left.text;
    const json passed_on = json::parse(record_for_parent(failure));
    const json& message = passed_on.at("message");
    DDP_CHECK(message.is_string() || message.at("errorCode") == 3, passed_on.dump());
  }
  const ErrorFile own = read_error_file(file.with(runtime::error_file_text(bytes, bytes, 17)));
  DDP_CHECK(!own.record.empty(), bytes);
}

}  // namespace
}  // namespace ddp::launcher::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ddp::launcher::fuzz::check(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
