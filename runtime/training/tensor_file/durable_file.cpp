// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training/tensor_file/durable_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "rendezvous/base/error.hpp"
#include "rendezvous/base/new_file.hpp"

namespace ddp::runtime {
namespace {

using rendezvous::Error;
using rendezvous::ErrorCode;

// Bytes after which write() asks the disk to start, so that it writes while the rest is being
// copied.
constexpr std::uint64_t kHandOver = 32ULL << 20;

// Opening a FIFO or a device for reading may wait for ever without O_NONBLOCK. It changes nothing for
// regular files.
constexpr int kReading = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;

}  // namespace

void system_error(const std::string& path, const std::string& what, int number) {
  throw Error(ErrorCode::System, "checkpoint " + path + ": " + what + ": " + std::strerror(number));
}

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

void fsync_folder(const std::string& path) {
  const rendezvous::Descriptor folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder) system_error(path, "cannot be opened for fsync", errno);
  // EINVAL means that the file system does not support fsync on folders.
  if (fsync(folder.get()) != 0 && errno != EINVAL) system_error(path, "cannot be fsynced", errno);
}

void make_folders(const std::string& path) {
  struct stat facts = {};
  if (stat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode)) return;
  const std::string parent = folder_of(path);
  if (parent != path) make_folders(parent);
  if (mkdir(path.c_str(), 0777) == 0) return fsync_folder(parent);
  if (errno != EEXIST) system_error(path, "cannot create this folder", errno);
  if (stat(path.c_str(), &facts) != 0 || !S_ISDIR(facts.st_mode)) {
    system_error(path, "cannot create this folder", ENOTDIR);
  }
}

NewFile::NewFile(const std::string& path) : path_(path), file_(rendezvous::create_file(path.c_str(), 0666)) {
  if (!file_) system_error(path_, "cannot create", errno);
}

NewFile::~NewFile() {
  file_.close();
  if (!kept_) unlink(path_.c_str());
}

void NewFile::write(const void* data, std::uint64_t size) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = ::write(file_.get(), at, size);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) system_error(path_, "cannot write", errno);
    at += written;
    size -= static_cast<std::uint64_t>(written);
    written_ += static_cast<std::uint64_t>(written);
  }
  if (written_ - handed_over_ < kHandOver) return;
  sync_file_range(file_.get(), static_cast<off_t>(handed_over_), static_cast<off_t>(written_ - handed_over_),
                  SYNC_FILE_RANGE_WRITE);  // a hint only; fsync makes it durable
  handed_over_ = written_;
}

void NewFile::finish() {
  if (fsync(file_.get()) != 0) system_error(path_, "cannot fsync", errno);
  if (close(file_.release()) != 0) system_error(path_, "cannot close", errno);
  kept_ = true;
}

void NewFile::replace(const std::string& path) {
  finish();
  if (rename(path_.c_str(), path.c_str()) != 0) {
    const int why = errno;
    kept_ = false;
    system_error(path, "cannot rename " + path_, why);
  }
  fsync_folder(folder_of(path));
}

rendezvous::Descriptor open_folder(const std::string& path) {
  rendezvous::Descriptor folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder) system_error(path, "cannot open this folder", errno);
  return folder;
}

OpenFile::OpenFile(const std::string& path) : path_(path), file_(open(path.c_str(), kReading)) { check(); }

OpenFile::OpenFile(const rendezvous::Descriptor& folder, const std::string& path, const std::string& name)
    : path_(path + "/" + name), file_(openat(folder.get(), name.c_str(), kReading | O_NOFOLLOW)) {
  if (!file_ && errno == ENOENT) corrupt("it is not there");
  if (!file_ && errno == ELOOP) corrupt("it is a symbolic link, which is not followed");
  check();
}

void OpenFile::check() {
  if (!file_ && (errno == ENXIO || errno == ENODEV)) corrupt("it is not a regular file");  // a socket, or a device
  if (!file_) system_error(path_, "cannot open", errno);
  struct stat facts = {};
  if (fstat(file_.get(), &facts) != 0) system_error(path_, "cannot stat", errno);
  if (!S_ISREG(facts.st_mode)) corrupt("it is not a regular file");
  size_ = static_cast<std::uint64_t>(facts.st_size);
}

void OpenFile::corrupt(const std::string& what) const {
  throw Error(ErrorCode::Corrupt, "checkpoint " + path_ + ": " + what);
}

std::uint64_t OpenFile::read_at(void* to, std::uint64_t size, std::uint64_t offset) const {
  std::uint64_t done = 0;
  while (done < size) {
    const ssize_t got =
        pread(file_.get(), static_cast<char*>(to) + done, size - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EIO) {  // the bytes are lost, so treat them like changed ones
      corrupt(std::string("cannot read: ") + std::strerror(EIO));
    }
    if (got < 0) system_error(path_, "cannot read", errno);
    if (got == 0) break;
    done += static_cast<std::uint64_t>(got);
  }
  return done;
}

}  // namespace ddp::runtime
