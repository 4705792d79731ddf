// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/store/file_store.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <thread>
#include <utility>

#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/base/text.hpp"

namespace ddp::rendezvous {
namespace {

using Milliseconds = Store::Milliseconds;

constexpr char kRefCount[] = "refcount/";
constexpr char kCleanup[] = "cleanup/";
constexpr char kDeletion = '-';
constexpr std::size_t kSizeBytes = 4;
constexpr std::size_t kLargestKey = 16 << 20;  // four characters of any text, read as a size, are more
constexpr std::size_t kLargestValue = 1 << 30;
constexpr off_t kReadAtOnce = 1 << 20;      // at once
constexpr Milliseconds kFirstLockRetry{1};  // when another process has the lock
constexpr Milliseconds kPollInterval{10};   // torch's

std::string record_key(std::string_view key) { return "/" + std::string(key); }

std::size_t size_at(std::string_view bytes) {
  std::size_t size = 0;
  for (std::size_t i = kSizeBytes; i > 0; --i) size = size << 8 | static_cast<unsigned char>(bytes[i - 1]);
  return size;
}

void append_text(std::string& out, std::string_view text) {
  for (std::size_t i = 0; i < kSizeBytes; ++i) out.push_back(static_cast<char>(text.size() >> (8 * i) & 0xff));
  out.append(text);
}

// Returns whether a record's key can begin with these characters, which may be all that a cut-off record has.
bool can_be_key(std::string_view start) {
  for (const std::string_view known : {"/", "-/", kRefCount, kCleanup}) {
    const std::size_t common = std::min(start.size(), known.size());
    if (start.substr(0, common) == known.substr(0, common)) return true;
  }
  return false;
}

}  // namespace

// Keeps the file open and locked while it lives, with its whole content known to the store. The file's lock is taken
// before the store's mutex, so the mutex is held for moments only.
class FileStore::Locked {
 public:
  Locked(FileStore& store, Access access, Deadline deadline, Milliseconds timeout)
      : store_(store), access_(access), deadline_(deadline), timeout_(timeout) {
    while (!open_and_lock()) file_.close();
    one_thread_ = std::unique_lock(store_.mutex_);
    catch_up();
  }
  Locked(FileStore& store, Access access) : Locked(store, access, Clock::now() + store.timeout(), store.timeout()) {}

  void set(const std::string& key, std::string_view value) { write({{key, value}}); }
  void write(const std::vector<std::pair<std::string, std::string_view>>& records) {
    std::string bytes;
    for (const auto& [key, value] : records) append_record(bytes, key, value);
    append(bytes);
    for (const auto& [key, value] : records) store_.values_[key] = value;
  }
  void erase(const std::string& key) {
    std::string bytes;
    append_record(bytes, kDeletion + key, "");
    append(bytes);
    store_.values_.erase(key);
  }
  void remove() { ::unlink(store_.path_.c_str()); }

 private:
  // Returns false if the file was removed meanwhile; there may be a new one.
  bool open_and_lock() {
    const int flags = access_ == Access::Write   ? O_RDWR | O_CREAT
                      : access_ == Access::Leave ? O_RDWR
                                                 : O_RDONLY | O_CREAT;
    file_ = Descriptor(::open(store_.path_.c_str(), flags | O_CLOEXEC, 0644));
    if (!file_) fail("opening", errno);
    lock();
    if (::fstat(file_.get(), &status_) != 0) fail("looking at", errno);
    return status_.st_nlink > 0;
  }

  // Polls, since a blocking flock would not end at the deadline while its holder is stopped.
  void lock() {
    const int operation = (access_ == Access::Read ? LOCK_SH : LOCK_EX) | LOCK_NB;
    for (Milliseconds pause = kFirstLockRetry; ::flock(file_.get(), operation) != 0;
         pause = std::min(2 * pause, kPollInterval)) {
      if (errno != EWOULDBLOCK && errno != EINTR) fail("locking", errno);
      if (Clock::now() + pause >= deadline_) {
        throw Error(ErrorCode::Timeout, store_.name() + ": another process kept it locked for " + to_string(timeout_) +
                                            " (is one stopped?)");
      }
      std::this_thread::sleep_for(pause);
    }
  }

