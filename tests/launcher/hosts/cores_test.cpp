// SPDX-License-Identifier: BSD-3-Clause
#include <catch2/catch.hpp>
#include <csignal>

#include "launcher/hosts/head_core.hpp"
#include "launcher/hosts/on_host_core.hpp"
#include "launcher/hosts/tree/tree_core.hpp"

using namespace ddp::launcher;
using Catch::Matchers::Contains;
using std::chrono::seconds;

namespace {

const HeadCore::Time kBegin{seconds(1000)};

std::string numbers(const std::vector<std::size_t>& hosts) {
  std::string text;
  for (const std::size_t host : hosts) text += " " + std::to_string(host);
  return text;
}

std::string text_of(const HeadAction& action) {
  if (const auto* some = std::get_if<StartHosts>(&action)) return "start" + numbers(some->hosts);
  if (const auto* share = std::get_if<HandOn>(&action)) {
    return std::to_string(share->branch) + " starts" + numbers(share->hosts);
  }
  if (const auto* start = std::get_if<StartAll>(&action)) {
    return "start " + start->master_addr + ":" + std::to_string(start->master_port);
  }
  if (const auto* one = std::get_if<StartOne>(&action)) {
    return "begin " + std::to_string(one->host) + " at " + one->master_addr + ":" + std::to_string(one->master_port);
  }
  if (const auto* signal = std::get_if<SignalHosts>(&action)) {
    return "signal " + std::to_string(signal->signal) + numbers(signal->hosts);
  }
  if (const auto* one = std::get_if<KillLink>(&action)) return "kill " + std::to_string(one->host);
  if (const auto* one = std::get_if<EndLines>(&action)) return "new lines " + std::to_string(one->host);
  if (std::holds_alternative<CutLinks>(action)) return "cut";
  if (const auto* all = std::get_if<KillLinks>(&action)) return "kill all " + std::to_string(all->signal);
  if (const auto* say = std::get_if<SayLine>(&action)) return "say " + say->text;
  return "end " + std::to_string(std::get<EndHead>(action).code);
}

std::string text_of(const HeadCore::Actions& actions) {
  std::string text;
  for (const HeadAction& action : actions) text += (text.empty() ? "" : "; ") + text_of(action);
  return text;
}

Hello hello(const std::string& address, const std::string& caller = "10.0.0.9") {
  return {.host = "h", .address = address, .caller_address = caller, .port = 4000};
}

HeadCore core_of(bool first_is_local = false) {
  HeadCore core({.hosts = {{"a", first_is_local}, {"b"}}, .shutdown_timeout = seconds(30)}, kBegin);
  core.begin();
  return core;
}

// A job of hosts h0, h1, ... Each of h1, h4, h7, ... is to start the two after it; with 97 hosts there are 32 of them.
HeadCore core_of_97(bool may_restart = false) {
  std::vector<HeadCore::HostInfo> hosts;
  for (int i = 0; i < 97; ++i) hosts.push_back({"h" + std::to_string(i)});
  HeadCore core({.hosts = hosts, .shutdown_timeout = seconds(30), .may_restart = may_restart}, kBegin);
  core.begin();
  return core;
}

void all_ready(HeadCore& core, std::size_t except = 97) {
  for (std::size_t i = 0; i < 97; ++i) {
    if (i != except) core.ready(i, hello("10.0.0." + std::to_string(i)), kBegin);
  }
}

HeadCore running(bool may_restart = false) {
  HeadCore core({.hosts = {{"a"}, {"b"}}, .shutdown_timeout = seconds(30), .may_restart = may_restart}, kBegin);
  core.begin();
  core.ready(0, hello("10.0.0.1"), kBegin);
  core.ready(1, hello("10.0.0.2"), kBegin);
  return core;
}

std::string text_of(const OnHostCore::Actions& actions) {
  std::string text;
  for (const OnHostAction& action : actions) {
    if (const auto* signal = std::get_if<SignalJob>(&action)) text += "signal " + std::to_string(signal->signal);
    if (const auto* exit = std::get_if<ReportExit>(&action)) text += "exit " + std::to_string(exit->code);
    if (std::holds_alternative<CutBranch>(action)) text += "cut; ";
    if (const auto* end = std::get_if<GiveUp>(&action)) text += "give up: " + end->why;
  }
  return text;
}

}  // namespace

