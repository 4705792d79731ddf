// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/membership/secret.hpp"

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "rendezvous/base/check.hpp"
#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/base/error.hpp"

namespace ddp::rendezvous {
namespace {

constexpr std::size_t kDigits = 2 * std::tuple_size_v<Secret::Bytes>;

void initialise() {
  static const int status = sodium_init();  // may be called again, from any thread
  DDP_CHECK(status >= 0, status);
}

// Text of a secret on the stack, which the destructor wipes.
struct WipedText {
  std::array<char, kDigits + 16> bytes{};
  ~WipedText() { sodium_memzero(bytes.data(), bytes.size()); }
};

[[noreturn]] void cannot(const std::string& what, const std::string& path, const std::string& why) {
  throw Error(ErrorCode::System, "cannot " + what + " the secret file " + path + ": " + why);
}

std::string octal(mode_t mode) {
  char text[8];
  std::snprintf(text, sizeof text, "%04o", static_cast<unsigned>(mode & 07777));
  return text;
}

// Refuses a file that others may know or have made.
void check_rights(const struct stat& status, SecretReaders readers, const std::string& path) {
  if (!S_ISREG(status.st_mode)) cannot("use", path, "it is not a regular file");
  const uid_t user = ::geteuid();
  if (status.st_uid != user && status.st_uid != 0) {
    cannot("use", path,
           "it belongs to uid " + std::to_string(status.st_uid) + ", who may change it; copy it to a file of your own");
  }
  // A user who is not root can read a file of root's only through its group.
  const bool group_may_read = status.st_uid == 0 && (user != 0 || readers == SecretReaders::GroupToo);
  const mode_t forbidden = (S_IRWXG | S_IRWXO) & ~(group_may_read ? S_IRGRP : 0U);
  if ((status.st_mode & forbidden) == 0) return;
  const bool is_written = (status.st_mode & (S_IWGRP | S_IWOTH)) != 0;
  cannot("use", path,
         std::string("others than its owner may ") + (is_written ? "change" : "read") + " it (mode " +
             octal(status.st_mode) + "); chmod 600 " + path);
}

// Reads up to the end of the file or of the buffer.
std::size_t read_all(const Descriptor& file, WipedText& text, const std::string& path) {
  std::size_t size = 0;
  while (size < text.bytes.size()) {
    const auto got = ::read(file.get(), text.bytes.data() + size, text.bytes.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) cannot("read", path, std::strerror(errno));
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  return size;
}

}  // namespace

Secret Secret::random() {
  initialise();
  Bytes bytes;
  randombytes_buf(bytes.data(), bytes.size());
  Secret secret(bytes);
  sodium_memzero(bytes.data(), bytes.size());
  return secret;
}

Secret::~Secret() { sodium_memzero(bytes_.data(), bytes_.size()); }

bool Secret::operator==(const Secret& other) const {
  return sodium_memcmp(bytes_.data(), other.bytes_.data(), bytes_.size()) == 0;
}

void make_secret_file(const std::string& path) {
  const Secret secret = Secret::random();
  WipedText text;
  sodium_bin2hex(text.bytes.data(), kDigits + 1, secret.bytes().data(), secret.bytes().size());
  text.bytes[kDigits] = '\n';

  const Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file && errno == EEXIST) {
    cannot("make", path, "there is one already; use it, or choose another path, or delete it if no job needs it");
  }
  if (!file) cannot("make", path, std::strerror(errno));
  // fchmod, because a umask may have removed bits. fsync, because some file systems report a failed write only then.
  const bool written = ::fchmod(file.get(), 0600) == 0 &&
                       ::write(file.get(), text.bytes.data(), kDigits + 1) == static_cast<ssize_t>(kDigits + 1) &&
                       ::fsync(file.get()) == 0;
  if (!written) {
    const std::string why = std::strerror(errno);
    ::unlink(path.c_str());
    cannot("write", path, why);
  }
}

Secret read_secret_file(const std::string& path, SecretReaders readers) {
  const std::string make_one = "ddprun --make-secret makes one";
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) {
    cannot("read", path, std::strerror(errno) + (errno == ENOENT ? "; " + make_one : std::string()));
  }
  struct stat status = {};
  if (::fstat(file.get(), &status) != 0) cannot("read", path, std::strerror(errno));
  check_rights(status, readers, path);

  WipedText text;
  std::size_t size = read_all(file, text, path);
  while (size > 0 && std::string_view(" \t\r\n").find(text.bytes[size - 1]) != std::string_view::npos) --size;
  const auto found = secret_of({text.bytes.data(), size});
  if (!found) cannot("use", path, "it is not 64 hexadecimal digits and a newline; " + make_one);
  return *found;
}

std::string digits_of(const Secret& secret) {
  std::string digits(kDigits + 1, '\0');
  sodium_bin2hex(digits.data(), digits.size(), secret.bytes().data(), secret.bytes().size());
  digits.pop_back();
  return digits;
}

std::optional<Secret> secret_of(std::string_view digits) {
  Secret::Bytes bytes;
  std::size_t decoded = 0;
  const bool is_hex =
      sodium_hex2bin(bytes.data(), bytes.size(), digits.data(), digits.size(), nullptr, &decoded, nullptr) == 0;
  std::optional<Secret> found;
  if (is_hex && digits.size() == kDigits && decoded == bytes.size()) found.emplace(bytes);
  sodium_memzero(bytes.data(), bytes.size());
  return found;
}

JobTag job_tag(const std::string& id) {
  initialise();
  std::array<unsigned char, crypto_generichash_BYTES> hash;
  crypto_generichash(hash.data(), hash.size(), reinterpret_cast<const unsigned char*>(id.data()), id.size(), nullptr,
                     0);
  JobTag tag;
  std::copy_n(hash.begin(), tag.size(), tag.begin());
  if (tag == JobTag{}) tag.back() = 1;
  return tag;
}

}  // namespace ddp::rendezvous
