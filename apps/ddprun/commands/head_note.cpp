// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddprun/commands/head_note.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "launcher/hosts/launch_line.hpp"
#include "launcher/local/agent_socket.hpp"
#include "rendezvous/base/error.hpp"
#include "rendezvous/base/text.hpp"

namespace ddp::apps {
namespace {

constexpr char kPrefix[] = ".head-";
constexpr std::size_t kMostInNote = 4096;

std::string text_of(const launcher::HeadConfig& config) {
  std::vector<std::string> names;
  for (const launcher::Host& host : config.hosts) names.push_back(host.name);
  return "the job that ddprun (pid " + std::to_string(getpid()) + ") has started on " + rendezvous::list_of(names, 4) +
         " is seen there: on " + names.front() + " run ~/.cache/ddprun/" + launcher::own_build().id + "/ddprun";
}

// Returns what the note says; empty: its writer does not run.
std::string read_note(const std::string& path) {
  const rendezvous::Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file) return "";
  if (flock(file.get(), LOCK_SH | LOCK_NB) == 0) {
    unlink(path.c_str());
    return "";
  }
  std::string text(kMostInNote, '\0');
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(read(file.get(), text.data(), text.size()), 0)));
  return text;
}

}  // namespace

HeadNote::HeadNote(const launcher::HeadConfig& config) {
  if (launcher::is_this_machine(config.hosts.front(), rendezvous::host_name())) return;
  try {
    const std::string text = text_of(config);
    path_ = launcher::make_agent_socket_folder() + "/" + kPrefix + std::to_string(getpid());
    unlink(path_.c_str());  // a process that had this pid before may have left it
    file_ = rendezvous::Descriptor(open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    // A reader that comes before it is locked takes it for the note of a killed process and removes it: then there is
    // none.
    const bool is_written = file_ && flock(file_.get(), LOCK_EX) == 0 &&
                            write(file_.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
    if (!is_written && file_) unlink(path_.c_str());
  } catch (const rendezvous::Error&) {
    path_.clear();  // the job does without it
  }
}

HeadNote::~HeadNote() {
  if (file_) unlink(path_.c_str());
}

std::vector<std::string> jobs_elsewhere(const std::string& folder, const std::string& command) {
  std::vector<std::string> all;
  DIR* const open_folder = opendir(folder.c_str());
  if (open_folder == nullptr) return all;
  while (const dirent* entry = readdir(open_folder)) {
    if (strncmp(entry->d_name, kPrefix, sizeof kPrefix - 1) != 0) continue;
    const std::string text = read_note(folder + "/" + entry->d_name);
    if (!text.empty()) all.push_back(text + " " + command);
  }
  closedir(open_folder);
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace ddp::apps
