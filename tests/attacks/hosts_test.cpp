// SPDX-License-Identifier: BSD-3-Clause
// What a host of --hosts, its login shell, or another user who was there before can do to the head, and what the other
// end of stdin can do to a host.
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "launcher/hosts/wire/greeting.hpp"
#include "launcher/hosts/wire/messages.hpp"
#include "tests/support/hosts.hpp"
#include "tests/support/other_user.hpp"
#include "tests/support/process.hpp"

using namespace ddp::testing;
using namespace ddp::launcher;
using Catch::Matchers::Contains;
using ddp::rendezvous::FrameKind;
using ddp::rendezvous::to_frame;

namespace {

std::string on_host(const std::string& stdin_text) {
  Process::Options options;
  options.stdin_text = stdin_text;
  Process host({DDPRUN_BINARY, "--on-host"}, options);
  const Result result = host.wait();
  CHECK(result.code == 1);
  CHECK(host.all_gone());
  return result.err;
}

Result head(const std::string& host, const std::map<std::string, std::string>& environment) {
  Process::Options options;
  options.environment = environment;
  Process process({DDPRUN_BINARY, "--hosts=" + host, "--launch-agent=" FAKE_SSH, FAKE_WORKER_BINARY, "say=started"},
                  options);
  const Result result = process.wait();
  CAPTURE(result.err);
  CHECK((result.code == 1 || result.code == 75));  // 75: it has ended without a word
  CHECK_THAT(result.out, !Contains("started"));
  CHECK(process.all_gone());
  return result;
}

// Runs a head whose host is this shell script.
std::string head_of(const std::string& script) { return head("rude", {{"FAKE_SSH_SAYS", script}}).err; }

std::string with_home(const std::string& home) { return head("a", {{"HOME", home}}).err; }

}  // namespace

TEST_CASE("attack: a host takes nothing but one whole header from its stdin", "[attacks][integration]") {
  CHECK_THAT(on_host("GET / HTTP/1.1\r\n\r\n"), Contains("a frame of version 32"));
  CHECK_THAT(on_host("\xff\xff\xff\xffH\1"), Contains("a frame of 4294967295 bytes"));
  CHECK_THAT(on_host(to_frame(FrameKind::JobHeader, "nonsense")), Contains("on a host: the head sends no JSON"));
  CHECK_THAT(on_host(to_frame(FrameKind::Signal, "9")), Contains("another frame before the job's header"));
  CHECK_THAT(on_host(""), Contains("its stdin ended before the header"));
  JobHeader header;
  header.arguments = {"true"};
  header.folder = "/no/such/folder";
  Process::Options options;
  options.stdin_text = to_frame(FrameKind::JobHeader, to_text(header));
  const Result result = run({DDPRUN_BINARY, "--on-host"}, options);
  CHECK((result.code == 1 || result.code == 143));  // its stdin has ended, too, which may be seen first
}

TEST_CASE("attack: a host that sends what no host sends is named, and cannot write to the terminal",
          "[attacks][integration]") {
  const std::string ready = std::string("printf '") + kGreeting + "ready\\n";
  CHECK_THAT(head_of(ready + "\\0\\0\\0\\002z\\001'"),
             Contains("host rude cannot take part: it sends a frame of the unknown kind 122"));
  CHECK_THAT(head_of(ready + "\\377\\377\\377\\377o\\001'"), Contains("a frame of 4294967295 bytes"));
  CHECK_THAT(head_of(ready + "\\0\\0\\0\\005x\\0017\\0330'"), Contains("host rude cannot take part"));
  CHECK_THAT(head_of(ready + "\\0\\0\\0\\003h\\001x'"), Contains("it says no JSON"));
  CHECK_THAT(head_of(ready + "\\0\\0\\0\\002b\\001'"), Contains("it sends what only a head sends"));
  const std::string escapes = head_of(std::string("printf '") + kGreeting + "cannot \\033]0;owned\\a\\n'");
  CHECK_THAT(escapes, Contains("host rude cannot take part: it cannot") && !Contains("\033"));
  const std::string noise = head_of("printf 'a\\033[2Jb\\n' >&2; exit 9");
  CHECK_THAT(noise, Contains("ended with exit code 9") && !Contains("\033"));
  CHECK_THAT(head_of("head -c 20000000 /dev/zero"), Contains("ended with exit code 0"));
  const std::string send = std::string("echo ") + "ddprun@host/1:\" send\";";
  CHECK_THAT(head_of(send + send + "cat >/dev/null"), Contains("it asks for the program a second time"));
}

TEST_CASE("attack: a cache that is a link, or that others may write to, is not used", "[attacks][integration]") {
  const TemporaryFolder home, elsewhere;
  std::filesystem::create_directory(home / ".cache");
  std::filesystem::create_directory_symlink(elsewhere.path(), home / ".cache/ddprun");
  CHECK_THAT(with_home(home.path()), Contains("it cannot use") && Contains("which is a link"));
  CHECK(std::filesystem::is_empty(elsewhere.path()) == false);  // the build's folder, and no program
  CHECK(std::filesystem::is_empty(*std::filesystem::directory_iterator(elsewhere.path())));
  std::filesystem::remove(home / ".cache/ddprun");
  std::filesystem::create_directory(home / ".cache/ddprun");
  const auto build_id = std::filesystem::directory_iterator(elsewhere.path())->path().filename();
  const std::string build = std::filesystem::path(home / ".cache/ddprun") / build_id;
  std::filesystem::create_directory(build);
  for (const std::string& folder : {home.path(), home / ".cache", home / ".cache/ddprun", build}) {
    for (const auto& [open, mode] : {std::pair(0770, "770"), std::pair(0702, "702"), std::pair(01777, "1777")}) {
      REQUIRE(chmod(folder.c_str(), static_cast<mode_t>(open)) == 0);
      CHECK_THAT(with_home(home.path()),
                 Contains("it cannot use " + folder + ", in which other users may write (mode " + mode +
                          "): chmod go-w " + folder + " allows it"));
    }
    REQUIRE(chmod(folder.c_str(), 0700) == 0);
  }
}

TEST_CASE("attack: a program or a cache of another user is not used", "[attacks][integration]") {
  if (geteuid() != 0) skip("only root can make files of another user");
  const TemporaryFolder home;
  std::filesystem::create_directory(home / ".cache");
  std::filesystem::create_directory(home / ".cache/ddprun");
  REQUIRE(chown((home / ".cache/ddprun").c_str(), kOtherUser, kOtherUser) == 0);
  CHECK_THAT(with_home(home.path()), Contains("which must be a folder of this user"));
}