TEST_CASE("head: the job starts once all hosts are ready, at the first host's address", "[launcher][unit]") {
  HeadCore core = core_of();
  CHECK(text_of(core.ready(1, hello("10.0.0.2"), kBegin)).empty());
  CHECK(text_of(core.ready(0, hello("10.0.0.1"), kBegin)) == "start 10.0.0.1:4000");
  CHECK(text_of(core.ready(0, hello("10.0.0.7"), kBegin)).empty());
}

TEST_CASE("head: where the first host is this machine, the others say how they reach it", "[launcher][unit]") {
  HeadCore core = core_of(true);
  core.ready(0, hello("127.0.0.1", ""), kBegin);
  CHECK(text_of(core.ready(1, hello("10.0.0.2"), kBegin)) ==
        "say workers on a have all variables of this environment, those on the other hosts a part of them (--help: "
        "--export); -x NAME gives them NAME, too; start 10.0.0.9:4000");
}

TEST_CASE("head: where the first host is this machine, the address of a jump host is not taken for its own",
          "[launcher][unit]") {
  HeadCore core({.hosts = {{"a", true}, {"b"}}, .own_addresses = {"10.0.0.1"}}, kBegin);
  core.begin();
  core.ready(1, hello("10.0.0.2", "10.0.0.7"), kBegin);
  CHECK_THAT(text_of(core.ready(0, hello("10.0.0.1", ""), kBegin)), Contains("start 10.0.0.1:4000"));
}

TEST_CASE("head: hosts that cannot begin end the start for all, with the code of the first of them",
          "[launcher][unit]") {
  HeadCore core({.hosts = {{"a"}, {"b"}, {"c"}}, .shutdown_timeout = seconds(30)}, kBegin);
  core.begin();
  for (std::size_t i = 0; i < 3; ++i) core.ready(i, hello("10.0.0.1"), kBegin);
  CHECK(text_of(core.cannot_begin(2, 1, "no folder", kBegin)) == "say host c cannot take part: no folder; signal 15");
  CHECK(text_of(core.cannot_begin(1, 127, "no program", kBegin)) == "say host b cannot take part: no program");
  for (std::size_t host = 0; host < 3; ++host) core.exited(host, 143, kBegin);  // they get SIGTERM
  for (const std::size_t host : {std::size_t{0}, std::size_t{2}})
    CHECK(text_of(core.link_ended(host, "", kBegin)).empty());
  CHECK(text_of(core.link_ended(1, "", kBegin)) == "end 127");
}

TEST_CASE("head: a host that comes back and cannot begin is tried again", "[launcher][unit]") {
  HeadCore core = running(true);
  core.link_ended(1, "ssh was killed", kBegin);
  core.ready(1, hello("10.0.0.2"), kBegin);
  CHECK(text_of(core.cannot_begin(1, 1, "no folder", kBegin)) ==
        "say host b cannot be started again yet: no folder; trying every 5 s");
  core.exited(1, 1, kBegin);
  CHECK(text_of(core.link_ended(1, "ssh ended with exit code 1", kBegin)).empty());
  CHECK(text_of(core.tick(kBegin + seconds(5))) == "new lines 1; start 1");
}

TEST_CASE("head: a host that ends once its connection was closed does not change the exit code", "[launcher][unit]") {
  HeadCore core = running();
  core.exited(1, 7, kBegin);
  CHECK_THAT(text_of(core.tick(kBegin + seconds(40))), Contains("cut"));
  CHECK(text_of(core.failed(0, "the connection to the head has ended", kBegin + seconds(40))).empty());
  core.exited(0, 143, kBegin + seconds(41));
  core.link_ended(0, "", kBegin + seconds(41));
  CHECK(text_of(core.link_ended(1, "", kBegin + seconds(41))) == "end 7");
}