  void catch_up() {
    if (status_.st_ino != store_.inode_ || status_.st_size < store_.known_) {  // it is a new file
      store_.values_.clear();
      store_.known_ = 0;
      store_.inode_ = status_.st_ino;
    }
    std::string bytes;  // read, but of no whole record yet
    while (read_more(bytes)) {
      const off_t end = store_.known_ + static_cast<off_t>(bytes.size());
      std::string_view rest = bytes;
      while (take_record(rest)) store_.known_ = end - static_cast<off_t>(rest.size());
      bytes.erase(0, bytes.size() - rest.size());
    }
    // Half a record is left although no process is writing: its writer is dead.
    if (bytes.empty() || access_ == Access::Read) return;
    if (::ftruncate(file_.get(), store_.known_) != 0) fail("cutting half a record off", errno);
  }

  // Reads a piece of the file behind these bytes, so that a size that the file claims, or has but did not fill, takes
  // no memory. Returns false at its end.
  bool read_more(std::string& bytes) {
    const off_t from = store_.known_ + static_cast<off_t>(bytes.size());
    if (from >= status_.st_size) return false;
    const std::size_t before = bytes.size();
    bytes.resize(before + static_cast<std::size_t>(std::min<off_t>(status_.st_size - from, kReadAtOnce)));
    ssize_t got = 0;
    while ((got = ::pread(file_.get(), bytes.data() + before, bytes.size() - before, from)) < 0) {
      if (errno != EINTR) fail("reading", errno);
    }
    if (got == 0) fail("reading", EIO);  // the file became shorter
    bytes.resize(before + static_cast<std::size_t>(got));
    return true;
  }

  // Returns false if there is no record, or only a part of one.
  bool take_record(std::string_view& bytes) {
    if (bytes.size() < kSizeBytes) return false;
    const std::size_t key_size = size_at(bytes);
    const std::string_view key = bytes.substr(kSizeBytes, key_size);
    if (key_size == 0 || key_size > kLargestKey || !can_be_key(key)) {
      throw Error(ErrorCode::Corrupt, store_.name() + ": what is at byte " + std::to_string(store_.known_) +
                                          " is no record (is it another kind of file?)");
    }
    const std::size_t value_at = kSizeBytes + key_size + kSizeBytes;
    if (bytes.size() < value_at) return false;
    const std::size_t value_size = size_at(bytes.substr(value_at - kSizeBytes));
    if (value_size > kLargestValue) {
      throw Error(ErrorCode::Corrupt, store_.name() + ": the record at byte " + std::to_string(store_.known_) +
                                          " claims a value of " + std::to_string(value_size) +
                                          " bytes (is it another kind of file?)");
    }
    if (bytes.size() - value_at < value_size) return false;
    if (key.front() == kDeletion) {
      store_.values_.erase(std::string(key.substr(1)));
    } else {
      store_.values_[std::string(key)] = bytes.substr(value_at, value_size);
    }
    bytes.remove_prefix(value_at + value_size);
    return true;
  }

  void append_record(std::string& out, std::string_view key, std::string_view value) const {
    if (key.size() > kLargestKey || value.size() > kLargestValue) {
      throw Error(ErrorCode::InvalidArgument, store_.name() + ": a key may have " + std::to_string(kLargestKey) +
                                                  " bytes and a value " + std::to_string(kLargestValue) + ", not " +
                                                  std::to_string(key.size()) + " and " + std::to_string(value.size()));
    }
    append_text(out, key);
    append_text(out, value);
  }

  // Makes one write, and takes back what was written in part, as on a full disk.
  void append(std::string_view bytes) {
    const ssize_t written = ::pwrite(file_.get(), bytes.data(), bytes.size(), store_.known_);
    if (written != static_cast<ssize_t>(bytes.size())) {
      const int error = written < 0 ? errno : ENOSPC;
      if (::ftruncate(file_.get(), store_.known_) != 0) fail("taking back half a record from", errno);
      fail("writing", error);
    }
    store_.known_ += written;
  }

  [[noreturn]] void fail(const char* doing, int error) const {
    const std::string advice = error == ENOENT ? " (is its folder there?)" : "";
    throw Error(ErrorCode::System,
                store_.name() + ": " + doing + " it: " + std::generic_category().message(error) + advice);
  }

