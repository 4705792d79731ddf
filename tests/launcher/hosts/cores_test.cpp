// SPDX-License-Identifier: BSD-3-Clause
#include <catch2/catch.hpp>
#include <csignal>

#include "launcher/hosts/head_core.hpp"
#include "launcher/hosts/on_host_core.hpp"

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

// A job of hosts h0, h1, ...
HeadCore core_of_many(std::size_t number) {
  std::vector<HeadCore::HostInfo> hosts;
  for (std::size_t i = 0; i < number; ++i) hosts.push_back({"h" + std::to_string(i)});
  return HeadCore({.hosts = hosts, .shutdown_timeout = seconds(30)}, kBegin);
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
    if (std::holds_alternative<LeaveHead>(action)) text += "leave; ";
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

TEST_CASE("head: 64 hosts are connecting at a time, and each that is ready makes room for another",
          "[launcher][unit]") {
  HeadCore core = core_of_many(66);
  const auto first = core.begin();
  CHECK(std::get<StartHosts>(first.at(0)).hosts.size() == 64);
  CHECK(text_of(core.ready(5, hello("10.0.0.5"), kBegin)) == "start 64");
  CHECK(text_of(core.ready(7, hello("10.0.0.7"), kBegin + seconds(50))) == "start 65");
  for (std::size_t i = 0; i < 65; ++i) CHECK(text_of(core.ready(i, hello("10.0.0.1"), kBegin + seconds(50))).empty());
  core.tick(kBegin + seconds(60));
  CHECK(*core.due() == kBegin + seconds(110));  // a host has its minute from when it is started
  CHECK(text_of(core.ready(65, hello("10.0.0.1"), kBegin + seconds(60))) == "start 10.0.0.1:4000");
}

TEST_CASE("head: hosts that were not started yet are not started where one is lost", "[launcher][unit]") {
  HeadCore core = core_of_many(66);
  core.begin();
  CHECK_THAT(text_of(core.link_ended(5, "No route to host", kBegin)), Contains("host h5 cannot take part"));
  CHECK(text_of(core.ready(7, hello("10.0.0.7"), kBegin)).empty());
  CHECK(text_of(core.tick(kBegin + seconds(1))) == "cut");
  for (std::size_t i = 0; i < 63; ++i) {
    if (i != 5) CHECK(text_of(core.link_ended(i, "cut", kBegin + seconds(1))).empty());
  }
  CHECK(text_of(core.link_ended(63, "cut", kBegin + seconds(1))) == "end 75");
}

TEST_CASE("head: a host that was ready and is lost before the job begins is named, and started again once",
          "[launcher][unit]") {
  HeadCore core = core_of();
  core.ready(1, hello("10.0.0.2"), kBegin);
  CHECK(text_of(core.link_ended(1, "ssh was killed by SIGKILL", kBegin)) ==
        "say starting ddprun on host b again: ssh was killed by SIGKILL; start 1");
  CHECK(text_of(core.ready(0, hello("10.0.0.1"), kBegin)).empty());  // b is not ready any more
  core.ready(1, hello("10.0.0.2"), kBegin);
  // A second time is the host's own fault.
  HeadCore twice = core_of();
  twice.ready(1, hello("10.0.0.2"), kBegin);
  twice.link_ended(1, "x", kBegin);
  twice.ready(1, hello("10.0.0.2"), kBegin);
  CHECK_THAT(text_of(twice.link_ended(1, "ssh ended with exit code 255", kBegin)),
             Contains("host b cannot take part: ssh ended with exit code 255; nothing was started"));
}

TEST_CASE("head: a host that always says that it is about to be ready is believed for ten minutes",
          "[launcher][unit]") {
  HeadCore core = core_of();
  core.ready(0, hello("10.0.0.1"), kBegin);
  for (int second = 10; second < 600; second += 10) {
    const HeadCore::Time now = kBegin + seconds(second);
    core.progressed(1, now);
    CHECK_THAT(text_of(core.tick(now)), !Contains("cannot take part"));
  }
  CHECK(*core.due() == kBegin + seconds(600));
  CHECK_THAT(text_of(core.tick(kBegin + seconds(600))),
             Contains("host b cannot take part: it is not ready after 600 s"));
}

TEST_CASE("head: of many hosts that are lost while the job runs 64 are connecting at a time", "[launcher][unit]") {
  std::vector<HeadCore::HostInfo> hosts(70, {"h"});
  HeadCore core({.hosts = hosts, .may_restart = true}, kBegin);
  core.begin();
  for (std::size_t i = 0; i < 70; ++i) core.ready(i, hello("10.0.0.1"), kBegin);
  for (std::size_t i = 1; i <= 64; ++i) CHECK_THAT(text_of(core.link_ended(i, "x", kBegin)), Contains("; start "));
  CHECK(text_of(core.link_ended(65, "x", kBegin)) == "say host h is lost: x; starting ddprun there again");
  core.ready(1, hello("10.0.0.1"), kBegin);
  CHECK(text_of(core.tick(kBegin + seconds(5))) == "new lines 65; start 65");
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

TEST_CASE("on a host: a head that is gone is waited for no more, also after the job", "[launcher][unit]") {
  const auto begin = OnHostCore::Time(seconds(1000));
  OnHostCore core(begin);
  core.job_begins(seconds(30), seconds(6), SIGTERM, begin);
  CHECK(text_of(core.job_ended(0)) == "exit 0");
  CHECK(*core.due() == begin + seconds(6));
  CHECK(text_of(core.tick(begin + seconds(6))) == "leave; ");
  CHECK(!core.due());
}

TEST_CASE("on a host: without a beat or a lifeline the job is stopped, then killed", "[launcher][unit]") {
  const auto begin = OnHostCore::Time(seconds(1000));
  OnHostCore silent(begin);
  silent.job_begins(seconds(30), seconds(6), SIGTERM, begin);
  silent.beat(begin + seconds(2));
  CHECK(text_of(silent.tick(begin + seconds(7))).empty());
  CHECK(*silent.due() == begin + seconds(8));
  CHECK(text_of(silent.tick(begin + seconds(8))) == "leave; signal 15");
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
  CHECK(text_of(core.lifeline_ended("x", begin)) == "leave; ");
  CHECK(text_of(core.tick(begin + seconds(8))) == "signal 9");
}