TEST_CASE("head: a first host that had no word from here for too long is lost, whatever the others end with",
          "[launcher][unit]") {
  HeadCore core = running(true);
  CHECK(text_of(core.failed(1, "no word from the head for 15 s", kBegin)).empty());  // its link ends soon
  CHECK(text_of(core.failed(0, "no word from the head for 15 s", kBegin)) ==
        "say host a is lost: no word from the head for 15 s; signal 15");
  core.exited(1, 143, kBegin);
  core.link_ended(1, "", kBegin);
  CHECK(text_of(core.link_ended(0, "ssh ended with exit code 143", kBegin)) == "end 75");
}

TEST_CASE("head: a host that cannot be reached is named, and nothing is started", "[launcher][unit]") {
  HeadCore core = core_of();
  core.ready(0, hello("10.0.0.1"), kBegin);
  CHECK(text_of(core.link_ended(1, "ssh ended with exit code 255", kBegin)) ==
        "say host b cannot take part: ssh ended with exit code 255; nothing was started; cut");
  CHECK(text_of(core.failed(0, "its stdin ended", kBegin)).empty());
  CHECK(text_of(core.link_ended(0, "x", kBegin)) == "end 75");
}

TEST_CASE("head: hosts of which it is known within a second that they cannot be reached are named together",
          "[launcher][unit]") {
  const auto core_of_3 = [] {
    HeadCore core({.hosts = {{"a"}, {"b"}, {"c"}}}, kBegin);
    core.begin();
    return core;
  };
  HeadCore core = core_of_3();
  CHECK(text_of(core.link_ended(1, "x", kBegin)) == "say host b cannot take part: x; nothing was started");
  CHECK(text_of(core.failed(2, "y", kBegin)) == "say host c cannot take part: y; nothing was started");
  CHECK(text_of(core.ready(0, hello("10.0.0.1"), kBegin)) == "cut");

  HeadCore slow = core_of_3();
  slow.link_ended(1, "x", kBegin);
  CHECK(*slow.due() == kBegin + seconds(1));
  CHECK(text_of(slow.tick(kBegin + seconds(1))) == "cut");
  CHECK(text_of(slow.failed(2, "its stdin ended", kBegin + seconds(1))).empty());
  CHECK(text_of(slow.tick(kBegin + seconds(2))) == "kill all 15");  // upon which srun gives nodes back
  CHECK(text_of(slow.tick(kBegin + seconds(7))) == "kill all 9");
}

TEST_CASE("head: a line says that two names are one machine, whose GPUs the nodes do not share out",
          "[launcher][unit]") {
  HeadCore core({.hosts = {{"a"}, {"b"}, {"c"}, {"d"}}}, kBegin);
  core.begin();
  Hello one = hello("10.0.0.1"), other = hello("10.0.0.2"), unknown = hello("10.0.0.3");
  one.machine = "x";
  other.machine = "y";
  core.ready(0, one, kBegin);
  core.ready(1, other, kBegin);
  core.ready(2, unknown, kBegin);
  CHECK(text_of(core.ready(3, one, kBegin)) ==
        "say hosts a, d are one machine, and each uses its GPUs and CPUs as if it were alone there; to share them out, "
        "list it once with the sum of the slots; start 10.0.0.1:4000");
}

TEST_CASE("head: a host without an answer is given up after a minute without progress", "[launcher][unit]") {
  HeadCore core = core_of();
  core.ready(0, hello("10.0.0.1"), kBegin);
  CHECK(text_of(core.tick(kBegin + seconds(10))) == "say waiting for host b");
  core.progressed(1, kBegin + seconds(50));
  CHECK(text_of(core.tick(kBegin + seconds(70))).empty());
  CHECK_THAT(text_of(core.tick(kBegin + seconds(110))), Contains("host b cannot take part: no answer in 60 s"));
  CHECK(text_of(core.tick(kBegin + seconds(115))) == "kill all 15");
}

TEST_CASE("head: the exit code is the first host's if it failed, else another's", "[launcher][unit]") {
  HeadCore core = running();
  core.exited(1, 1, kBegin);
  core.exited(0, 7, kBegin);
  CHECK(text_of(core.link_ended(1, "", kBegin)).empty());
  CHECK(text_of(core.link_ended(0, "", kBegin)) == "end 7");
  HeadCore good = running();
  good.exited(0, 0, kBegin);
  good.exited(1, 0, kBegin);
  good.link_ended(0, "", kBegin);
  CHECK(text_of(good.link_ended(1, "", kBegin)) == "end 0");
}

