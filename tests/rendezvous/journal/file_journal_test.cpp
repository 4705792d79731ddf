// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/journal/file_journal.hpp"
#include "rendezvous/journal/journal_format.hpp"
#include "rendezvous/journal/memory_journal.hpp"

using namespace ddp::rendezvous;

namespace {

struct Folder {
  Folder() {
    char name[] = "/tmp/ddprun-journal-XXXXXX";
    REQUIRE(mkdtemp(name) != nullptr);
    path = name;
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string file() const { return path / "journal"; }
  std::filesystem::path path;
};

// A life of a coordinator that does nothing but write.
template <typename Kind>
struct Life {
  template <typename... Arguments>
  explicit Life(Arguments... arguments) : journal(io, arguments...) {
    journal.claim({.on_claimed = [this](JournalClaim claim) { claimed = std::move(claim); },
                   .on_kept = [this](std::uint64_t number) { kept = number; },
                   .on_lost = [this](const std::string& why) { lost = why; }});
    run_until([this] { return claimed || !lost.empty(); });
  }
  void write(const std::string& content) {
    journal.write(++written, content);
    run_until([this] { return kept == written || !lost.empty(); });
  }
  template <typename Condition>
  void run_until(Condition holds) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!holds() && std::chrono::steady_clock::now() < deadline) {
      io.restart();
      io.run_for(std::chrono::milliseconds(10));
    }
    REQUIRE(holds());
  }

  asio::io_context io{1};
  Kind journal;
  std::optional<JournalClaim> claimed;
  std::uint64_t written = 0, kept = 0;
  std::string lost;
};

using FileLife = Life<FileJournal>;

}  // namespace

TEST_CASE("journal: the next life finds what was kept, and the same epoch", "[rendezvous][integration]") {
  const Folder folder;
  {
    FileLife first(folder.file(), "a1");
    CHECK(first.claimed->epoch == "a1");
    CHECK(first.claimed->content.empty());
    first.write("one");
    first.write("two");
  }
  FileLife second(folder.file(), "b2");
  CHECK(second.claimed->epoch == "a1");
  CHECK(second.claimed->content == "two");
  CHECK(second.claimed->age >= std::chrono::milliseconds(0));
  struct stat facts = {};
  REQUIRE(stat(folder.file().c_str(), &facts) == 0);
  CHECK((facts.st_mode & 0777) == 0600);
}

TEST_CASE("journal: the next life writes over a torn record", "[rendezvous][integration]") {
  const Folder folder;
  { FileLife(folder.file(), "a1").write("one"); }
  const std::string torn = journal_record("a torn record", std::chrono::nanoseconds(1)).substr(0, 40);
  std::ofstream(folder.file(), std::ios::app | std::ios::binary) << torn;
  {
    FileLife second(folder.file(), "");
    CHECK(second.claimed->content == "one");
    second.write("two");
  }
  CHECK(FileLife(folder.file(), "").claimed->content == "two");
}

TEST_CASE("journal: the file stays bounded, however much is written", "[rendezvous][integration]") {
  const Folder folder;
  const std::string large(kJournalGrowsTo / 3, 'x');
  {
    FileLife life(folder.file(), "a1");
    for (int i = 0; i < 20; ++i) life.write(large + std::to_string(i));
    CHECK(life.lost.empty());
  }
  CHECK(std::filesystem::file_size(folder.file()) <= 2 * kJournalGrowsTo);
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path), {}) == 1);
  FileLife next(folder.file(), "");
  CHECK(next.claimed->content == large + "19");
  CHECK(next.claimed->epoch == "a1");
}

TEST_CASE("journal: of two lives at one time the second is refused", "[rendezvous][integration]") {
  const Folder folder;
  FileLife first(folder.file(), "a1");
  CHECK_THROWS_WITH(FileLife(folder.file(), "a1"),
                    "the coordinator's journal " + folder.file() + ": another coordinator has it");
  first.write("still there");
  CHECK(first.lost.empty());
}

TEST_CASE("journal: a corrupt file is refused by its name", "[rendezvous][integration]") {
  const Folder folder;
  { FileLife(folder.file(), "a1").write("one"); }
  std::fstream file(folder.file(), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-1, std::ios::end);
  file.put('x');
  file.close();
  CHECK_THROWS_WITH(FileLife(folder.file(), ""), "the coordinator's journal " + folder.file() +
                                                     ": it is corrupt: byte 72: the checksum of record 2 does not fit");
}

TEST_CASE("journal: a life that goes on refuses a file that is gone or was emptied, and makes none",
          "[rendezvous][integration]") {
  const Folder folder;
  const auto goes_on = [&] { FileLife(folder.file(), "a1", FileJournal::Begins::WhereItWasLeft); };
  const std::string gone =
      "the coordinator's journal " + folder.file() + " is gone (does something clear this folder?)";
  CHECK_THROWS_WITH(goes_on(), gone);
  CHECK_FALSE(std::filesystem::exists(folder.file()));
  { FileLife(folder.file(), "a1").write("one"); }
  CHECK_NOTHROW(goes_on());
  std::filesystem::resize_file(folder.file(), 0);
  CHECK_THROWS_WITH(goes_on(), gone);
  CHECK(std::filesystem::file_size(folder.file()) == 0);
}

TEST_CASE("journal: the folder is locked while the journal lives, so that no cleaner removes old files there",
          "[rendezvous][integration]") {
  const Folder folder;
  const Descriptor cleaner(open(folder.path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  {
    const FileLife life(folder.file(), "a1");
    CHECK(flock(cleaner.get(), LOCK_EX | LOCK_NB) != 0);  // systemd-tmpfiles skips the folder then
  }
  CHECK(flock(cleaner.get(), LOCK_EX | LOCK_NB) == 0);
}

TEST_CASE("journal: one in memory keeps at once, and ends with its process", "[rendezvous][integration]") {
  Life<MemoryJournal> life("a1");
  CHECK(life.claimed->epoch == "a1");
  life.write("one");
  CHECK(life.kept == 1);
  CHECK(Life<MemoryJournal>("b2").claimed->content.empty());
}