  FileStore& store_;
  const Access access_;
  const Deadline deadline_;
  const Milliseconds timeout_;
  Descriptor file_;
  struct stat status_ {};
  std::unique_lock<std::mutex> one_thread_;
};

FileStore::FileStore(std::string path, std::int64_t world_size, Milliseconds timeout)
    : Store(timeout), path_(std::move(path)), world_size_(world_size) {
  Locked file(*this, Access::Write);
  file.set(kRefCount, std::to_string(sum(name(), kRefCount, find(kRefCount), 1)));
}

std::unique_ptr<Store> FileStore::clone(Milliseconds timeout) const {
  return std::make_unique<FileStore>(path_, world_size_, timeout);
}

FileStore::~FileStore() {
  try {
    leave();
  } catch (const std::exception&) {
    // The file stays, as after a process that was killed.
  }
}

void FileStore::leave() {
  const ino_t mine = inode_;
  Locked file(*this, Access::Leave);
  if (inode_ != mine) return;
  const std::int64_t ended = sum(name(), kCleanup, find(kCleanup), 1);
  const std::int64_t open = sum(name(), kRefCount, find(kRefCount), -1);
  const std::string ended_text = std::to_string(ended);
  const std::string open_text = std::to_string(open);
  file.write({{kCleanup, ended_text}, {kRefCount, open_text}});
  if (open == 0 && world_size_ >= 0 && ended >= world_size_) file.remove();
}

void FileStore::set(std::string_view key, std::string_view value) {
  Locked(*this, Access::Write).set(record_key(key), value);
}

std::string FileStore::get(std::string_view key, Milliseconds timeout) {
  return std::move(multi_get({std::string(key)}, timeout).front());
}

std::int64_t FileStore::add(std::string_view key, std::int64_t delta) {
  Locked file(*this, Access::Write);
  const std::string record = record_key(key);
  const std::int64_t result = sum(name(), key, find(record), delta);
  file.set(record, std::to_string(result));
  return result;
}

bool FileStore::check(const std::vector<std::string>& keys) {
  const Locked file(*this, Access::Read);
  return exist(keys);
}

void FileStore::wait(const std::vector<std::string>& keys, Milliseconds timeout) { poll_until_exist(keys, timeout); }

std::string FileStore::compare_set(std::string_view key, std::string_view expected, std::string_view desired) {
  Locked file(*this, Access::Write);
  const std::string record = record_key(key);
  Comparison comparison = compare(find(record), expected, desired);
  if (comparison.equal) file.set(record, desired);
  return std::move(comparison.answer);
}

void FileStore::append(std::string_view key, std::string_view value) {
  Locked file(*this, Access::Write);
  const std::string record = record_key(key);
  const std::string* before = find(record);
  file.set(record, (before != nullptr ? *before : "") + std::string(value));
}

bool FileStore::delete_key(std::string_view key) {
  Locked file(*this, Access::Write);
  const std::string record = record_key(key);
  if (find(record) == nullptr) return false;
  file.erase(record);
  return true;
}

std::int64_t FileStore::num_keys() {
  const Locked file(*this, Access::Read);
  return static_cast<std::int64_t>(values_.size());
}

std::vector<std::string> FileStore::list_keys() {
  const Locked file(*this, Access::Read);
  std::vector<std::string> keys;
  for (const auto& [key, value] : values_) {
    if (key.front() == '/') keys.push_back(key.substr(1));
  }
  return keys;
}

std::vector<std::string> FileStore::multi_get(const std::vector<std::string>& keys, Milliseconds timeout) {
  const auto file = poll_until_exist(keys, timeout);
  std::vector<std::string> values;
  values.reserve(keys.size());
  for (const std::string& key : keys) values.push_back(*find(record_key(key)));
  return values;
}

void FileStore::multi_set(const std::vector<std::string>& keys, const std::vector<std::string>& values) {
  require_pairs(name(), keys, values);
  std::vector<std::pair<std::string, std::string_view>> records;
  records.reserve(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) records.emplace_back(record_key(keys[i]), values[i]);
  Locked(*this, Access::Write).write(records);
}

const std::string* FileStore::find(const std::string& record_key) const {
  const auto found = values_.find(record_key);
  return found == values_.end() ? nullptr : &found->second;
}

bool FileStore::exist(const std::vector<std::string>& keys) const {
  return std::all_of(keys.begin(), keys.end(), [&](auto& key) { return values_.contains(record_key(key)); });
}

std::unique_ptr<FileStore::Locked> FileStore::poll_until_exist(const std::vector<std::string>& keys,
                                                               Milliseconds timeout) {
  const Deadline deadline = Clock::now() + timeout;
  while (true) {
    auto file = std::make_unique<Locked>(*this, Access::Read, deadline, timeout);
    if (exist(keys)) return file;
    file.reset();
    if (Clock::now() + kPollInterval >= deadline) throw not_set(name(), keys, timeout);
    std::this_thread::sleep_for(kPollInterval);
  }
}

}  // namespace ddp::rendezvous
