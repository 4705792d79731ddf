// SPDX-License-Identifier: BSD-3-Clause
// Somebody puts something else in the place of the coordinator's journal.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>

#include "rendezvous/base/error.hpp"
#include "rendezvous/journal/file_journal.hpp"
#include "tests/support/process.hpp"

using namespace ddp::testing;
using Catch::Matchers::Contains;

namespace {

// Returns why a coordinator does not use the journal at this path; empty: it does.
std::string why_refused(const std::string& path) {
  ddp::rendezvous::asio::io_context io{1};
  try {
    const ddp::rendezvous::FileJournal journal(io, path, "epoch");
    return "";
  } catch (const ddp::rendezvous::Error& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("journal: what others have put in its place is refused, and left as it is", "[attacks][integration]") {
  const TemporaryFolder folder;
  const std::string path = folder / "journal", other = folder / "other";
  write_file(other, "precious");

  REQUIRE(symlink(other.c_str(), path.c_str()) == 0);
  CHECK_THAT(why_refused(path), Contains("cannot open it"));
  REQUIRE(unlink(path.c_str()) == 0);

  REQUIRE(chmod(other.c_str(), 0600) == 0);
  REQUIRE(link(other.c_str(), path.c_str()) == 0);
  CHECK_THAT(why_refused(path), Contains("it has more than one name"));
  REQUIRE(unlink(path.c_str()) == 0);

  REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  CHECK_THAT(why_refused(path), Contains("it is not a file"));
  REQUIRE(unlink(path.c_str()) == 0);

  write_file(path, "");
  REQUIRE(chmod(path.c_str(), 0660) == 0);
  CHECK_THAT(why_refused(path), Contains("others may use it"));
  if (geteuid() == 0) {
    REQUIRE(chmod(path.c_str(), 0600) == 0);
    REQUIRE(chown(path.c_str(), 65534, 65534) == 0);
    CHECK_THAT(why_refused(path), Contains("it belongs to another user"));
  }
  CHECK(read_file(other) == "precious");
}

TEST_CASE("journal: whatever the umask, only its user can read it", "[attacks][integration]") {
  const TemporaryFolder folder;
  const mode_t before = umask(0);
  CHECK(why_refused(folder / "journal").empty());
  umask(before);
  struct stat facts = {};
  REQUIRE(stat((folder / "journal").c_str(), &facts) == 0);
  CHECK((facts.st_mode & 07777) == 0600);
}