TEST_CASE("head: a host that is lost ends the job, which has its shutdown timeout for that", "[launcher][unit]") {
  HeadCore core = running();
  CHECK(text_of(core.link_ended(1, "ssh was killed", kBegin)) == "say host b is lost: ssh was killed; signal 15");
  CHECK(text_of(core.tick(kBegin + seconds(39))).empty());
  CHECK(text_of(core.tick(kBegin + seconds(40))) == "say no end from host a: closing the connections; cut");
  CHECK(text_of(core.tick(kBegin + seconds(45))) == "kill all 15");
  CHECK(text_of(core.link_ended(0, "", kBegin + seconds(45))) == "end 75");
}

TEST_CASE("head: a loss after another end of the job does not change its exit code", "[launcher][unit]") {
  HeadCore failed = running();
  failed.exited(0, 7, kBegin);
  failed.link_ended(1, "ssh was killed", kBegin);
  CHECK(text_of(failed.link_ended(0, "", kBegin)) == "end 7");
  HeadCore stopped = running();
  stopped.signal(SIGTERM, kBegin);
  stopped.link_ended(1, "ssh was killed", kBegin);
  stopped.exited(0, 143, kBegin);
  CHECK(text_of(stopped.link_ended(0, "", kBegin)) == "end 143");
  HeadCore cannot = core_of();
  cannot.ready(0, hello("10.0.0.1"), kBegin);
  cannot.failed(1, "cannot write in /home/me/.cache", kBegin);
  cannot.link_ended(1, "", kBegin);
  CHECK(text_of(cannot.link_ended(0, "", kBegin)) == "end 1");
}

TEST_CASE("head: where there may be a restart, a lost host is started again and begins its part at once",
          "[launcher][unit]") {
  HeadCore core = running(true);
  CHECK(text_of(core.link_ended(1, "ssh was killed", kBegin)) ==
        "say host b is lost: ssh was killed; starting ddprun there again; new lines 1; start 1");
  CHECK(*core.due() == kBegin + seconds(20));
  CHECK(text_of(core.ready(1, hello("10.0.0.2"), kBegin)) == "begin 1 at 10.0.0.1:4000");
  CHECK(!core.due());
  core.exited(1, 0, kBegin);
  CHECK(text_of(core.exited(0, 0, kBegin)).empty());
  core.link_ended(1, "", kBegin);
  CHECK(text_of(core.link_ended(0, "", kBegin)) == "end 0");
}

TEST_CASE("head: a lost host that cannot be reached is tried as long as the others wait for it", "[launcher][unit]") {
  HeadCore core = running(true);
  core.link_ended(1, "ssh was killed", kBegin);
  CHECK(text_of(core.link_ended(1, "No route to host", kBegin)) ==
        "say host b cannot be started again yet: No route to host; trying every 5 s");
  CHECK(*core.due() == kBegin + seconds(5));
  CHECK(text_of(core.tick(kBegin + seconds(5))) == "new lines 1; start 1");
  CHECK(text_of(core.tick(kBegin + seconds(25))) == "kill 1");
  CHECK(text_of(core.link_ended(1, "ssh was killed", kBegin + seconds(25))).empty());
  CHECK(text_of(core.tick(kBegin + seconds(30))) == "new lines 1; start 1");
  SECTION("it comes back") {
    CHECK(text_of(core.ready(1, hello("10.0.0.2"), kBegin)) == "say host b is back; begin 1 at 10.0.0.1:4000");
  }
  SECTION("the coordinator has waited long enough, or has no restart left") {
    CHECK(text_of(core.exited(0, 75, kBegin + seconds(31))) == "kill 1");
    CHECK(text_of(core.link_ended(1, "ssh was killed", kBegin + seconds(31))).empty());
    CHECK(text_of(core.link_ended(0, "", kBegin + seconds(31))) == "end 75");
  }
  SECTION("a signal ends the job") {
    CHECK(text_of(core.signal(SIGINT, kBegin + seconds(31))) == "kill 1; signal 2");
    core.link_ended(1, "ssh was killed", kBegin + seconds(31));
    core.exited(0, 130, kBegin + seconds(32));
    CHECK(text_of(core.link_ended(0, "", kBegin + seconds(32))) == "end 130");
  }
}

