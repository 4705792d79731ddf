// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/journal/file_journal.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <ctime>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/base/error.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/base/thread.hpp"
#include "rendezvous/journal/journal_format.hpp"

namespace ddp::rendezvous {

namespace {

constexpr std::size_t kMaxFileBytes = 2 * kMaxJournalContent;
constexpr std::size_t kRecordsKept = 4;  // the file may have this many of the newest one's size

std::chrono::nanoseconds boot_time() {
  timespec now = {};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw Error(ErrorCode::System, "the coordinator's journal " + path + ": " + why);
}

[[noreturn]] void refuse_with_errno(const std::string& path, const char* what) {
  refuse(path, std::string("cannot ") + what + " it: " + std::strerror(errno));
}

[[noreturn]] void refuse_as_gone(const std::string& path) {
  throw Error(ErrorCode::System, "the coordinator's journal " + path + " is gone (does something clear this folder?)");
}

void lock_for_this_life(const Descriptor& file, const std::string& path) {
  if (flock(file.get(), LOCK_EX | LOCK_NB) == 0) return;
  if (errno == EWOULDBLOCK) refuse(path, "another coordinator has it");
  refuse_with_errno(path, "lock");
}

// Opens the file, or makes it. Nobody else can have put it there.
Descriptor open_own(const std::string& path) {
  Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
  if (!file) refuse_with_errno(path, "open");
  struct stat facts = {};
  if (fstat(file.get(), &facts) != 0) refuse_with_errno(path, "examine");
  if (!S_ISREG(facts.st_mode)) refuse(path, "it is not a file");
  if (facts.st_uid != geteuid()) refuse(path, "it belongs to another user");
  if ((facts.st_mode & 077) != 0) refuse(path, "others may use it (its mode is not 0600)");
  if (facts.st_nlink != 1) refuse(path, "it has more than one name");
  lock_for_this_life(file, path);
  return file;
}

std::string read_all(const Descriptor& file, const std::string& path) {
  struct stat facts = {};
  if (fstat(file.get(), &facts) != 0) refuse_with_errno(path, "examine");
  if (static_cast<std::size_t>(facts.st_size) > kMaxFileBytes) refuse(path, "it is too large for a journal");
  std::string bytes(static_cast<std::size_t>(facts.st_size), '\0');
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t size = pread(file.get(), bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) refuse_with_errno(path, "read");
    if (size == 0) break;
    done += static_cast<std::size_t>(size);
  }
  bytes.resize(done);
  return bytes;
}

void append(const Descriptor& file, const std::string& path, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t size = ::write(file.get(), bytes.data(), bytes.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) refuse_with_errno(path, "write");
    bytes.remove_prefix(static_cast<std::size_t>(size));
  }
  if (fdatasync(file.get()) != 0) refuse_with_errno(path, "sync");
}

std::string folder_of(const std::string& path) { return path.substr(0, path.find_last_of('/')); }

}  // namespace

// Runs on its thread, but for what says otherwise.
class FileJournal::Writer : public std::enable_shared_from_this<Writer> {
 public:
  // On the io thread, as the next three.
  Writer(asio::io_context& io, std::string path, std::string epoch, Begins begins)
      : io_(io), path_(std::move(path)), epoch_(std::move(epoch)), claim_(open(begins)) {}

