// SPDX-License-Identifier: BSD-3-Clause
// A journal in a file of this machine. Each write appends a record and is kept once fdatasync() has returned; when the
// file has grown, a new one with the newest record takes its place. A thread of its own does this, so that a slow disk
// delays no heartbeat; contents that come while it writes are written as one, the newest.
//
// The file has one life at a time, by a lock on it that ends with the process. It belongs to this user, mode 0600, and
// is no link: any other is refused. Its folder must belong to this user alone (0700), and is locked (shared) while the
// journal lives: systemd-tmpfiles, which clears /tmp of what is old, leaves folders alone that somebody has locked.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "rendezvous/journal/journal.hpp"
#include "rendezvous/net/asio.hpp"

namespace ddp::rendezvous {

// A file that has more bytes than this, and more than a few of the newest record, is replaced.
inline constexpr std::size_t kJournalGrowsTo = 1 << 20;

class FileJournal : public Journal {
 public:
  enum class Begins { New, WhereItWasLeft };

  // Opens the file, or makes it, and locks it. `epoch` is for a file that is not there yet; one that is there has its
  // own. With Begins::WhereItWasLeft it must be there. Throws Error with a sentence as on_lost() has.
  FileJournal(asio::io_context& io, std::string path, std::string epoch, Begins begins = Begins::New);
  ~FileJournal() override;

  void claim(Callbacks callbacks) override;
  void write(std::uint64_t number, std::string content) override;
  void release(std::function<void(bool is_gone)> on_released) override;
  std::size_t most_content_bytes() const override { return kMaxJournalContent; }

 private:
  class Writer;
  std::shared_ptr<Writer> writer_;
};

}  // namespace ddp::rendezvous
