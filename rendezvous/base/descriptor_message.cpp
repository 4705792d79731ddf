// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/base/descriptor_message.hpp"

#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstring>

namespace ddp::rendezvous {
namespace {

constexpr std::size_t kMostText = 64 << 10;

struct alignas(cmsghdr) Control {
  char bytes[CMSG_SPACE(sizeof(int) * kMostDescriptors)];
};

}  // namespace

bool send_with_descriptors(int socket, const std::string& text, const std::vector<int>& descriptors) {
  if (descriptors.size() > kMostDescriptors) return errno = E2BIG, false;
  iovec part = {const_cast<char*>(text.data()), text.size()};
  Control control = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    const std::size_t bytes = sizeof(int) * descriptors.size();
    message.msg_control = control.bytes;
    message.msg_controllen = CMSG_SPACE(bytes);
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(bytes);
    std::memcpy(CMSG_DATA(header), descriptors.data(), bytes);
  }
  return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0;
}

std::optional<DescriptorMessage> receive_with_descriptors(int socket) {
  std::string text(kMostText, '\0');
  iovec part = {text.data(), text.size()};
  Control control = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  const ssize_t got = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0) return std::nullopt;
  DescriptorMessage result;
  text.resize(static_cast<std::size_t>(got));
  result.text = std::move(text);
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    std::vector<int> numbers(count);
    std::memcpy(numbers.data(), CMSG_DATA(header), count * sizeof(int));
    for (const int number : numbers) result.descriptors.emplace_back(number);
  }
  return result;
}

}  // namespace ddp::rendezvous
