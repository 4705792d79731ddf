// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/base/new_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "rendezvous/base/random_id.hpp"

namespace ddp::rendezvous {

std::string temporary_name(const std::string& path) { return path + ".tmp." + random_id(); }

Descriptor create_file(const char* path, mode_t mode) {
  return Descriptor(::open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
}

bool replace_file(const std::string& path, std::string_view content, mode_t mode) {
  const std::string temporary = temporary_name(path);
  Descriptor file = create_file(temporary.c_str(), mode);
  if (!file) return false;
  ssize_t written = 0;
  while (!content.empty()) {
    written = ::write(file.get(), content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) break;
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  // Some file systems report a failed write only at the close.
  const bool is_whole = content.empty() && ::close(file.release()) == 0;
  if (is_whole && ::rename(temporary.c_str(), path.c_str()) == 0) return true;
  const int why = errno;
  ::unlink(temporary.c_str());
  errno = why;
  return false;
}

}  // namespace ddp::rendezvous
