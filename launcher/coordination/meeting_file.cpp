// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/coordination/meeting_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <sstream>
#include <system_error>

#include "launcher/coordination/meeting.hpp"
#include "rendezvous/base/error.hpp"
#include "rendezvous/base/random_id.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/net/addresses/own_address.hpp"

namespace ddp::launcher {
namespace {

using rendezvous::Descriptor;

constexpr char kFirstLine[] = "ddprun meeting file 1";
constexpr std::size_t kMostInMeetingFile = 65536;

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw rendezvous::Error(rendezvous::ErrorCode::System,
                          path + " (--rdzv-endpoint, where the nodes are to meet): " + what);
}

[[noreturn]] void cannot(const std::string& path, const std::string& what, int error) {
  std::string advice;
  if (error == ENOENT || error == ENOTDIR) advice = " (its folder must exist, and be shared by all nodes)";
  if (error == ENOLCK || error == EOPNOTSUPP || error == ENOSYS) {
    advice =
        " (locks tell a job that lives from one that is gone: choose a folder that has them, or remove the file "
        "if its job is over)";
  }
  fail(path, "cannot " + what + ": " + std::generic_category().message(error) + advice);
}

std::string text_of(const MeetingFile::Entry& entry) {
  std::string job = entry.job;
  std::replace(job.begin(), job.end(), '\n', ' ');
  std::string text = std::string(kFirstLine) + "\njob " + job + "\nepoch " + entry.epoch + "\n";
  for (const std::string& address : entry.addresses) text += "address " + address + "\n";
  return text + "port " + std::to_string(entry.port) + "\n";
}

std::optional<MeetingFile::Entry> parse(const std::string& text) {
  std::istringstream lines(text);
  std::string line;
  if (!std::getline(lines, line) || line != kFirstLine) return std::nullopt;
  MeetingFile::Entry entry;
  while (std::getline(lines, line)) {
    const std::size_t blank = line.find(' ');
    if (blank == std::string::npos) return std::nullopt;
    const std::string key = line.substr(0, blank), value = line.substr(blank + 1);
    if (key == "job") entry.job = value;
    if (key == "epoch") entry.epoch = value;
    if (key == "address") entry.addresses.push_back(value);
    if (key == "port") entry.port = rendezvous::parse_number<std::uint16_t>(value).value_or(0);
  }
  if (entry.epoch.empty() || entry.addresses.empty() || entry.port == 0) return std::nullopt;
  return entry;
}

bool is_same(const struct stat& a, const struct stat& b) { return a.st_dev == b.st_dev && a.st_ino == b.st_ino; }

// Whether this name still stands for the open file.
bool is_at(const std::string& path, const Descriptor& file) {
  struct stat open = {}, named = {};
  return ::fstat(file.get(), &open) == 0 && ::stat(path.c_str(), &named) == 0 && is_same(open, named);
}

}  // namespace

MeetingFile::~MeetingFile() {
  if (held_ && is_at(path_, held_)) ::unlink(path_.c_str());
}

std::optional<MeetingFile::Entry> MeetingFile::read() const {
  const Descriptor file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file && errno == ENOENT) return std::nullopt;
  if (!file) cannot(path_, "read it", errno);
  std::string text;
  std::array<char, 4096> part;
  ssize_t got = 0;
  while (text.size() < kMostInMeetingFile && (got = ::read(file.get(), part.data(), part.size())) > 0) {
    text.append(part.data(), static_cast<std::size_t>(got));
  }
  if (got < 0) cannot(path_, "read it", errno);
  if (text.empty()) return std::nullopt;
  auto entry = parse(text);
  if (!entry) fail(path_, "there is a file that ddprun did not write; remove it, or choose another path");
  return entry;
}

bool MeetingFile::is_held() const {
  const Descriptor file(::open(path_.c_str(), O_RDWR | O_CLOEXEC));  // for writing: NFS wants that for a lock
  if (!file && errno == ENOENT) return false;
  if (!file) cannot(path_, "find out whether it was left behind", errno);
  if (::flock(file.get(), LOCK_EX | LOCK_NB) == 0) return false;
  if (errno != EWOULDBLOCK) cannot(path_, "lock it", errno);
  return true;
}

