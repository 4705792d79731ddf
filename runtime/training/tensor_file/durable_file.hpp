// SPDX-License-Identifier: BSD-3-Clause
// Files that are there whole or not at all, whatever happens to the process or the machine: what every part of a
// checkpoint is written with. Errors are rendezvous::Error{System}: "checkpoint WHAT: cannot ...: why".
//
// A name is on the disk only when the folder it stands in was fsynced too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "rendezvous/base/descriptor.hpp"

namespace ddp::runtime {

[[noreturn]] void system_error(const std::string& path, const std::string& what, int number);

std::string folder_of(const std::string& path);
void fsync_folder(const std::string& path);
// Creates what is missing of it, on the disk.
void make_folders(const std::string& path);

// A new file. One that is neither finished nor committed leaves nothing.
class NewFile {
 public:
  explicit NewFile(const std::string& path);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(const void* data, std::uint64_t size);
  // What was written is on the disk; its name is once its folder was fsynced.
  void finish();
  // The same, then takes the place of the file at path, on the disk.
  void replace(const std::string& path);

 private:
  std::string path_;
  bool kept_ = false;
  rendezvous::Descriptor file_;
  std::uint64_t written_ = 0;
  std::uint64_t handed_over_ = 0;  // to the disk, which is busy with it
};

// A file opened for reading.
class OpenFile {
 public:
  explicit OpenFile(const std::string& path);  // not a regular one: Error{Corrupt}

  std::uint64_t size() const { return size_; }
  // Reads size bytes, fewer only if the file ends before; returns how many. Any thread.
  std::uint64_t read_at(void* to, std::uint64_t size, std::uint64_t offset) const;

 private:
  std::string path_;
  rendezvous::Descriptor file_;
  std::uint64_t size_ = 0;
};

}  // namespace ddp::runtime
