// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/report/error_file.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <nlohmann/json.hpp>
#include <string_view>

#include "launcher/text/demangle.hpp"
#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/base/new_file.hpp"
#include "rendezvous/base/shallow_json.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/error_file_schema.hpp"
#include "rendezvous/link/printable.hpp"

namespace ddp::launcher {

namespace {

constexpr std::size_t kMostInErrorFile = 1 << 20;  // tracebacks are a few KiB
constexpr std::chrono::duration<int, std::milli> kPatience(1000);

using nlohmann::json;
using rendezvous::parse_shallow;
using namespace rendezvous::error_file;  // the names of its keys

// Reads without waiting for an end: no pipe or device, and no more of a file that is still being written.
std::string first_bytes(const std::string& path) {
  const rendezvous::Descriptor file(path.empty() ? -1
                                                 : open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  if (!file) return "";
  std::string bytes;
  struct stat status = {};
  if (fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode)) {
    bytes.resize(std::min(kMostInErrorFile, static_cast<std::size_t>(status.st_size)));
    std::size_t size = 0;
    for (ssize_t got = 1; got > 0 && size < bytes.size(); size += static_cast<std::size_t>(std::max<ssize_t>(got, 0))) {
      got = read(file.get(), bytes.data() + size, bytes.size() - size);
    }
    bytes.resize(size);
  }
  return bytes;
}

const json* member(const json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &*found;
}

std::string text_in(const json* value) { return value && value->is_string() ? value->get<std::string>() : ""; }

// Returns the number that torchrun gets by int() of the value; nothing if there is none.
std::optional<std::int64_t> timestamp_in(const json* value) {
  if (!value) return std::nullopt;
  if (value->is_number_integer()) return value->get<std::int64_t>();
  return rendezvous::parse_number<std::int64_t>(text_in(value));
}

std::string text_of(const json& message) {
  if (message.is_string()) return message.get<std::string>();
  std::string text = text_in(member(message, kMessage));
  const json* extra = member(message, kExtraInfo);
  const std::string trace = extra ? text_in(member(*extra, kTrace)) : "";
  if (trace.empty()) return text;
  // PyTorch's call stack ends with the message, which is then not repeated.
  return trace.find(text) != std::string::npos ? trace : text + "\n" + trace;
}

// Returns the time of a record that launchers can read. Anything else may make them fail: torchrun's agent raises
// KeyError.
std::optional<std::int64_t> timestamp_of(const json& content) {
  const json* message = member(content, kMessage);
  if (!message) return std::nullopt;
  if (message->is_string()) return timestamp_in(member(content, kTimestamp));
  const json* extra = member(*message, kExtraInfo);
  return extra ? timestamp_in(member(*extra, kTimestamp)) : std::nullopt;
}

std::string without_end(std::string text) {
  text.erase(text.find_last_not_of(" \n") + 1);
  return text;
}

std::string dump(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

json record_of(const std::string& message, const std::string& trace, std::int64_t unix_seconds) {
  return {
      {kMessage, {{kMessage, message}, {kExtraInfo, {{kTrace, trace}, {kTimestamp, std::to_string(unix_seconds)}}}}}};
}

// Writes as fast as a pipe is read, but waits no longer than kPatience for the next read.
bool write_to_reader(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = write(fd, bytes.data(), bytes.size());
    if (count > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(count));
      continue;
    }
    pollfd writable = {fd, POLLOUT, 0};
    if (errno != EAGAIN || poll(&writable, 1, kPatience.count()) != 1) return false;
  }
  return true;
}

}  // namespace

ErrorFile read_error_file(const std::string& path) {
  ErrorFile file;
  const std::string bytes = first_bytes(path);
  const json content = parse_shallow(bytes);
  const json* message = member(content, kMessage);
  file.text = message ? text_of(*message) : "";
  if (file.text.empty()) file.text = bytes;  // an unknown shape
  file.text = without_end(demangled(rendezvous::printable(file.text)));
  file.unix_seconds = timestamp_of(content);
  if (file.unix_seconds) file.record = dump(content);
  return file;
}

std::string record_for_parent(const rendezvous::WorkerFailure& cause, const std::string& details) {
  using std::chrono::duration_cast, std::chrono::seconds;
  json record = parse_shallow(cause.error_record);
  if (!timestamp_of(record)) {
    const std::string what = describe(cause);
    std::string trace = what;
    if (!cause.message.empty()) trace += ":\n" + cause.message;
    for (const std::string& line : cause.stderr_tail) trace += "\n" + line;
    record = record_of(what, trace, duration_cast<seconds>(cause.time.time_since_epoch()).count());
  }
  json& message = record[kMessage];
  if (message.is_object()) {
    message[kErrorCode] = cause.status.python_code();
  }
  record.erase(kFailure);  // it is an inner job's
  if (!details.empty()) record[kFailure] = parse_shallow(details);
  return dump(record);
}

std::string record_for_parent(const std::string& reason, std::int64_t unix_seconds) {
  return dump(record_of(reason, reason, unix_seconds));
}

bool write_error_file(const std::string& path, const std::string& record) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0 || S_ISREG(status.st_mode)) {
    return rendezvous::replace_file(path, record, rendezvous::error_file::kMode);
  }
  rendezvous::Descriptor file(open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  if (!file) return false;
  const bool is_written = write_to_reader(file.get(), record);
  return is_written && close(file.release()) == 0;
}

}  // namespace ddp::launcher