bool MeetingFile::claim(const Entry& entry) {
  const std::string written = path_ + "." + rendezvous::random_id();
  Descriptor file(::open(written.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!file) cannot(written, "write it", errno);
  const std::string text = text_of(entry);
  // Synchronised, since other machines see it only then while it stays open.
  const bool is_written = ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                          ::fsync(file.get()) == 0 && ::flock(file.get(), LOCK_EX | LOCK_NB) == 0;
  const int error = errno;
  Place place = Place::Changed;
  try {
    if (!is_written) cannot(path_, "write and lock it", error);
    while (place == Place::Changed) {
      place = link(written);
      if (place == Place::Others) place = replace(written);
    }
  } catch (...) {
    ::unlink(written.c_str());
    throw;
  }
  ::unlink(written.c_str());  // a second name of the file, if it was linked
  if (place == Place::Ours) held_ = std::move(file);
  return place == Place::Ours;
}

// Gives a written file its name if no other has it.
MeetingFile::Place MeetingFile::link(const std::string& written) const {
  if (::link(written.c_str(), path_.c_str()) == 0) return Place::Ours;
  if (errno == EEXIST) return Place::Others;
  cannot(path_, "link it", errno);
}

// Puts a written file in the place of one that nobody holds.
MeetingFile::Place MeetingFile::replace(const std::string& written) const {
  const Descriptor other(::open(path_.c_str(), O_RDWR | O_CLOEXEC));
  if (!other) {
    if (errno == ENOENT) return Place::Changed;
    cannot(path_, "take over what another job has left behind", errno);
  }
  if (::flock(other.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return Place::Others;
    cannot(path_, "lock it", errno);
  }
  if (!is_at(path_, other)) return Place::Changed;  // another node was faster
  if (::rename(written.c_str(), path_.c_str()) != 0) cannot(path_, "replace it", errno);
  return Place::Ours;
}

namespace {

class FileMeeting : public Meeting {
 public:
  FileMeeting(const LaunchConfig& config, std::string epoch)
      : config_(config), epoch_(std::move(epoch)), file_(config.meeting_file) {}

  std::string where() const override { return config_.meeting_file; }
  // Follows the file, or leads if there is none. A leader whose file is not locked is gone.
  std::optional<Start> try_to_lead() override {
    if (!leader_.epoch.empty()) return file_.is_held() ? std::nullopt : claim();
    constexpr int kTries = 100;  // each one fails only because another node has just written or removed the file
    for (int tries = 0; tries < kTries; ++tries) {
      if (has_moved()) return std::nullopt;
      if (auto start = claim()) return start;
    }
    throw rendezvous::Error(rendezvous::ErrorCode::System,
                            config_.meeting_file +
                                ": other nodes write and remove this file all the time; give each job "
                                "a file of its own as --rdzv-endpoint");
  }
  bool has_moved() override {
    const auto entry = file_.read();
    if (!entry || entry->epoch == leader_.epoch) return false;
    leader_ = *entry;
    return true;
  }
  rendezvous::LinkTarget target() const override {
    return {.hosts = leader_.addresses, .ports = {leader_.port}, .job = rendezvous::job_tag(leader_.epoch)};
  }

 private:
  // Listens at a free port and writes into the file where that is. Returns nothing if another node was faster.
  std::optional<Start> claim() {
    Start start{config_.store_addresses, rendezvous::listen_on(config_.store_addresses, 0)};
    const bool is_ours = file_.claim({.job = config_.job.id,
                                      .epoch = epoch_,
                                      .addresses = rendezvous::offered_addresses(config_.local_addr),
                                      .port = start.listeners.port});
    if (!is_ours) return std::nullopt;
    start.kept_open = file_.held();
    return start;
  }

  const LaunchConfig& config_;
  const std::string epoch_;
  MeetingFile file_;
  MeetingFile::Entry leader_;  // what the file says, if another node leads
};

}  // namespace

std::unique_ptr<Meeting> meeting_in_file(const LaunchConfig& config, const std::string& epoch) {
  return std::make_unique<FileMeeting>(config, epoch);
}

}  // namespace ddp::launcher
