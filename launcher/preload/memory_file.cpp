// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/preload/memory_file.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "rendezvous/base/error.hpp"

namespace ddp::launcher {

using rendezvous::Error;
using rendezvous::ErrorCode;

Descriptor memory_file(const char* name, std::string_view content) {
  Descriptor file(memfd_create(name, MFD_CLOEXEC));
  if (!file) throw Error(ErrorCode::System, std::string("cannot make a file in memory: ") + strerror(errno));
  while (!content.empty()) {
    const ssize_t written = write(file.get(), content.data(), content.size());
    if (written < 0) throw Error(ErrorCode::System, std::string("cannot write a file in memory: ") + strerror(errno));
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  lseek(file.get(), 0, SEEK_SET);
  return file;
}

}  // namespace ddp::launcher
