// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/preload/memory_file.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>

#include "rendezvous/base/error.hpp"

namespace ddp::launcher {

using rendezvous::Error;
using rendezvous::ErrorCode;

namespace {

// CRC-32 as in IEEE 802.3 and zip, a bit at a time: it is asked once, of some kilobytes.
std::uint32_t crc32(std::string_view bytes) {
  std::uint32_t crc = ~0U;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1U) != 0 ? 0xEDB88320U : 0U);
  }
  return ~crc;
}

// Fields of the size given, lowest byte first.
struct Field {
  std::uint32_t value;
  int size;
};

std::string packed(std::initializer_list<Field> fields) {
  std::string bytes;
  for (const Field& field : fields) {
    for (int i = 0; i < field.size; ++i) bytes += static_cast<char>(field.value >> (8 * i));
  }
  return bytes;
}

}  // namespace

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

// APPNOTE.TXT of PKWARE, 4.3.7, 4.3.12 and 4.3.16: the file behind its header, the directory, the directory's place.
Descriptor memory_zip(const char* name, std::string_view file_name, std::string_view content) {
  constexpr std::uint32_t kVersion = 20, kStored = 0, kMidnight = 0, kFirstDay1980 = 0x21;
  const std::uint32_t crc = crc32(content);
  const auto size = static_cast<std::uint32_t>(content.size());
  const auto name_size = static_cast<std::uint32_t>(file_name.size());
  const std::string about_file = packed({{kVersion, 2},
                                         {0, 2},  // flags
                                         {kStored, 2},
                                         {kMidnight, 2},
                                         {kFirstDay1980, 2},
                                         {crc, 4},
                                         {size, 4},
                                         {size, 4},
                                         {name_size, 2},
                                         {0, 2}});  // no extra field
  const std::string header = packed({{0x04034b50, 4}}) + about_file;
  // Then no comment, the first disk, no attributes, at the archive's beginning.
  const std::string entry = packed({{0x02014b50, 4}, {kVersion, 2}}) + about_file + std::string(14, '\0');
  std::string archive = header;
  archive.append(file_name).append(content);
  const auto directory_at = static_cast<std::uint32_t>(archive.size());
  archive.append(entry).append(file_name);
  const auto directory_size = static_cast<std::uint32_t>(archive.size()) - directory_at;
  archive += packed({{0x06054b50, 4}, {0, 2}, {0, 2}, {1, 2}, {1, 2}, {directory_size, 4}, {directory_at, 4}, {0, 2}});
  return memory_file(name, archive);
}

}  // namespace ddp::launcher
