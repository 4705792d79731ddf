// SPDX-License-Identifier: BSD-3-Clause
// A store in a file that all ranks can open: torch's FileStore, to the byte, so that both can share a file.
//
// The file only grows: a record is u32 key size | key | u32 value size | value, little-endian, and the last record of a
// key counts. Only the record before it says where a record begins. For example set("k", "v"), after the
// "refcount/" = "1" that the first process to open the file writes:
//
//     09 00 00 00 "refcount/" 01 00 00 00 "1"    02 00 00 00 "/k" 01 00 00 00 "v"
//
//   "/" + key     a user's key
//   "-/" + key    deletes it; the value is empty
//   "refcount/"   how many have the file open: one more when a store opens, one less when it ends
//   "cleanup/"    how many have ended
//
// Each call opens the file and holds a flock, shared to read and exclusive to write. A flock ends with its process, and
// NFS shows what others wrote only to a process that opens the file again. Waiting polls every 10 ms, since NFS has no
// notifications.
//
// The store whose end makes refcount/ 0 and cleanup/ at least world_size removes the file. A process that is killed
// stays in refcount/, so its file is left behind, and the next job that names this file finds its content: give each
// run a file of its own.
//
// Better than torch's: a record is one write, so a process that is killed hardly ever leaves half of one; if there is
// half a record, readers stop before it and the next writer cuts it off (torch's readers spin for ever). A file that
// holds anything else is refused and left as it is. There are no queues, as in torch's.
#pragma once

#include <sys/types.h>

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "rendezvous/store/store.hpp"

namespace ddp::rendezvous {

class FileStore final : public Store {
 public:
  // Creates the file if it does not exist; its folder must. world_size: how many stores must have ended before the last
  // one removes the file; negative: it is never removed.
  FileStore(std::string path, std::int64_t world_size, Milliseconds timeout);
  ~FileStore() override;

  std::string name() const override { return "file store " + path_; }
  std::unique_ptr<Store> clone(Milliseconds timeout) const override;

  // Errors other than a deadline are Error{System} with path and cause, or Error{Corrupt}.
  void set(std::string_view key, std::string_view value) override;
  using Store::get;
  std::string get(std::string_view key, Milliseconds timeout) override;
  std::int64_t add(std::string_view key, std::int64_t delta) override;
  bool check(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, Milliseconds timeout) override;
  std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired) override;
  void append(std::string_view key, std::string_view value) override;
  bool delete_key(std::string_view key) override;
  std::int64_t num_keys() override;  // refcount/ and cleanup/ count, as in torch's
  std::vector<std::string> list_keys() override;
  std::vector<std::string> multi_get(const std::vector<std::string>& keys, Milliseconds timeout) override;
  void multi_set(const std::vector<std::string>& keys, const std::vector<std::string>& values) override;  // at once

 private:
  enum class Access { Read, Write, Leave };  // Leave: writes, but does not create the file
  class Locked;

  void leave();
  // Only while the file is Locked:
  const std::string* find(const std::string& record_key) const;  // null: there is none
  bool exist(const std::vector<std::string>& keys) const;
  std::unique_ptr<Locked> poll_until_exist(const std::vector<std::string>& keys, Milliseconds timeout);

  const std::string path_;
  const std::int64_t world_size_;
  std::mutex mutex_;
  // The content of the first known_ bytes of the file with this inode.
  std::unordered_map<std::string, std::string> values_;  // by record key: "/" + key, or a counter
  off_t known_ = 0;
  ino_t inode_ = 0;
};

}  // namespace ddp::rendezvous
