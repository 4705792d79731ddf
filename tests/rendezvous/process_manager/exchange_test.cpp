// SPDX-License-Identifier: BSD-3-Clause
// PMI-1 with a starter that the test plays. tests/integration/starters_test.cpp has the real ones.
#include "rendezvous/process_manager/exchange.hpp"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <map>
#include <string>

#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/base/error.hpp"
#include "rendezvous/base/pipe.hpp"

using namespace ddp::rendezvous;
using Catch::Matchers::Contains;
using std::chrono::milliseconds;

namespace {

// What the starter answers to each command.
using Answers = std::map<std::string, std::string>;

const Answers kAnswers = {
    {"cmd=init", "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"},
    {"cmd=get_my_kvsname", "cmd=my_kvsname kvsname=kvs_7\n"},
    {"cmd=put", "cmd=put_result rc=0 msg=success\n"},
    {"cmd=barrier_in", "cmd=barrier_out\n"},
    {"cmd=get", "cmd=get_result rc=0 msg=success value=10.0.0.7,4711,abc\n"},
    {"cmd=finalize", "cmd=finalize_ack\n"},
};

// The starter: a process that answers lines until the other end of its socket is closed, and writes them to `lines`. It
// hangs up where the table has no answer.
[[noreturn]] void be_starter(int socket, int lines, const Answers& answers) {
  std::string line;
  for (char c = 0; read(socket, &c, 1) == 1;) {
    line += c;
    if (c != '\n') continue;
    if (write(lines, line.data(), line.size()) < 0) _exit(1);
    const auto found = answers.find(line.substr(0, line.find_first_of(" \n")));
    if (found == answers.end()) _exit(1);
    if (write(socket, found->second.data(), found->second.size()) < 0) _exit(1);
    line.clear();
  }
  _exit(0);
}

struct Talk {
  std::string result;  // what exchange() returns, or its error
  std::string lines;   // what the starter was sent
};

Talk talk(int rank, const Answers& answers, milliseconds timeout = std::chrono::seconds(30)) {
  int ends[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  Pipe lines = make_pipe("for the test");
  const pid_t starter = fork();
  REQUIRE(starter >= 0);
  if (starter == 0) {
    close(ends[1]);
    be_starter(ends[0], lines.write_end.get(), answers);
  }
  close(ends[0]);
  lines.write_end.close();
  setenv("PMI_FD", std::to_string(ends[1]).c_str(), 1);
  Talk talk;
  try {
    talk.result = exchange(KeyValueStore::Pmi, rank, "own", timeout);
  } catch (const Error& error) {
    talk.result = error.what();
  }
  unsetenv("PMI_FD");
  char bytes[4096];
  for (ssize_t size; (size = read(lines.read_end.get(), bytes, sizeof bytes)) > 0;) {
    talk.lines.append(bytes, static_cast<std::size_t>(size));
  }
  waitpid(starter, nullptr, 0);
  return talk;
}

}  // namespace

TEST_CASE("exchange: rank 0 puts its text into the starter's store, and every rank gets it", "[rendezvous][unit]") {
  const Talk first = talk(0, kAnswers);
  CHECK(first.result == "10.0.0.7,4711,abc");
  CHECK(first.lines ==
        "cmd=init pmi_version=1 pmi_subversion=1\n"
        "cmd=get_my_kvsname\n"
        "cmd=put kvsname=kvs_7 key=ddp-exchange value=own\n"
        "cmd=barrier_in\n"
        "cmd=get kvsname=kvs_7 key=ddp-exchange\n"
        "cmd=finalize\n");
  const Talk other = talk(1, kAnswers);
  CHECK(other.result == "10.0.0.7,4711,abc");
  CHECK_THAT(other.lines, !Contains("cmd=put"));
}

TEST_CASE("exchange: what the starter refuses, or does not know, is an error that quotes it", "[rendezvous][unit]") {
  Answers refused = kAnswers;
  refused["cmd=put"] = "cmd=put_result rc=-1 msg=too_long\n";
  CHECK_THAT(talk(0, refused).result, Contains("answered \"cmd=put_result rc=-1 msg=too_long\" to \"put "));
  Answers other = kAnswers;
  other["cmd=init"] = "6 garbage\n";
  CHECK_THAT(talk(0, other).result, Contains("answered \"6 garbage\""));
  Answers endless = kAnswers;
  endless["cmd=get"] = std::string(5000, 'x');
  CHECK_THAT(talk(0, endless).result, Contains("more than 4096 bytes"));
  Answers gone = kAnswers;
  gone.erase("cmd=barrier_in");
  CHECK_THAT(talk(0, gone).result, Contains("closed the socket of PMI_FD"));
}

TEST_CASE("exchange: a starter that does not answer costs the timeout, and no more", "[rendezvous][unit]") {
  Answers silent = kAnswers;
  silent["cmd=barrier_in"] = "";
  CHECK_THAT(talk(0, silent, milliseconds(50)).result, Contains("not all ranks took part within 50 ms"));
}

TEST_CASE("exchange: without PMI_FD there is a reason, not a crash", "[rendezvous][unit]") {
  unsetenv("PMI_FD");
  CHECK_THROWS_WITH(exchange(KeyValueStore::Pmi, 0, "own", milliseconds(5000)), Contains("PMI_FD is not set"));
}
