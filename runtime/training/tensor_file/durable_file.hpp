// SPDX-License-Identifier: BSD-3-Clause
// Files that exist completely or not at all, whatever happens to the process or the machine. All
// parts of a checkpoint are written with these functions. Errors are rendezvous::Error{System}:
// "checkpoint WHAT: cannot ...: why".
//
// A file's name is on the disk only once the folder that contains it has been fsynced.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "rendezvous/base/descriptor.hpp"

namespace ddp::runtime {

[[noreturn]] void system_error(const std::string& path, const std::string& what, int number);

std::string folder_of(const std::string& path);
void fsync_folder(const std::string& path);
// Creates the folder and its missing parents, durably.
void make_folders(const std::string& path);

// A file being written, which must not exist before. Removes the file again unless finish() or
// replace() was called.
class NewFile {
 public:
  explicit NewFile(const std::string& path);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(const void* data, std::uint64_t size);
  // Flushes the content to the disk. The name is durable only once its folder has been fsynced.
  void finish();
  // Does what finish() does, then renames the file to path, durably.
  void replace(const std::string& path);

 private:
  std::string path_;
  bool kept_ = false;
  rendezvous::Descriptor file_;
  std::uint64_t written_ = 0;
  std::uint64_t handed_over_ = 0;  // bytes that the disk has been asked to write
};

// Opens a folder, so that its files can be opened wherever it is moved.
rendezvous::Descriptor open_folder(const std::string& path);

// A file opened for reading. Throws Error{Corrupt} if it is not a regular file; opening it never
// waits.
class OpenFile {
 public:
  // Opens what the user has named. That may be a link, as in Hugging Face's cache.
  explicit OpenFile(const std::string& path);
  // Opens the file FOLDER/NAME. Throws Error{Corrupt} as well if it is not there, or a link: that may
  // lead out of the folder. `folder` is its descriptor.
  OpenFile(const rendezvous::Descriptor& folder, const std::string& path, const std::string& name);

  std::uint64_t size() const { return size_; }
  // Reads size bytes, or fewer if the file ends before, and returns how many. Any thread may call.
  std::uint64_t read_at(void* to, std::uint64_t size, std::uint64_t offset) const;

 private:
  void check();  // that it is open, and regular
  [[noreturn]] void corrupt(const std::string& what) const;

  std::string path_;
  rendezvous::Descriptor file_;
  std::uint64_t size_ = 0;
};

}  // namespace ddp::runtime