TEST_CASE("head: a host that came back too late is ended with the coordinator, and its end counts for nothing",
          "[launcher][unit]") {
  HeadCore core = running(true);
  core.link_ended(1, "ssh was killed", kBegin);
  core.ready(1, hello("10.0.0.2"), kBegin);
  CHECK(text_of(core.exited(0, 0, kBegin)) == "signal 15 1");
  CHECK(text_of(core.link_ended(0, "", kBegin)).empty());
  core.exited(1, 143, kBegin);
  CHECK(text_of(core.link_ended(1, "", kBegin)) == "end 0");
}

TEST_CASE("head: the first host is not started again, since it coordinates", "[launcher][unit]") {
  HeadCore core = running(true);
  CHECK(text_of(core.link_ended(0, "ssh was killed", kBegin)) == "say host a is lost: ssh was killed; signal 15");
  core.exited(1, 143, kBegin);
  CHECK(text_of(core.link_ended(1, "", kBegin)) == "end 75");
}

TEST_CASE("head: the hosts behind a lost branch are taken over by one of them", "[launcher][unit]") {
  HeadCore core = core_of_97(true);
  all_ready(core);
  core.exited(6, 0, kBegin);
  CHECK(text_of(core.link_ended(1, "ssh was killed", kBegin)) ==
        "say host h1 is lost: ssh was killed; with it 2 hosts behind it; starting ddprun there again; new lines 1; new "
        "lines 2; new lines 3; start 1 2");
  CHECK(text_of(core.ready(2, hello("10.0.0.2"), kBegin)) == "2 starts 3; begin 2 at 10.0.0.0:4000");
  CHECK(text_of(core.ready(3, hello("10.0.0.3"), kBegin)).empty());  // it has the header from h2
  // h2 cannot be reached any more, so the head takes h3 over.
  core.link_ended(2, "ssh was killed", kBegin);
  CHECK(text_of(core.link_ended(2, "No route to host", kBegin)) ==
        "say host h2 cannot be started again yet: No route to host; trying every 5 s");
  CHECK(core.is_from_here(3));
  // What a branch has lost is started from here, but not what has ended.
  CHECK(text_of(core.link_ended(5, "ssh was killed", kBegin)) ==
        "say host h5 is lost: ssh was killed; starting ddprun there again; new lines 5; start 5");
  CHECK(text_of(core.link_ended(6, "", kBegin)).empty());
}

TEST_CASE("head: signals go to all hosts, and a second Ctrl-C shortens their time", "[launcher][unit]") {
  HeadCore core = running();
  CHECK(text_of(core.signal(SIGUSR1, kBegin)) == "signal 10");
  CHECK(text_of(core.signal(SIGINT, kBegin)) == "signal 2");
  CHECK(text_of(core.tick(kBegin + seconds(20))).empty());
  CHECK(text_of(core.signal(SIGINT, kBegin + seconds(20))) == "signal 2");
  CHECK_THAT(text_of(core.tick(kBegin + seconds(25))), Contains("cut"));
}

TEST_CASE("head: a signal before the start starts nothing", "[launcher][unit]") {
  HeadCore core = core_of();
  CHECK(text_of(core.signal(SIGTERM, kBegin)) == "cut");
  CHECK(text_of(core.ready(0, hello("10.0.0.1"), kBegin)).empty());
  core.link_ended(0, "x", kBegin);
  CHECK(text_of(core.link_ended(1, "x", kBegin)) == "end 143");
}

