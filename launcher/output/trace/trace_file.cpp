// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/output/trace/trace_file.hpp"

#include <fcntl.h>
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "rendezvous/base/error.hpp"
#include "rendezvous/base/new_file.hpp"
#include "rendezvous/wire/json_text.hpp"

namespace ddp::launcher {
namespace {

constexpr char kPart[] = ".part-";
constexpr std::size_t kCopiedAtOnce = 1 << 20;
constexpr std::size_t kEpochWithin = 64 << 10;  // the epoch is in the first bytes of a part

// Puts a new file in the place of what is there, which may be a link of somebody else's.
rendezvous::Descriptor create_anew(const std::string& path) {
  const std::string temporary = rendezvous::temporary_name(path);
  rendezvous::Descriptor file = rendezvous::create_file(temporary.c_str(), 0644);
  if (file && ::rename(temporary.c_str(), path.c_str()) == 0) return file;
  const std::string why = std::strerror(errno);
  if (file) ::unlink(temporary.c_str());
  throw rendezvous::Error(rendezvous::ErrorCode::System, "cannot write " + path + " (--trace): " + why);
}

// Returns the paths that begin like this.
std::vector<std::string> paths_like(const std::string& beginning) {
  std::string pattern;
  for (const char c : beginning) {
    if (std::string_view("*?[\\").find(c) != std::string_view::npos) pattern += '\\';
    pattern += c;
  }
  glob_t found = {};
  std::vector<std::string> paths;
  if (::glob((pattern + "*").c_str(), 0, nullptr, &found) == 0) {
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  }
  ::globfree(&found);
  return paths;
}

// Opens a part for reading; none if it is no file of this user's own.
rendezvous::Descriptor open_part(const std::string& path) {
  rendezvous::Descriptor part(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  struct stat status = {};
  const bool is_own =
      part && ::fstat(part.get(), &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == ::geteuid();
  return is_own ? std::move(part) : rendezvous::Descriptor();
}

// Reads more behind what is there. Returns false at the end of the file.
bool read_more(int file, std::string& text, std::size_t most) {
  const std::size_t before = text.size();
  text.resize(before + most);
  ssize_t got = 0;
  do {
    got = ::read(file, text.data() + before, most);
  } while (got < 0 && errno == EINTR);
  text.resize(before + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  return got > 0;
}

// Removes the whole lines from the front of `text`, and returns those that are events.
std::string take_events(std::string& text) {
  std::string events;
  std::size_t begin = 0;
  for (std::size_t end = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string_view line = std::string_view(text).substr(begin, end + 1 - begin);
    if (line.starts_with("{") && line.ends_with("},\n")) events += line;
  }
  text.erase(0, begin);
  return events;
}

}  // namespace

TraceFile::TraceFile(std::string path, std::function<void(const std::string&)> log)
    : path_(std::move(path)), log_(std::move(log)), file_(create_anew(path_)) {
  write("[\n");
}

void TraceFile::write(std::string_view lines) {
  const std::uint64_t whole = size_;
  while (file_ && !lines.empty()) {
    const ssize_t written = ::write(file_.get(), lines.data(), lines.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      const std::string why = written < 0 ? std::strerror(errno) : "nothing can be written";
      while (::ftruncate(file_.get(), static_cast<off_t>(whole)) != 0 && errno == EINTR) {
      }
      return fail(why + "; it ends here");
    }
    size_ += static_cast<std::uint64_t>(written);
    lines.remove_prefix(static_cast<std::size_t>(written));
  }
}

void TraceFile::fail(const std::string& what) {
  file_.close();
  log_("trace " + path_ + ": " + what);
}

void TraceFile::take_in_parts(const std::string& epoch) {
  for (const std::string& part : paths_like(path_ + kPart)) {
    if (file_) take_in(part, epoch);
  }
}

void TraceFile::take_in(const std::string& part, const std::string& epoch) {
  const rendezvous::Descriptor from = open_part(part);
  std::string text;
  if (!from) return;
  while (text.size() < kEpochWithin && read_more(from.get(), text, kEpochWithin)) {
  }
  if (text.find(trace_part_line(epoch)) == std::string::npos) return;  // it belongs to an earlier job that was killed
  do {
    write(take_events(text));
  } while (file_ && read_more(from.get(), text, kCopiedAtOnce));
  if (file_) ::unlink(part.c_str());
}

void TraceFile::close() {
  // The last event has no comma behind it.
  write(R"({"name":"end of the trace","ph":"M","pid":0,"tid":0,"args":{}})"
        "\n]\n");
  if (file_ && ::close(file_.release()) != 0) log_("trace " + path_ + ": " + std::strerror(errno));
}

std::string trace_part(const std::string& path, const std::string& host, const std::string& incarnation) {
  return path + kPart + host + "-" + incarnation;
}

std::string trace_part_line(const std::string& epoch) {
  return R"({"name":"part of","ph":"M","pid":0,"tid":0,"args":{"epoch":)" + rendezvous::quoted_json(epoch) + "}},\n";
}

}  // namespace ddp::launcher
