// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/preload/memory_file.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "rendezvous/base/error.hpp"

namespace ddp::launcher {

using rendezvous::system_error;

Descriptor memory_file(const char* name, std::string_view content) {
  Descriptor file(memfd_create(name, MFD_CLOEXEC));
  if (!file) system_error("cannot make a file in memory");
  while (!content.empty()) {
    const ssize_t written = write(file.get(), content.data(), content.size());
    if (written < 0) system_error("cannot write a file in memory");
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  lseek(file.get(), 0, SEEK_SET);
  return file;
}

}  // namespace ddp::launcher