TEST_CASE("head: above 33 hosts some start the others, but not the first, which coordinates", "[launcher][unit]") {
  std::vector<HeadCore::HostInfo> hosts(33, {"h"});
  HeadCore flat({.hosts = hosts}, kBegin);
  const auto all = flat.begin();
  CHECK(std::get<StartHosts>(all.at(0)).hosts.size() == 33);
  hosts.resize(1000, {"h"});
  hosts[500].is_local = true;
  HeadCore tree({.hosts = hosts}, kBegin);
  const auto some = tree.begin();
  CHECK(std::get<StartHosts>(some.at(0)).hosts.size() == 34);  // this machine's needs no connection
  CHECK(text_of(tree.ready(0, hello("10.0.0.1"), kBegin)).empty());
  CHECK(text_of(tree.ready(500, hello("10.0.0.1"), kBegin)).empty());
  CHECK_THAT(text_of(tree.ready(1, hello("10.0.0.1"), kBegin)), Catch::Matchers::StartsWith("1 starts 2 3 4 "));
}

TEST_CASE("head: a job begins once the hosts behind others are ready, too", "[launcher][unit]") {
  HeadCore core = core_of_97();
  all_ready(core, 3);
  CHECK(text_of(core.ready(3, hello("10.0.0.3"), kBegin)) == "start 10.0.0.0:4000");
}

TEST_CASE("head: a branch that dies before the job begins is named, and another takes its part", "[launcher][unit]") {
  HeadCore core = core_of_97();
  all_ready(core, 96);
  CHECK(text_of(core.link_ended(4, "ssh was killed by SIGKILL", kBegin)) ==
        "say starting ddprun on host h4 again: ssh was killed by SIGKILL; start 4 5");
  CHECK(text_of(core.ready(96, hello("10.0.0.96"), kBegin)).empty());  // 4, 5 and 6 are not ready any more
  CHECK(text_of(core.ready(4, hello("10.0.0.4"), kBegin)).empty());
  CHECK(text_of(core.ready(5, hello("10.0.0.5"), kBegin)) == "5 starts 6");
  CHECK(text_of(core.ready(6, hello("10.0.0.6"), kBegin)) == "start 10.0.0.0:4000");
  // A second time is the host's own fault.
  HeadCore twice = core_of_97();
  all_ready(twice, 96);
  twice.link_ended(4, "x", kBegin);
  CHECK_THAT(text_of(twice.link_ended(4, "ssh ended with exit code 255", kBegin)),
             Contains("host h4 cannot take part: ssh ended with exit code 255; nothing was started"));
  CHECK(text_of(twice.tick(kBegin + seconds(1))) == "cut");
}

TEST_CASE("head: a host that its branch cannot reach is tried from here, and then given up", "[launcher][unit]") {
  HeadCore core = core_of_97();
  all_ready(core, 5);
  CHECK(text_of(core.link_ended(5, "no ssh there", kBegin)) ==
        "say host h4 cannot start ddprun on host h5, which is tried from here: no ssh there; start 5");
  CHECK_THAT(text_of(core.link_ended(5, "No route to host", kBegin)),
             Contains("host h5 cannot take part: No route to host; nothing was started; cut"));
}

TEST_CASE("head: with a branch that is lost later, all behind it are, and the others are stopped once",
          "[launcher][unit]") {
  HeadCore core = core_of_97();
  all_ready(core);
  core.exited(6, 0, kBegin);
  CHECK(text_of(core.link_ended(4, "ssh was killed", kBegin)) ==
        "say host h4 is lost: ssh was killed; with it 1 host behind it; signal 15");
  CHECK(text_of(core.link_ended(7, "ssh was killed", kBegin)) ==
        "say host h7 is lost: ssh was killed; with it 2 hosts behind it");
  // A branch that has lost its own branch names that one only.
  CHECK(text_of(core.link_ended(11, "", kBegin)).empty());
}

TEST_CASE("head: a host behind another has its minute once it is started, and is named with the other",
          "[launcher][unit]") {
  HeadCore core = core_of_97();
  for (std::size_t i = 0; i < 97; ++i) {
    if (i != 4 && i != 5 && i != 6) core.ready(i, hello("10.0.0.1"), kBegin);
  }
  core.ready(4, hello("10.0.0.1"), kBegin + seconds(50));
  core.tick(kBegin + seconds(60));
  CHECK(*core.due() == kBegin + seconds(110));
  CHECK_THAT(text_of(core.tick(kBegin + seconds(110))),
             Contains("host h5 cannot take part: no answer in 60 s (host h4 starts it)"));
}

