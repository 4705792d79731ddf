// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/membership/secret.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/rendezvous/membership/known_secrets.hpp"
#include "tests/rendezvous/store/failure_of.hpp"

namespace ddp::rendezvous {
namespace {

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "secret-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::string write(const std::string& name, const std::string& content) const {
    std::ofstream(path_ / name, std::ios::binary) << content;
    ::chmod((path_ / name).c_str(), 0600);
    return (path_ / name).string();
  }

 private:
  std::filesystem::path path_;
};

std::string content_of(const std::string& path) {
  std::ostringstream content;
  content << std::ifstream(path, std::ios::binary).rdbuf();
  return content.str();
}

const std::string kDigits = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

TEST_CASE("secret: a new file can be read, by its owner only", "[rendezvous][unit]") {
  const Folder folder;
  const std::string path = folder / "secret";
  const auto mask = ::umask(0);
  make_secret_file(path);
  ::umask(mask);
  const std::string content = content_of(path);
  CHECK(content.size() == 65);
  CHECK(content.find_first_not_of("0123456789abcdef") == 64);
  CHECK(content.back() == '\n');
  struct stat status = {};
  REQUIRE(::stat(path.c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0600);

  CHECK(hex_of(read_secret_file(path).bytes()) + "\n" == content);
}

TEST_CASE("secret: no two new secrets are equal", "[rendezvous][unit]") {
  CHECK_FALSE(Secret::random() == Secret::random());
}

TEST_CASE("secret: an existing file is never overwritten", "[rendezvous][unit]") {
  const Folder folder;
  const std::string path = folder.write("secret", "mine");
  CHECK(failure_of([&] { make_secret_file(path); }).message ==
        "cannot make the secret file " + path +
            ": there is one already; use it, or choose another path, or delete it if no job needs it");
  CHECK(content_of(path) == "mine");
  CHECK(failure_of([&] { make_secret_file(folder / "none/secret"); }).message ==
        "cannot make the secret file " + (folder / "none/secret") + ": No such file or directory");
}

TEST_CASE("secret: digits may have either case, and blanks at the end do not matter", "[rendezvous][unit]") {
  const Folder folder;
  std::string upper = kDigits;
  std::transform(upper.begin(), upper.end(), upper.begin(), [](char c) { return static_cast<char>(std::toupper(c)); });
  for (const std::string& content : {kDigits, kDigits + "\n", upper + "\r\n", kDigits + " \t\n\n"}) {
    CHECK(read_secret_file(folder.write("secret", content)) == counting_secret());
  }
}

TEST_CASE("secret: a file that has no secret is refused with its path and what to do", "[rendezvous][unit]") {
  const Folder folder;
  CHECK_THAT(failure_of([&] { read_secret_file(folder / "none"); }).message,
             Catch::StartsWith("cannot read the secret file " + (folder / "none") +
                               ": No such file or directory; ddprun --make-secret"));
  CHECK_THAT(failure_of([&] { read_secret_file(folder / ""); }).message, Catch::EndsWith(": it is not a regular file"));
  const std::string zero(1, '\0');
  for (const std::string& content :
       {std::string(), std::string("\n"), kDigits.substr(1), kDigits + "0", "g" + kDigits.substr(1), " " + kDigits,
        kDigits + "\n" + kDigits, kDigits + zero, zero + kDigits, std::string(100'000, 'a'),
        kDigits.substr(0, 32) + " " + kDigits.substr(32), std::string("hunter2\n")}) {
    const std::string path = folder.write("secret", content);
    const Failure failure = failure_of([&] { read_secret_file(path); });
    CHECK_THAT(failure.message, Catch::StartsWith("cannot use the secret file " + path +
                                                  ": it is not 64 hexadecimal digits and a newline"));
  }
}

TEST_CASE("secret: a file that others may read or change is refused", "[rendezvous][unit]") {
  const Folder folder;
  const std::string path = folder.write("secret", kDigits + "\n");
  for (const mode_t mode : {0640U, 0644U, 0604U, 0444U}) {
    ::chmod(path.c_str(), mode);
    CHECK_THAT(
        failure_of([&] { read_secret_file(path); }).message,
        Catch::StartsWith("cannot use the secret file " + path + ": others than its owner may read it (mode 06") ||
            Catch::Contains("may read it (mode 0444); chmod 600 " + path));
  }
  for (const mode_t mode : {0620U, 0602U, 0666U}) {
    ::chmod(path.c_str(), mode);
    CHECK_THAT(failure_of([&] { read_secret_file(path); }).message,
               Catch::Contains("others than its owner may change"));
  }
  ::chmod(path.c_str(), 0400);
  CHECK(read_secret_file(path) == counting_secret());
  if (::geteuid() != 0) return;
  // Where root's files are mounted into a container, its group may read them, and nobody may change them.
  ::chmod(path.c_str(), 0440);
  CHECK(read_secret_file(path, SecretReaders::GroupToo) == counting_secret());
  for (const mode_t mode : {0444U, 0460U}) {
    ::chmod(path.c_str(), mode);
    CHECK_FALSE(failure_of([&] { read_secret_file(path, SecretReaders::GroupToo); }).message.empty());
  }
  // A file of another user.
  ::chmod(path.c_str(), 0600);
  REQUIRE(::chown(path.c_str(), 65534, 65534) == 0);
  CHECK(failure_of([&] { read_secret_file(path); }).message ==
        "cannot use the secret file " + path +
            ": it belongs to uid 65534, who may change it; copy it to a file of your own");
}

TEST_CASE("secret: what is no file is not waited for", "[rendezvous][unit]") {
  const Folder folder;
  const std::string path = folder / "pipe";
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  CHECK(failure_of([&] { read_secret_file(path); }).message ==
        "cannot use the secret file " + path + ": it is not a regular file");
}

}  // namespace
}  // namespace ddp::rendezvous
