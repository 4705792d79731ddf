// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/net/socket_process.hpp"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "rendezvous/base/text_stream.hpp"

namespace ddp::rendezvous {
namespace {

using Directory = std::unique_ptr<DIR, decltype([](DIR* directory) { ::closedir(directory); })>;

bool holds_one_of(const std::string& fd_directory, const std::set<std::string>& inodes) {
  const Directory directory(::opendir(fd_directory.c_str()));
  if (!directory) return false;
  while (const dirent* entry = ::readdir(directory.get())) {
    char target[64];
    const auto size = ::readlink((fd_directory + "/" + entry->d_name).c_str(), target, sizeof target);
    const std::string link(target, size > 0 ? static_cast<std::size_t>(size) : 0);
    if (link.starts_with("socket:[") && inodes.contains(link.substr(8, link.size() - 9))) return true;
  }
  return false;
}

bool belongs_to(const std::string& process, uid_t user) {
  struct stat status = {};
  return ::stat(process.c_str(), &status) == 0 && status.st_uid == user;
}

}  // namespace

std::string process_with_socket(const std::set<std::string>& inodes, std::optional<uid_t> user) {
  const Directory proc(inodes.empty() ? nullptr : ::opendir("/proc"));
  if (!proc) return "";
  while (const dirent* entry = ::readdir(proc.get())) {
    const std::string pid = entry->d_name;
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string process = "/proc/" + pid;
    if (user && !belongs_to(process, *user)) continue;
    if (!holds_one_of(process + "/fd", inodes)) continue;
    std::string name;
    FileStream file(process + "/comm");
    std::getline(file, name);
    // A process chooses its name, and this one is for a terminal.
    std::replace_if(
        name.begin(), name.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
    return "pid " + pid + (name.empty() ? "" : " (" + name + ")");
  }
  return "";
}

}  // namespace ddp::rendezvous