TEST_CASE("head: a branch that always says of a host that it is about to be ready is believed for ten minutes",
          "[launcher][unit]") {
  HeadCore core = core_of_97();
  for (std::size_t i = 0; i < 96; ++i) {  // the job does not begin without h96
    if (i != 5) core.ready(i, hello("10.0.0.1"), kBegin);
  }
  int lines = 0;
  for (int second = 10; second < 600; second += 10) {
    const HeadCore::Time now = kBegin + seconds(second);
    if (text_of(core.starts_again(5, "no ssh there", now)) == "say starting ddprun on host h5 again: no ssh there") {
      ++lines;
    }
    core.ready(5, hello("10.0.0.5"), now);
    core.starts_again(5, "", now);
    for (const std::size_t host : {std::size_t{5}, std::size_t{96}}) core.progressed(host, now);
    CHECK_THAT(text_of(core.tick(now)), !Contains("cannot take part"));
  }
  CHECK(lines == 3);
  CHECK(*core.due() == kBegin + seconds(600));
  CHECK_THAT(text_of(core.tick(kBegin + seconds(600))),
             Contains("host h5 cannot take part: it is not ready after 600 s (host h4 starts it)"));
}

TEST_CASE("head: a host that says while the job runs that it cannot go on has its shutdown timeout to end",
          "[launcher][unit]") {
  HeadCore core = running();
  CHECK(text_of(core.failed(1, "no memory", kBegin)) == "say host b is lost: no memory; signal 15");
  core.exited(0, 143, kBegin);  // it got SIGTERM
  core.link_ended(0, "", kBegin);
  CHECK(text_of(core.tick(kBegin + seconds(40))) == "say no end from host b: closing the connections; cut");
  CHECK(text_of(core.link_ended(1, "ssh was killed", kBegin)) == "end 75");
  HeadCore restarts = running(true);
  CHECK(text_of(restarts.failed(1, "no memory", kBegin)).empty());
  CHECK(text_of(restarts.tick(kBegin + seconds(39))).empty());
  CHECK(*restarts.due() == kBegin + seconds(40));
  CHECK(text_of(restarts.tick(kBegin + seconds(40))) == "kill 1");
  CHECK(text_of(restarts.link_ended(1, "ssh was killed", kBegin)) ==
        "say host b is lost: no memory; starting ddprun there again; new lines 1; start 1");
  HeadCore alone({.hosts = {{"a"}}, .shutdown_timeout = seconds(30)}, kBegin);
  alone.begin();
  alone.ready(0, hello("10.0.0.1"), kBegin);
  CHECK(text_of(alone.failed(0, "no memory", kBegin)) == "say host a is lost: no memory");
  CHECK(text_of(alone.tick(kBegin + seconds(40))) == "say no end from host a: closing the connections; cut");
}

TEST_CASE("tree: a host above 32 of its own has a third level, and what is lost there is taken over there",
          "[launcher][unit]") {
  TreeCore core;
  std::vector<std::size_t> hosts;
  for (std::size_t i = 1; i <= 96; ++i) hosts.push_back(i);
  const auto start = core.begin({}, hosts);
  CHECK(std::get<StartHosts>(start.at(0)).hosts.size() == 32);
  CHECK(numbers(std::get<HandOn>(core.ready(1).at(0)).hosts) == " 2 3");
  CHECK(core.ready(1).empty());
  CHECK(core.ready(2).empty());  // it is not started from here
  // Not ready, so it was never reached: who is above tries it.
  const auto unreached = core.ended(4, "No route to host");
  CHECK(std::get<Unreached>(unreached.at(0)).host == 4);
  CHECK(numbers(std::get<StartHosts>(unreached.back()).hosts) == " 5");
  CHECK((core.is_from_here(5) && core.is_behind(6, 5) && core.branch_of(6) == 5));
  // Ready, and lost.
  const auto again = core.ended(1, "ssh was killed");
  CHECK(std::get<StartsAgain>(again.at(0)).why == "ssh was killed");
  CHECK(numbers(std::get<StartHosts>(again.back()).hosts) == " 1 2");
  // Its branch cannot reach it.
  CHECK(numbers(std::get<StartHosts>(core.unreached(3, "no ssh").back()).hosts) == " 3");
  CHECK(core.unreached(3, "no ssh").empty());
}

