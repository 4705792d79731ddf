// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/net/connection_owner.hpp"

#include <arpa/inet.h>
#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <variant>

#include "rendezvous/base/text.hpp"
#include "rendezvous/base/text_stream.hpp"

namespace ddp::rendezvous {
namespace {

constexpr std::string_view kOwn = "own", kNone = "none", kUnknown = "unknown", kOther = "other ";

std::string name_of(const ConnectionEnds::End& end) { return to_text(end.address) + " " + std::to_string(end.port); }

std::string take_word(std::string_view& rest) {
  const std::size_t end = std::min(rest.find(' '), rest.size());
  std::string word(rest.substr(0, end));
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return word;
}

std::optional<ConnectionEnds::End> take_end(std::string_view& rest) {
  std::string address = take_word(rest);
  const auto port = parse_number<std::uint16_t>(take_word(rest));
  if (address.find(':') == std::string::npos) address.insert(0, "::ffff:");
  ConnectionEnds::End end = {};
  if (!port || ::inet_pton(AF_INET6, address.c_str(), &end.address) != 1) return std::nullopt;
  end.port = *port;
  return end;
}

}  // namespace

std::string connection_name(const ConnectionEnds& ends) { return name_of(ends.peer) + " " + name_of(ends.local); }

std::string owner_answer(PeerUsers& users, std::string_view connection, const std::optional<ConnectionEnds>& link) {
  const auto peer = take_end(connection);
  const auto local = take_end(connection);
  if (!peer || !local) return "";
  const PeerUsers::Answer answer = users.of_this_machine({*local, *peer}, link);
  std::string owner(kUnknown);
  if (const auto* known = std::get_if<PeerUsers::Known>(&answer)) {
    const bool is_own = known->uid == ::geteuid() || known->uid == 0;
    owner = is_own ? std::string(kOwn) : std::string(kOther) + user_name(known->uid);
  } else if (std::holds_alternative<PeerUsers::Gone>(answer)) {
    owner = kNone;
  }
  return connection_name({*local, *peer}) + " " + owner;
}

std::optional<OwnerAnswer> read_owner_answer(std::string_view answer) {
  const auto peer = take_end(answer);
  const auto local = take_end(answer);
  if (!peer || !local) return std::nullopt;
  OwnerAnswer read{.connection = connection_name({*local, *peer}), .address = to_text(peer->address)};
  if (answer == kOwn) read.owner = OwnerAnswer::Owner::Own;
  if (answer == kNone) read.owner = OwnerAnswer::Owner::None;
  if (answer.starts_with(kOther)) {
    read.owner = OwnerAnswer::Owner::Other;
    read.user = answer.substr(kOther.size());
  }
  return read;
}

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