  void start(Callbacks callbacks) {
    callbacks_ = std::move(callbacks);
    thread_ = start_thread("ddprun-journal", [this] { run(); });
  }
  void write(std::uint64_t number, std::string content) {
    const std::lock_guard lock(mutex_);
    next_ = {number, std::move(content)};
    wake_.notify_one();
  }
  void release(std::function<void(bool)> on_released) {
    tell([on_released = std::move(on_released)](const Callbacks&) { on_released(false); });
  }
  // Waits for what the thread is writing now, a disk's time at most.
  void stop() {
    stopped_ = true;
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
      wake_.notify_one();
    }
    if (thread_.joinable()) thread_.join();
  }

 private:
  struct Write {
    std::uint64_t number = 0;
    std::string content;
  };

  void run() {
    try {
      tell([claim = std::move(claim_)](const Callbacks& to) { to.on_claimed(claim); });
      while (auto next = wait()) {
        keep(next->content);
        tell([number = next->number](const Callbacks& to) { to.on_kept(number); });
      }
    } catch (const Error& error) {
      tell([why = std::string(error.what())](const Callbacks& to) { to.on_lost(why); });
    }
  }

  template <typename Call>
  void tell(Call call) {
    asio::post(io_, [self = shared_from_this(), call = std::move(call)] {
      if (!self->stopped_) call(self->callbacks_);
    });
  }

  std::optional<Write> wait() {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [this] { return ends_ || next_; });
    return ends_ ? std::nullopt : std::exchange(next_, std::nullopt);
  }

  JournalClaim open(Begins begins) {
    const bool is_new = begins == Begins::New;
    if (!is_new && access(path_.c_str(), F_OK) != 0 && errno == ENOENT) refuse_as_gone(path_);
    folder_ = Descriptor(::open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (folder_) flock(folder_.get(), LOCK_SH | LOCK_NB);
    file_ = open_own(path_);
    const auto read = read_journal(read_all(file_, path_));
    if (const auto* corrupt = std::get_if<CorruptJournal>(&read)) refuse(path_, "it is corrupt: " + corrupt->why);
    const auto& text = std::get<JournalText>(read);
    if (!is_new && text.epoch.empty()) refuse_as_gone(path_);
    size_ = text.epoch.empty() ? 0 : text.whole;
    if (ftruncate(file_.get(), static_cast<off_t>(size_)) != 0) refuse_with_errno(path_, "cut");
    if (lseek(file_.get(), static_cast<off_t>(size_), SEEK_SET) < 0) refuse_with_errno(path_, "seek in");
    if (!text.epoch.empty()) epoch_ = text.epoch;
    if (text.epoch.empty()) add(journal_begin(epoch_, boot_time()));
    const auto age = std::max(boot_time() - text.written, std::chrono::nanoseconds(0));
    return {.epoch = epoch_,
            .content = text.content.value_or(""),
            .age = text.content ? std::chrono::duration_cast<std::chrono::milliseconds>(age)
                                : decltype(JournalClaim::age)()};
  }

  void keep(const std::string& content) {
    if (content.size() > kMaxJournalContent) {
      refuse(path_, "a record of " + describe_bytes(content.size()) + " does not fit, " +
                        describe_bytes(kMaxJournalContent) + " do");
    }
    const std::string record = journal_record(content, boot_time());
    if (size_ + record.size() > std::max(kJournalGrowsTo, kRecordsKept * record.size())) return write_anew(record);
    add(record);
  }

  void add(std::string_view bytes) {
    append(file_, path_, bytes);
    size_ += bytes.size();
  }

  // A life that ends in between leaves the old file, or the new one.
  void write_anew(const std::string& record) {
    const std::string next = path_ + ".new";
    ::unlink(next.c_str());  // left by a life that ended here
    Descriptor file(::open(next.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file) refuse_with_errno(next, "make");
    lock_for_this_life(file, next);
    const std::string bytes = journal_begin(epoch_, boot_time()) + record;
    append(file, next, bytes);
    if (::rename(next.c_str(), path_.c_str()) != 0) refuse_with_errno(path_, "replace");
    if (!folder_ || fsync(folder_.get()) != 0) refuse_with_errno(path_, "sync the folder of");
    file_ = std::move(file);
    size_ = bytes.size();
  }

  asio::io_context& io_;
  const std::string path_;
  std::string epoch_;
  Descriptor folder_, file_;
  std::size_t size_ = 0;
  JournalClaim claim_;
  Callbacks callbacks_;   // used on the io thread only
  bool stopped_ = false;  // used on the io thread only
  std::mutex mutex_;
  std::condition_variable wake_;
  std::optional<Write> next_;  // guarded by mutex_, as the next
  bool ends_ = false;
  std::thread thread_;
};

FileJournal::FileJournal(asio::io_context& io, std::string path, std::string epoch, Begins begins)
    : writer_(std::make_shared<Writer>(io, std::move(path), std::move(epoch), begins)) {}

FileJournal::~FileJournal() { writer_->stop(); }

void FileJournal::claim(Callbacks callbacks) { writer_->start(std::move(callbacks)); }

void FileJournal::write(std::uint64_t number, std::string content) { writer_->write(number, std::move(content)); }

void FileJournal::release(std::function<void(bool)> on_released) { writer_->release(std::move(on_released)); }

}  // namespace ddp::rendezvous