TEST_CASE("tree: a host that does not answer is overdue after 20 s without progress", "[launcher][unit]") {
  TreeCore core;
  core.begin({}, {1, 2});
  CHECK(!core.due());
  core.progressed(1, kBegin);
  core.progressed(2, kBegin);
  core.ready(1);
  core.progressed(2, kBegin + seconds(15));
  CHECK(core.overdue(kBegin + seconds(34)).empty());
  CHECK(*core.due() == kBegin + seconds(35));
  CHECK(numbers(core.overdue(kBegin + seconds(35))) == " 2");
}

TEST_CASE("tree: nothing is started again where the job's header has gone", "[launcher][unit]") {
  TreeCore core;
  std::vector<std::size_t> hosts;
  for (std::size_t i = 1; i <= 96; ++i) hosts.push_back(i);
  core.begin({}, hosts);
  core.ready(1);
  CHECK(core.may_get_header(1));
  CHECK(!core.may_get_header(2));
  core.got_header(1);
  CHECK(!core.may_get_header(1));
  const auto actions = core.ended(1, "ssh was killed");
  REQUIRE(actions.size() == 1);
  CHECK(std::get<Gone>(actions[0]).how == "ssh was killed");
  CHECK(numbers(std::get<Gone>(actions[0]).behind) == " 2 3");
  CHECK(core.ended(1, "x").empty());
}

TEST_CASE("on a host: before the job's header the end of the lifeline ends all", "[launcher][unit]") {
  const auto begin = OnHostCore::Time(seconds(1000));
  OnHostCore core(begin);
  core.beat(begin + seconds(50));
  CHECK(*core.due() == begin + seconds(170));
  CHECK(text_of(core.signal(SIGUSR1, begin + seconds(50))).empty());
  CHECK(text_of(core.tick(begin + seconds(170))) == "give up: no header of a job within 120 s");
  OnHostCore stopped(begin);
  CHECK(text_of(stopped.signal(SIGTERM, begin)) == "give up: SIGTERM before the header of a job");
}

TEST_CASE("on a host: one that starts others ends them when the head is gone, also after its own job",
          "[launcher][unit]") {
  const auto begin = OnHostCore::Time(seconds(1000));
  OnHostCore core(begin);
  core.job_begins(seconds(30), seconds(6), SIGTERM, begin);
  CHECK(text_of(core.job_ended(0)) == "exit 0");
  CHECK(*core.due() == begin + seconds(6));
  CHECK(text_of(core.tick(begin + seconds(6))) == "cut; ");
  CHECK(!core.due());
}

TEST_CASE("on a host: without a beat or a lifeline the job is stopped, then killed", "[launcher][unit]") {
  const auto begin = OnHostCore::Time(seconds(1000));
  OnHostCore silent(begin);
  silent.job_begins(seconds(30), seconds(6), SIGTERM, begin);
  silent.beat(begin + seconds(2));
  CHECK(text_of(silent.tick(begin + seconds(7))).empty());
  CHECK(*silent.due() == begin + seconds(8));
  CHECK(text_of(silent.tick(begin + seconds(8))) == "cut; signal 15");
  CHECK(text_of(silent.tick(begin + seconds(40))).empty());
  CHECK(text_of(silent.tick(begin + seconds(41))) == "signal 9");
  CHECK(text_of(silent.job_ended(137)) == "exit 137");
  CHECK(text_of(silent.lifeline_ended("x", begin)).empty());  // it has ended before
}

TEST_CASE("on a host: a job that is stopping keeps its time when the lifeline ends", "[launcher][unit]") {
  const auto begin = OnHostCore::Time(seconds(1000));
  OnHostCore core(begin);
  core.job_begins(seconds(5), seconds(6), SIGTERM, begin);
  CHECK(text_of(core.signal(SIGINT, begin)) == "signal 2");
  CHECK(text_of(core.lifeline_ended("x", begin)) == "cut; ");
  CHECK(text_of(core.tick(begin + seconds(8))) == "signal 9");
}
