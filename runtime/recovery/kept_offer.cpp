// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/recovery/kept_offer.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "rendezvous/base/error.hpp"
#include "rendezvous/base/text.hpp"
#include "runtime/base/own_agent.hpp"

namespace ddp::runtime {
namespace {

using rendezvous::Error;
using rendezvous::ErrorCode;
using rendezvous::system_error;

[[noreturn]] void keep_failed(const std::string& name, const std::string& why) {
  throw Error(ErrorCode::System, "keep memory \"" + name + "\": " + why);
}

// Asks the agent about the memory of this name; nothing if no agent has started this process.
std::optional<rendezvous::AgentReply> ask_about(const std::string& name, const char* ask, std::size_t bytes = 0) {
  if (name.find_first_of("\"\\") != std::string::npos) keep_failed(name, "its name has a quote or a backslash");
  auto reply = ask_own_agent(
      {.ask = ask, .layout = rendezvous::kKeptVersion, .name = name, .bytes = static_cast<std::int64_t>(bytes)});
  if (reply && !reply->answer.error.empty()) keep_failed(name, "ddprun refuses it: " + reply->answer.error);
  return reply;
}

// Gives the file its memory. Without it the first write would be a SIGBUS where there is no more. A file that a process
// before this one has filled has it; asking again would take the kernel a look at each page.
void allocate_all(int file, const struct stat& facts, std::size_t bytes, const std::string& name) {
  constexpr std::size_t kBlock = 512;  // the unit of st_blocks, on every file system
  if (static_cast<std::size_t>(facts.st_blocks) * kBlock >= bytes) return;
  int result = 0;
  do {
    result = fallocate(file, 0, 0, static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  if (result != 0) keep_failed(name, std::to_string(bytes) + " bytes: " + std::strerror(errno));
}

}  // namespace

Mapping::Mapping(int file, std::size_t bytes, bool may_write) : bytes_(bytes) {
  const int protection = may_write ? PROT_READ | PROT_WRITE : PROT_READ;
  const int kind = file >= 0 ? MAP_SHARED | MAP_POPULATE : MAP_PRIVATE | MAP_ANONYMOUS;
  void* const start = mmap(nullptr, bytes, protection, kind, file, 0);
  if (start == MAP_FAILED) {
    system_error("mapping " + std::to_string(bytes) + " bytes to keep");
  }
  start_ = start;
}

Mapping::~Mapping() {
  if (start_ != nullptr) munmap(start_, bytes_);
}

Mapping::Mapping(Mapping&& other) noexcept : start_(std::exchange(other.start_, nullptr)), bytes_(other.bytes_) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(start_, other.start_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

KeptOffer ask_for_kept_memory(const std::string& name, std::size_t bytes) {
  KeptOffer offer;
  auto reply = ask_about(name, "keep", bytes);
  if (!reply || reply->descriptors.empty()) {
    offer.memory = Mapping(-1, bytes, true);
    return offer;
  }
  const int file = reply->descriptors[0].get();
  struct stat facts = {};
  if (fstat(file, &facts) != 0 || static_cast<std::size_t>(facts.st_size) != bytes) {
    keep_failed(name, "ddprun's memory has another size (use ddprun and libddp of one release)");
  }
  allocate_all(file, facts, bytes, name);
  offer.memory = Mapping(file, bytes, true);
  offer.outlives_process = true;
  offer.go_on = reply->answer.go_on;
  offer.step = reply->answer.step;
  if (reply->answer.parts > 0) {
    reply->descriptors.erase(reply->descriptors.begin());
    offer.parts = std::move(reply->descriptors);
  } else if (reply->descriptors.size() > 1) {
    offer.source = std::move(reply->descriptors[1]);
  }
  return offer;
}

void read_kept(int file, std::byte* to, std::size_t bytes, std::size_t offset) {
  while (bytes > 0) {
    const ssize_t got = pread(file, to, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      throw Error(ErrorCode::System, std::string("reading kept memory: ") +
                                         (got < 0 ? std::strerror(errno) : "it is shorter than its worker said"));
    }
    to += got;
    offset += static_cast<std::size_t>(got);
    bytes -= static_cast<std::size_t>(got);
  }
}

std::size_t read_kept_memory(const std::string& name, void* to, std::size_t bytes) {
  const auto reply = ask_about(name, "kept");
  if (!reply || reply->descriptors.empty()) return 0;
  const int file = reply->descriptors[0].get();
  struct stat facts = {};
  if (fstat(file, &facts) != 0) keep_failed(name, std::string("fstat: ") + std::strerror(errno));
  const auto size = static_cast<std::size_t>(facts.st_size);
  if (size < sizeof(rendezvous::KeptHeader)) return 0;
  const Mapping header(file, sizeof(rendezvous::KeptHeader), false);
  const auto& kept = *reinterpret_cast<const rendezvous::KeptHeader*>(header.at(0));
  if (kept.version != rendezvous::kKeptVersion || std::max(kept.record_bytes, kept.own_bytes) > size) return 0;
  if (kept.tensor_bytes > size || kept.shadow_parts < 0) return 0;
  const rendezvous::KeptPlaces places(kept.tensor_bytes, kept.record_bytes, static_cast<std::size_t>(kept.shadow_parts),
                                      kept.own_bytes);
  const std::size_t begin = places.own;
  if (places.all > size) return 0;
  const std::size_t there = std::min<std::size_t>(bytes, kept.own_bytes + kept.tensor_bytes);
  read_kept(file, static_cast<std::byte*>(to), there, begin);
  return there;
}

}  // namespace ddp::runtime
